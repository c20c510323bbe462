#!/usr/bin/env python3
"""Writes tests/fixtures/ddp: what PyTorch's DistributedDataParallel over gloo, with PEFT, makes of the model and the
adapter of tests/fixtures/golden/qwen3 on two processes and on three, in float32.

  tests/make/ddp_steps.py        needs: pip install torch transformers peft safetensors

  data.jsonl              the records, in the order in which they are trained on
  steps.json              versions, settings, and loss and gradient norm of each step, by the number of processes
  adapters.safetensors    the adapters after the last step, their names behind that number

The records of a step are dealt out in one piece to each process. A process pads those of a micro-batch to the longest.
DistributedDataParallel averages gradients over the processes, so each multiplies its loss by their number and divides
it by the labeled tokens of the whole step, as transformers does with average_tokens_across_devices. An average of the
processes' means would be another gradient: they have different numbers of labels, and one of them none in some step.
Before anything is written, the same steps by one process in float64 (tests/make/golden.py) must have the same losses,
norms and adapters.
"""
import contextlib
import json
import math
import os
import shutil
import sys
import tempfile

import torch
import torch.distributed as dist
import transformers
from golden import SIZES, adapter_tensors, labeled, load, train, versions, write_json
from peft import PeftModel
from safetensors.torch import save_file
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoModelForCausalLM

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

MODEL = os.path.join(TESTS, "fixtures", "golden", "qwen3")
ADAPTER = os.path.join(MODEL, "adapter")
RANKS = (2, 3)
TRAINING = dict(steps=6, accumulation=2, micro_batch=2, learning_rate=0.01, warmup_steps=2, schedule="linear",
                weight_decay=0.1, max_grad_norm=1.5, beta1=0.9, beta2=0.999, epsilon=1e-8)


WITHOUT_LABELS = range(28, 32)  # those of rank 1 in a step of either number of processes


def ragged(count):
    """Records of 2 to 40 tokens, of which none to all but the first are labeled."""
    generator = torch.Generator().manual_seed(29)

    def below(limit):
        return int(torch.randint(0, limit, (1,), generator=generator))

    records = []
    for number in range(count):
        length = 2 + below(39)
        ids = torch.randint(1, SIZES["vocab_size"], (length,), generator=generator).tolist()
        prompt = length if number in WITHOUT_LABELS else 1 + below(length - 1)
        records.append(dict(input_ids=ids, labels=[-100] * prompt + ids[prompt:]))
    return records


def loss_sum(model, records):
    """-log p over the labeled tokens of a micro-batch, padded to its longest record."""
    width = max(len(record["input_ids"]) for record in records)

    def padded(rows, filler):
        return torch.tensor([row + [filler] * (width - len(row)) for row in rows])

    ids = padded([record["input_ids"] for record in records], 0)
    mask = padded([[1] * len(record["input_ids"]) for record in records], 0)
    labels = padded([record["labels"] for record in records], -100)
    logits = model(input_ids=ids, attention_mask=mask).logits
    assert logits.dtype == torch.float32
    return torch.nn.functional.cross_entropy(logits[:, :-1].reshape(-1, logits.shape[-1]), labels[:, 1:].reshape(-1),
                                             ignore_index=-100, reduction="sum")


def train_rank(rank, ranks, data, t, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=ranks)
    base = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32, attn_implementation="sdpa")
    base.config.use_cache = False
    adapted = PeftModel.from_pretrained(base, ADAPTER, is_trainable=True)
    adapted.train()
    model = DistributedDataParallel(adapted)
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(params, lr=t["learning_rate"], betas=(t["beta1"], t["beta2"]), eps=t["epsilon"],
                                  weight_decay=t["weight_decay"])
    schedule = transformers.get_scheduler(t["schedule"], optimizer, t["warmup_steps"], t["steps"])
    own = t["accumulation"] * t["micro_batch"]
    steps = []
    for step in range(t["steps"]):
        begin = (step * ranks + rank) * own
        counts = [None] * ranks
        dist.all_gather_object(counts, labeled(data[begin:begin + own]))
        total = sum(counts)
        mean = torch.zeros(1, dtype=torch.float64)
        for micro in range(t["accumulation"]):
            at = begin + micro * t["micro_batch"]
            last = micro + 1 == t["accumulation"]
            with contextlib.nullcontext() if last else model.no_sync():
                loss = loss_sum(model, data[at:at + t["micro_batch"]]) / total
                (loss * ranks).backward()
            mean += loss.item()
        dist.all_reduce(mean)
        norm = torch.nn.utils.clip_grad_norm_(params, t["max_grad_norm"]).item()
        steps.append(dict(loss=mean.item(), grad_norm=norm, learning_rate=schedule.get_last_lr()[0], labeled=total,
                          labeled_by_rank=counts))
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    final = adapter_tensors(adapted, lambda p: p)
    torch.save((steps, final), os.path.join(folder, f"rank-{rank}"))
    dist.destroy_process_group()


def train_ranks(ranks, data, t):
    """The steps and the adapter, which must be the same on every process."""
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(train_rank, (ranks, data, t, folder), nprocs=ranks)
        steps, final = torch.load(os.path.join(folder, "rank-0"))
        for rank in range(1, ranks):
            others, tensors = torch.load(os.path.join(folder, f"rank-{rank}"))
            assert others == steps and all(torch.equal(tensors[name], final[name]) for name in final)
    counts = [step["labeled_by_rank"] for step in steps]
    assert all(len(set(of_step)) > 1 for of_step in counts), "a mean of means would be the same"
    assert any(of_step[1] == 0 for of_step in counts), "every rank has labels in every step"
    return steps, final


def norm_of(tensors):
    return math.sqrt(sum(tensor.double().pow(2).sum().item() for tensor in tensors))


def check(ranks, data, t, steps, final):
    """Against whole steps of one process in float64, by the bounds of tests/model/golden_test.cpp."""
    model, _ = load(MODEL, ADAPTER)
    start = adapter_tensors(model, lambda p: p)
    whole = train(model, data, dict(t, micro_batch=t["micro_batch"] * ranks))
    exact = adapter_tensors(model, lambda p: p)
    apart = dict(loss=0.0, grad_norm=0.0)
    for step, reference in zip(steps, whole, strict=True):
        assert step["labeled"] == reference["labeled"] and step["learning_rate"] == reference["learning_rate"]
        for name in apart:
            apart[name] = max(apart[name], abs(step[name] / reference[name] - 1))
    update = norm_of(exact[name] - start[name] for name in exact)
    apart["update"] = norm_of(exact[name] - final[name].double() for name in exact) / update
    print(f"{ranks} processes: loss {steps[0]['loss']:.4f} -> {steps[-1]['loss']:.4f}, gradient norms "
          f"{[round(step['grad_norm'], 3) for step in steps]}, update {update:.3f}; from float64 "
          f"{', '.join(f'{name} {value:.1e}' for name, value in apart.items())}")
    assert apart["loss"] < 2e-6 and apart["grad_norm"] < 1.4e-5 and apart["update"] < 5e-4


def main():
    torch.set_num_threads(1)
    out = os.path.join(TESTS, "fixtures", "ddp")
    data = ragged(TRAINING["steps"] * TRAINING["accumulation"] * TRAINING["micro_batch"] * max(RANKS))
    runs, adapters = [], {}
    for ranks in RANKS:
        steps, final = train_ranks(ranks, data, TRAINING)
        check(ranks, data, TRAINING, steps, final)
        runs.append(dict(ranks=ranks, steps=steps))
        adapters.update({f"{ranks}.{name}": tensor for name, tensor in final.items()})
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    with open(os.path.join(out, "data.jsonl"), "w") as file:
        file.writelines(json.dumps(record) + "\n" for record in data)
    write_json(os.path.join(out, "steps.json"), dict(versions=versions(), training=TRAINING, runs=runs))
    save_file(adapters, os.path.join(out, "adapters.safetensors"))


if __name__ == "__main__":
    main()
