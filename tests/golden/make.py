#!/usr/bin/env python3
"""Makes tests/data/golden: tiny random models with an adapter each, and what PyTorch + PEFT compute with them.

    python tests/golden/make.py [OUT]          needs torch, transformers, peft, safetensors

For each family OUT/<family> holds
    config.json, model.safetensors             the model; norms away from 1, biases away from 0
    adapter/                                   a PEFT adapter whose lora_B is not zero
    reference.json                             versions, the data, losses, gradient norms, learning rates
    reference.safetensors                      logits, every adapter gradient, the adapter after training
    perplexity.json                            of sequences longer than a window, by transformers' sliding window

The reference is computed in float64 throughout, one sequence at a time and so without padding. Where transformers
forces float32 in between (norms, rotary tables), the same formula runs in float64; the rotary frequencies keep the
float32 values that transformers gives them.
"""
import json
import math
import os
import platform
import shutil
import sys

import peft
import safetensors
import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
SIZES = dict(vocab_size=256, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=128, initializer_range=0.15, bos_token_id=None,
             eos_token_id=0, pad_token_id=0)

FAMILIES = {
    "qwen2": dict(
        max_grad_norm=2.0,
        config=dict(tie_word_embeddings=False,
                    rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0,
                                         original_max_position_embeddings=32)),
        adapter=dict(r=4, lora_alpha=8, target_modules=ALL)),
    "qwen3": dict(
        max_grad_norm=3.2,
        config=dict(tie_word_embeddings=True, head_dim=24, rope_parameters=dict(rope_type="default", rope_theta=1e6)),
        stored=torch.bfloat16,
        adapter=dict(r=3, lora_alpha=6, use_rslora=True, target_modules=ALL)),
    "llama": dict(
        max_grad_norm=1.8,
        config=dict(tie_word_embeddings=False, attention_bias=True, mlp_bias=True, rms_norm_eps=1e-5,
                    rope_parameters=dict(rope_type="llama3", rope_theta=500.0, factor=8.0, low_freq_factor=1.0,
                                         high_freq_factor=4.0, original_max_position_embeddings=64)),
        old_spelling=True,
        adapter=dict(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj", "down_proj"])),
    "smollm3": dict(
        max_grad_norm=4.2,
        config=dict(tie_word_embeddings=True, no_rope_layers=[1, 0, 1],
                    rope_parameters=dict(rope_type="linear", rope_theta=5000.0, factor=2.5)),
        adapter=dict(r=4, lora_alpha=12, target_modules=["q_proj", "k_proj", "o_proj", "up_proj", "down_proj"],
                     rank_pattern={"q_proj": 2, "layers.1.mlp.up_proj": 6}, alpha_pattern={"o_proj": 32.0})),
}

TRAINING = dict(steps=10, accumulation=2, micro_batch=2, learning_rate=0.01, warmup_steps=3, schedule="linear", weight_decay=0.1, beta1=0.9, beta2=0.999, epsilon=1e-8)


def write_model(folder, family, rule):
    config = transformers.AutoConfig.for_model(family, **SIZES, **rule["config"])
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.copy_(1 + 0.3 * torch.randn_like(parameter))
            if name.endswith(".bias"):
                parameter.copy_(0.2 * torch.randn_like(parameter))
    model.to(rule.get("stored", torch.float32)).save_pretrained(folder)
    os.remove(os.path.join(folder, "generation_config.json"))
    if rule.get("old_spelling"):
        path = os.path.join(folder, "config.json")
        values = json.load(open(path))
        rope = values.pop("rope_parameters")
        values["rope_theta"] = rope.pop("rope_theta")
        values["rope_scaling"] = rope
        values["torch_dtype"] = values.pop("dtype")
        write_json(path, values)


def write_adapter(folder, rule):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", lora_dropout=0.0, **rule["adapter"]))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.copy_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(os.path.join(folder, "adapter"))
    os.remove(os.path.join(folder, "adapter", "README.md"))
    path = os.path.join(folder, "adapter", "adapter_config.json")
    values = json.load(open(path))
    values["base_model_name_or_path"] = None
    values["target_modules"] = sorted(values["target_modules"])
    write_json(path, values)


def norm_forward(self, x):
    return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)


def rotary_forward(self, x, position_ids):
    angles = position_ids[..., None].double() * self.inv_freq.double()
    both = torch.cat((angles, angles), dim=-1)
    return both.cos() * self.attention_scaling, both.sin() * self.attention_scaling


def load(folder):
    """The model with its adapter as their files say, in float64."""
    base = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa")
    model = PeftModel.from_pretrained(base, os.path.join(folder, "adapter"), is_trainable=True)
    frequencies = None
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = norm_forward.__get__(module)
        if type(module).__name__.endswith("RotaryEmbedding"):
            frequencies = module.inv_freq.clone()
            module.forward = rotary_forward.__get__(module)
    model.double()
    for module in model.modules():
        if type(module).__name__.endswith("RotaryEmbedding"):
            assert torch.equal(module.inv_freq.float(), frequencies)
    model.config.use_cache = False
    return model, frequencies


def sequences(count, generator):
    """Ragged sequences with a prompt that isn't labelled; some have one label, or none."""
    result = []
    for i in range(count):
        length = [2, 23, 9, 14, 5, 17, 11, 7][i % 8] + int(torch.randint(0, 4, (1,), generator=generator)) * (i >= 8)
        ids = torch.randint(1, SIZES["vocab_size"], (length,), generator=generator).tolist()
        prompt = [1, 6, 0, length, 4, length - 1, 3, 2][i % 8]  # 0: all labelled; length: none
        result.append(dict(input_ids=ids, labels=[-100] * prompt + ids[prompt:]))
    return result


def labelled(batch):
    return sum(label != -100 for sequence in batch for label in sequence["labels"][1:])


def loss_sum(model, sequence):
    """-log p over the labelled tokens of one sequence, and its logits (S, V)."""
    ids = torch.tensor([sequence["input_ids"]])
    logits = model(input_ids=ids).logits[0]
    assert logits.dtype == torch.float64
    targets = torch.tensor(sequence["labels"][1:], dtype=torch.long)
    return torch.nn.functional.cross_entropy(logits[:-1], targets, ignore_index=-100, reduction="sum"), logits


def perplexity(model, data, window):
    """exp of the mean negative log likelihood over all labelled tokens, longer sequences in windows of `window` tokens,
    each half a window on, where a token is scored in the first window that holds it. After transformers' page
    "Perplexity of fixed-length models", with labels."""
    total, count = 0.0, 0
    for sequence in data:
        ids, labels, scored = sequence["input_ids"], sequence["labels"], 0
        for begin in range(0, len(ids), max(1, window // 2)):
            end = min(begin + window, len(ids))
            fresh = [-100] * (max(scored, begin) - begin) + labels[max(scored, begin):end]
            if labelled([dict(labels=fresh)]) > 0:
                part = dict(input_ids=ids[begin:end], labels=fresh)
                total += loss_sum(model, part)[0].item()
                count += labelled([part])
            scored = end
            if end == len(ids):
                break
    return dict(window=window, labelled=count, loss=total / count, perplexity=math.exp(total / count))


def adapter_tensors(model, of):
    """By the names of an adapter file."""
    return {name.replace(".default", ""): of(parameter).detach().clone().contiguous()
            for name, parameter in model.named_parameters() if parameter.requires_grad}


def train(model, data, t):
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(params, lr=t["learning_rate"], betas=(t["beta1"], t["beta2"]), eps=t["epsilon"],
                                  weight_decay=t["weight_decay"])
    schedule = transformers.get_scheduler(t["schedule"], optimizer, t["warmup_steps"], t["steps"])
    log, at = [], 0
    for _ in range(t["steps"]):
        batch = data[at:at + t["accumulation"] * t["micro_batch"]]
        at += len(batch)
        total = 0.0
        for sequence in batch:
            loss = loss_sum(model, sequence)[0] / labelled(batch)
            loss.backward()
            total += loss.item()
        norm = torch.nn.utils.clip_grad_norm_(params, t["max_grad_norm"]).item()
        log.append(dict(loss=total, grad_norm=norm, learning_rate=schedule.get_last_lr()[0], labelled=labelled(batch)))
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    assert any(s["grad_norm"] > t["max_grad_norm"] for s in log), "clipping never acts"
    assert any(s["grad_norm"] < t["max_grad_norm"] for s in log), "clipping always acts"
    return log


def write_json(path, values):
    with open(path, "w") as file:
        json.dump(values, file, indent=1)
        file.write("\n")


def make(folder, family, rule, seed):
    torch.manual_seed(seed)
    shutil.rmtree(folder, ignore_errors=True)
    write_model(folder, family, rule)
    write_adapter(folder, rule)
    model, frequencies = load(folder)
    generator = torch.Generator().manual_seed(seed)
    evaluation = sequences(5, generator)
    data = sequences(TRAINING["steps"] * TRAINING["accumulation"] * TRAINING["micro_batch"], generator)

    tensors, loss, logits = {}, 0.0, []
    for sequence in evaluation:
        part, rows = loss_sum(model, sequence)
        (part / labelled(evaluation)).backward()
        loss += part.item() / labelled(evaluation)
        logits.append(rows.detach())
    tensors["logits"] = torch.cat(logits).float().contiguous()
    tensors.update({"gradient." + name: value for name, value in adapter_tensors(model, lambda p: p.grad).items()})
    model.zero_grad()
    with torch.no_grad():
        windows = dict(data=data[:12], results=[perplexity(model, data[:12], window) for window in (64, 8, 5)])
    start = adapter_tensors(model, lambda p: p)
    training = dict(TRAINING, max_grad_norm=rule["max_grad_norm"])
    steps = train(model, data, training)
    final = adapter_tensors(model, lambda p: p)
    tensors.update({"final." + name: value for name, value in final.items()})
    write_json(os.path.join(folder, "perplexity.json"), windows)
    with torch.no_grad():
        final_loss = sum(loss_sum(model, sequence)[0].item() for sequence in evaluation) / labelled(evaluation)
    save_file(tensors, os.path.join(folder, "reference.safetensors"))
    stored = load_file(os.path.join(folder, "adapter", "adapter_model.safetensors"))
    assert set(stored) == set(start) and all(torch.equal(stored[n].double(), start[n]) for n in start)
    write_json(os.path.join(folder, "reference.json"), dict(
        versions=dict(python=platform.python_version(), torch=torch.__version__,
                      transformers=transformers.__version__, peft=peft.__version__,
                      safetensors=safetensors.__version__),
        evaluation=evaluation, loss=loss, final_loss=final_loss, labelled=labelled(evaluation),
        inverse_frequencies=frequencies.tolist(), training=training, data=data, steps=steps))
    update = math.sqrt(sum((final[n] - start[n]).pow(2).sum().item() for n in final))
    norm = math.sqrt(sum(value.pow(2).sum().item() for value in start.values()))
    print(f"{family}: loss {loss:.4f} -> {final_loss:.4f}, gradient norms "
          f"{[round(s['grad_norm'], 3) for s in steps]}, adapter norm {norm:.3f}, update {update:.3f}")


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..", "data", "golden")
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, peft {peft.__version__}")
    torch.set_num_threads(1)
    for seed, (family, rule) in enumerate(FAMILIES.items()):
        make(os.path.join(out, family), family, rule, seed)


if __name__ == "__main__":
    main()
