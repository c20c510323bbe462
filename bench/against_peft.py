#!/usr/bin/env python3
"""Trains the same adapters, or whole models, on the same tokens with `lora train` and with PyTorch + PEFT, in turn, and
compares them.

  bench/against_peft.py --lora build/release/bin/lora --limits build/release/bin/bench_limits
      [--rows NAMES] [--steps N] [--rounds K] [--threads N] [--only lora|both] [--work DIR] [--out DIR]
      [--smollm2 MODEL_FOLDER] [--gsm8k train.jsonl | --tokens FILE.jsonl]

Our side needs Python's standard library alone; the other runs in the interpreter that this script is started with,
which then needs torch, transformers, peft and safetensors. Model shapes are written with random weights, stored in
bfloat16, or for the rows with q8_0 in their names as a GGUF file, which PyTorch has no products for; --smollm2 names a
real model instead. Rows with full in their names train the whole model, without an adapter: on the other side in
float32, and for bfloat16 under torch.autocast. SmolLM2's rows train on --gsm8k (rendered with the tokenizer of --smollm2), on --tokens (records
{"input_ids", "labels"}), or else on random tokens with lengths like GSM8K's.

Per row: tokens per second of both from the third step on, their ratio, the worst relative difference of a step's loss
(it must stay below 1e-4 in float32 and 1 % in bfloat16; otherwise the exit code is 1), peak memory (VmHWM, mapped
weights included) and the share of the matrix-product limit that was measured just before and after. The share counts
every FLOP that must be done: 4 per frozen weight and token and 6 per one that trains, the head on labeled rows,
attention over visible pairs, adapters, behind the last layer's attention labeled rows alone, and with gradient
checkpointing the forward products done again.

Rows with shared in their names train on records that begin alike: 1,200 tokens that all of a batch have (a list of tools,
a document), then some of their own, of which the last half is learned; or on GSM8K, whose records begin with the model's
system prompt. Our side runs twice, with share_prefixes false and true, and a second table has both, beside the bound: how
many times fewer rows are computed. In the first table, share_prefixes is false.

Writes against_peft.json and against_peft.md into --out; bench/draw.py makes a picture of the former.
"""
import argparse
import json
import math
import os
import random
import resource
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time

PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]

SHAPES = {
    "SmolLM2-135M": dict(
        model_type="llama", architectures=["LlamaForCausalLM"], hidden_size=576, intermediate_size=1536,
        num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3, head_dim=64, vocab_size=49152,
        max_position_embeddings=8192, rms_norm_eps=1e-5, rope_theta=100000.0, tie_word_embeddings=True,
        attention_bias=False, mlp_bias=False, hidden_act="silu", bos_token_id=1, eos_token_id=2, dtype="bfloat16"),
    "Qwen2.5-0.5B": dict(
        model_type="qwen2", architectures=["Qwen2ForCausalLM"], hidden_size=896, intermediate_size=4864,
        num_hidden_layers=24, num_attention_heads=14, num_key_value_heads=2, vocab_size=151936,
        max_position_embeddings=32768, rms_norm_eps=1e-6, rope_theta=1000000.0, tie_word_embeddings=True,
        use_sliding_window=False, hidden_act="silu", eos_token_id=151645, dtype="bfloat16"),
}

# length 0: the data of --gsm8k, --tokens or random tokens like it.
ROWS = {
    "smollm2-f32": dict(shape="SmolLM2-135M", length=0, batch=8, rank=16, dtype="float32"),
    "smollm2-bf16": dict(shape="SmolLM2-135M", length=0, batch=8, rank=16, dtype="bfloat16"),
    "smollm2-full-f32": dict(shape="SmolLM2-135M", length=0, batch=8, rank=0, dtype="float32"),
    "smollm2-full-bf16": dict(shape="SmolLM2-135M", length=0, batch=8, rank=0, dtype="bfloat16"),
    "512-f32": dict(shape="Qwen2.5-0.5B", length=512, batch=1, rank=8, dtype="float32"),
    "512-bf16": dict(shape="Qwen2.5-0.5B", length=512, batch=1, rank=8, dtype="bfloat16"),
    "2048-bf16": dict(shape="Qwen2.5-0.5B", length=2048, batch=1, rank=8, dtype="bfloat16", recompute=True),
    # PyTorch would need the logits of the whole sequence at once, more memory than small machines have.
    "8192-bf16": dict(shape="Qwen2.5-0.5B", length=8192, batch=1, rank=8, dtype="bfloat16", recompute=True, steps=3,
                      ours_only=True),
    # A GGUF file used as stored. PyTorch has no such products on a CPU: what counts is the speed of the rows above.
    "512-q8_0-f32": dict(shape="Qwen2.5-0.5B", length=512, batch=1, rank=8, dtype="float32", stored="Q8_0",
                         ours_only=True),
    "512-q8_0-bf16": dict(shape="Qwen2.5-0.5B", length=512, batch=1, rank=8, dtype="bfloat16", stored="Q8_0",
                          ours_only=True),
}
SHARED_ROWS = {
    # PyTorch takes one record at a time: of eight it would keep more than small machines have.
    "shared-tools-f32": dict(shape="SmolLM2-135M", length=0, common=1200, own=(60, 150), batch=8, rank=16,
                             dtype="float32", steps=3, at_once=1),
    "shared-tools-qwen-f32": dict(shape="Qwen2.5-0.5B", length=0, common=1200, own=(60, 150), batch=8, rank=16,
                                  dtype="float32", steps=3, ours_only=True),
    "shared-document-f32": dict(shape="SmolLM2-135M", length=0, common=1200, own=(40, 80), batch=20, rank=16,
                                dtype="float32", steps=3, ours_only=True),
    "shared-gsm8k-f32": dict(shape="SmolLM2-135M", length=0, batch=8, rank=16, dtype="float32"),
}
NOT_TIMED = 2  # the first steps prepare products and touch memory
TOLERANCE = {"float32": 1e-4, "bfloat16": 1e-2}
LEARNING_RATE = 1e-4


# Models and adapters -------------------------------------------------------------------------------------------------

def random_bf16(count, rng):
    """Values of either sign with absolute values from 2^-7 to 2^-5, as bytes: about as wide as usual initial weights."""
    data = bytearray(2 * count)
    data[0::2] = rng.randbytes(count)
    data[1::2] = rng.randbytes(count).translate(bytes(0x3C | (b & 0x80) for b in range(256)))
    return bytes(data)


def widened(bf16):
    data = bytearray(2 * len(bf16))
    data[2::4], data[3::4] = bf16[0::2], bf16[1::2]
    return bytes(data)


def write_safetensors(path, dtype, tensors):
    """tensors: (name, shape, function that returns its bytes)."""
    width, header, at = {"BF16": 2, "F32": 4}[dtype], {"__metadata__": {"format": "pt"}}, 0
    for name, shape, _ in tensors:
        size = width * math.prod(shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 64)
    with open(path + ".part", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, _, make in tensors:
            file.write(make())
    os.replace(path + ".part", path)


def projections(shape):
    """name -> (out, in) of a layer."""
    e, f = shape["hidden_size"], shape["intermediate_size"]
    head = shape.get("head_dim") or e // shape["num_attention_heads"]
    q, kv = head * shape["num_attention_heads"], head * shape["num_key_value_heads"]
    return dict(q_proj=(q, e), k_proj=(kv, e), v_proj=(kv, e), o_proj=(e, q), gate_proj=(f, e), up_proj=(f, e),
                down_proj=(e, f))


def module(layer, name):
    return f"model.layers.{layer}.{'mlp' if name in PROJECTIONS[4:] else 'self_attn'}.{name}"


def weights_of(shape):
    """(name, extents) of every tensor of a model."""
    e = shape["hidden_size"]
    tensors = [("model.embed_tokens.weight", [shape["vocab_size"], e])]
    for i in range(shape["num_hidden_layers"]):
        for name, dims in projections(shape).items():
            tensors.append((module(i, name) + ".weight", list(dims)))
            if shape["model_type"] == "qwen2" and name in PROJECTIONS[:3]:
                tensors.append((module(i, name) + ".bias", [dims[0]]))
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors.append((f"model.layers.{i}.{norm}.weight", [e]))
    return tensors + [("model.norm.weight", [e])]


def drawn_bf16(name, dims, rng):
    return struct.pack("<H", 0x3F80) * dims[0] if "norm" in name else random_bf16(math.prod(dims), rng)


def make_model(folder, shape):
    if os.path.exists(os.path.join(folder, "model.safetensors")):
        return
    os.makedirs(folder, exist_ok=True)
    rng = random.Random(1)
    tensors = [(name, dims, lambda name=name, dims=dims: drawn_bf16(name, dims, rng))
               for name, dims in weights_of(shape)]
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(shape, file, indent=2)
    write_safetensors(os.path.join(folder, "model.safetensors"), "BF16", tensors)


GGUF_PARTS = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "model.layers": "blk",
              "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
              "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
              "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}


def gguf_name(name):
    for ours, theirs in GGUF_PARTS.items():
        name = name.replace(ours, theirs)
    return name


def random_q8_0(count, rng):
    """Blocks of 32 numbers of one byte with a scale of 2^-12 before them."""
    blocks, scale = count // 32, struct.pack("<e", 2.0**-12)
    data = bytearray(34 * blocks)
    data[0::34], data[1::34] = scale[:1] * blocks, scale[1:] * blocks
    for i in range(2, 34):
        data[i::34] = rng.randbytes(blocks)
    return bytes(data)


def make_gguf(path, shape):
    """The shape with random weights as a GGUF file without tokenizer: matrices in Q8_0, vectors in float32."""
    if os.path.exists(path):
        return
    rng, arch = random.Random(1), shape["model_type"]
    text = lambda s: struct.pack("<Q", len(s.encode())) + s.encode()
    whole = lambda key, value: text(f"{arch}.{key}") + struct.pack("<II", 4, value)
    real = lambda key, value: text(f"{arch}.{key}") + struct.pack("<If", 6, value)
    pairs = [text("general.architecture") + struct.pack("<I", 8) + text(arch),
             whole("context_length", shape["max_position_embeddings"]),
             whole("block_count", shape["num_hidden_layers"]), whole("embedding_length", shape["hidden_size"]),
             whole("feed_forward_length", shape["intermediate_size"]),
             whole("attention.head_count", shape["num_attention_heads"]),
             whole("attention.head_count_kv", shape["num_key_value_heads"]),
             real("attention.layer_norm_rms_epsilon", shape["rms_norm_eps"]),
             real("rope.freq_base", shape["rope_theta"])]
    tensors, at = weights_of(shape), 0
    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs)) + b"".join(pairs)
    for name, dims in tensors:
        kind, size = (8, math.prod(dims) // 32 * 34) if len(dims) == 2 else (0, 4 * dims[0])
        header += text(gguf_name(name)) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *reversed(dims), kind, at)
        at += size + -size % 32
    with open(path + ".part", "wb") as file:
        file.write(header + bytes(-len(header) % 32))
        for name, dims in tensors:
            matrix = len(dims) == 2
            data = random_q8_0(math.prod(dims), rng) if matrix else widened(drawn_bf16(name, dims, rng))
            file.write(data + bytes(-len(data) % 32))
    os.replace(path + ".part", path)


def make_adapter(folder, model, shape, rank):
    """lora_B is not zero, so that gradients of lora_A count from the first step on."""
    os.makedirs(folder, exist_ok=True)
    rng, tensors = random.Random(2), []
    for i in range(shape["num_hidden_layers"]):
        for name, (out, inner) in projections(shape).items():
            for part, dims in (("lora_A", [rank, inner]), ("lora_B", [out, rank])):
                tensors.append((f"base_model.model.{module(i, name)}.{part}.weight", dims,
                                lambda n=math.prod(dims): widened(random_bf16(n, rng))))
    write_safetensors(os.path.join(folder, "adapter_model.safetensors"), "F32", tensors)
    with open(os.path.join(folder, "adapter_config.json"), "w") as file:
        json.dump({"peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": model, "r": rank,
                   "lora_alpha": 2 * rank, "lora_dropout": 0.0, "bias": "none", "fan_in_fan_out": False,
                   "inference_mode": False, "target_modules": PROJECTIONS}, file, indent=2)


# Data ----------------------------------------------------------------------------------------------------------------

def examples_in_common(row, shape, count):
    rng = random.Random(3)
    draw = lambda length: [rng.randrange(shape["vocab_size"]) for _ in range(length)]
    common, examples = draw(row["common"]), []
    for _ in range(count):
        own = draw(rng.randint(*row["own"]))
        prompt = len(common) + len(own) // 2
        examples.append({"input_ids": common + own, "labels": [-100] * prompt + (common + own)[prompt:]})
    return examples


def random_examples(row, shape, count):
    rng, examples = random.Random(3), []
    for _ in range(count):
        length = row["length"] or max(80, min(512, round(rng.gauss(220, 75))))
        ids = [rng.randrange(shape["vocab_size"]) for _ in range(length)]
        begin = 0 if row["length"] else round(0.41 * length)
        examples.append({"input_ids": ids, "labels": [-100] * begin + ids[begin:]})
    return examples


def gsm8k_examples(args, count):
    """Rendered and tokenized by the reference's libraries, so that neither side's rendering is in question."""
    path = os.path.join(args.work, "gsm8k.jsonl")
    run_other(dict(task="encode", model=args.smollm2, file=args.gsm8k, count=count, out=path))
    return read_lines(path)


def read_lines(path):
    with open(path) as file:
        return [json.loads(line) for line in file if line.strip()]


def examples_of(args, row, shape, count):
    if "common" in row:
        return examples_in_common(row, shape, count)
    if not row["length"] and args.gsm8k:
        return gsm8k_examples(args, count)
    if not row["length"] and args.tokens:
        return read_lines(args.tokens)[:count]
    return random_examples(row, shape, count)


def work_of(shape, row, examples):
    """FLOPs that a step over these examples can't do without."""
    dims, layers = projections(shape), shape["num_hidden_layers"]
    tokens = sum(len(e["input_ids"]) for e in examples)
    labeled = sum(1 for e in examples for label in e["labels"][1:] if label != -100)
    pairs = sum(len(e["input_ids"]) * (len(e["input_ids"]) + 1) // 2 for e in examples)
    products = 0
    for name, (out, inner) in dims.items():
        again = 1 if row.get("recompute") and name != "down_proj" else 0  # whose output is not needed again
        frozen = (4 + 2 * again + (0 if row["rank"] else 2)) * out * inner
        low_rank = (6 + 2 * again) * row["rank"] * (out + inner)
        in_last = labeled if name in PROJECTIONS[3:] else tokens  # behind attention no other row leads to a label
        products += ((layers - 1) * tokens + in_last) * (frozen + low_rank)
    return (products + (4 if row["rank"] else 6) * shape["vocab_size"] * shape["hidden_size"] * labeled
            + 14 * dims["q_proj"][0] * layers * pairs)


# The two sides -------------------------------------------------------------------------------------------------------

def command(words, **more):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(words)}\nfailed with {done.returncode}:\n{(done.stderr or done.stdout)[-3000:]}")
    return done.stdout


def run_ours(args, setup, shares):
    out = os.path.join(args.work, "run")
    shutil.rmtree(out, ignore_errors=True)
    trains = ["--adapter_name_or_path", setup["adapter"]] if setup["adapter"] else ["--finetuning_type", "full"]
    words = [args.lora, "train", "--model_name_or_path", setup["model"], *trains, "--dataset", setup["data"], "--output_dir", out, "--dtype", setup["dtype"], "--shuffle", "false",
             "--per_device_train_batch_size", str(setup["batch"]), "--gradient_accumulation_steps", "1",
             "--max_steps", str(setup["steps"]), "--learning_rate", str(LEARNING_RATE),
             "--lr_scheduler_type", "constant", "--cutoff_len", "1000000", "--logging_steps", "1",
             "--threads", str(args.threads), "--share_prefixes", "true" if shares else "false"]
    if setup["recompute"]:
        words += ["--gradient_checkpointing", "true"]
    command(words)
    lines = [line for line in read_lines(os.path.join(out, "trainer_log.jsonl")) if "loss" in line]
    with open(os.path.join(out, "training_metrics.json")) as file:
        memory = json.load(file)["peak_memory_gib"]
    timed = lines[min(NOT_TIMED, len(lines) - 1):]
    computed = sum(line.get("computed_tokens", line["tokens"]) for line in timed)
    return dict(summary([(line["loss"], line["tokens"], line["tokens"] / line["tokens_per_second"]) for line in lines],
                        memory), times_fewer_rows=sum(line["tokens"] for line in timed) / computed)


def run_other(setup):
    out = command([sys.executable, os.path.abspath(__file__), "--other", json.dumps(setup)],
                  env=dict(os.environ, TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1"))
    return json.loads(out.splitlines()[-1]) if setup["task"] == "train" else None


def summary(steps, memory):
    """steps: (loss, tokens, seconds)."""
    timed = steps[min(NOT_TIMED, len(steps) - 1):]
    seconds = sum(step[2] for step in timed)
    return dict(losses=[step[0] for step in steps], tokens_per_second=sum(step[1] for step in timed) / seconds,
                seconds_timed=seconds, peak_memory_gib=memory)


def other_encode(setup):
    from transformers import AutoTokenizer
    tokenizer = AutoTokenizer.from_pretrained(setup["model"])
    with open(setup["out"], "w") as out:
        for record in read_lines(setup["file"])[:setup["count"]]:
            turns = [{"role": "user", "content": record["question"]},
                     {"role": "assistant", "content": record["answer"]}]
            whole = tokenizer.apply_chat_template(turns, tokenize=False).rstrip("\n")
            prompt = tokenizer.apply_chat_template(turns[:1], tokenize=False, add_generation_prompt=True)
            assert whole.startswith(prompt)
            code = tokenizer(whole, add_special_tokens=False, return_offsets_mapping=True)
            ids = code["input_ids"]
            labels = [i if begin >= len(prompt) else -100 for i, (begin, _) in zip(ids, code["offset_mapping"])]
            out.write(json.dumps({"input_ids": ids, "labels": labels}) + "\n")


def other_train(setup):
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM
    torch.set_num_threads(setup["threads"])
    dtype, full = getattr(torch, setup["dtype"]), not setup["adapter"]
    model = AutoModelForCausalLM.from_pretrained(setup["model"], dtype=torch.float32 if full else dtype)
    model.config.use_cache = False
    if setup["recompute"]:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.enable_input_require_grads()
    if not full:
        model = PeftModel.from_pretrained(model, setup["adapter"], is_trainable=True)
    model.train()
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(params, lr=LEARNING_RATE, weight_decay=0.0)
    examples, steps = read_lines(setup["data"]), []
    for step in range(setup["steps"]):
        part = examples[step * setup["batch"]:(step + 1) * setup["batch"]]
        begin, sum_of_losses = time.perf_counter(), 0.0
        labeled = sum(1 for e in part for label in e["labels"][1:] if label != -100)
        for some in (part[i:i + setup["at_once"]] for i in range(0, len(part), setup["at_once"])):
            longest = max(len(e["input_ids"]) for e in some)
            pad = lambda key, value: torch.tensor([e[key] + [value] * (longest - len(e[key])) for e in some])
            ids, labels = pad("input_ids", 0), pad("labels", -100)[:, 1:]
            mask = torch.tensor([[1] * len(e["input_ids"]) + [0] * (longest - len(e["input_ids"])) for e in some])
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=full and dtype == torch.bfloat16):
                logits = model(input_ids=ids, attention_mask=mask).logits
            logits = logits[:, :-1].float()
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum") / labeled
            del logits
            loss.backward()
            sum_of_losses += loss.item()
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        steps.append((sum_of_losses, sum(len(e["input_ids"]) for e in part), time.perf_counter() - begin))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    import peft
    print(json.dumps(dict(summary(steps, memory), versions=dict(torch=torch.__version__, peft=peft.__version__))))


# The table -----------------------------------------------------------------------------------------------------------

def measure_limits(args):
    return json.loads(command([args.limits, str(args.threads)]))


def describe(row, args):
    data = f"{row['batch']}×{row['length']}, all rows labeled"
    if "common" in row:
        data = f"{row['common']} tokens in common and {row['own'][0]} to {row['own'][1]} more, batch {row['batch']}"
    elif not row["length"]:
        source = "GSM8K" if args.gsm8k else "given tokens" if args.tokens else "random tokens in GSM8K's lengths"
        data = f"{source}, batch {row['batch']}"
    shape = row["shape"] + ("" if args.smollm2 and not row["length"] else " shape")
    trains = f"r {row['rank']}" if row["rank"] else "in full"
    return f"{shape}, {data}, {trains}, {row['dtype']}" + (
        ", recomputed" if row.get("recompute") else "") + (f", stored as {row['stored']}" if "stored" in row else "")


def run_row(args, name):
    row = (ROWS | SHARED_ROWS)[name]
    shape, steps = SHAPES[row["shape"]], row.get("steps", args.steps)
    model = os.path.join(args.work, row["shape"])
    if args.smollm2 and not row["length"]:
        model = args.smollm2
        with open(os.path.join(model, "config.json")) as file:
            shape = json.load(file)
    elif "stored" in row:
        os.makedirs(model, exist_ok=True)
        model = os.path.join(model, f"model.{row['stored']}.gguf")
        make_gguf(model, shape)
    else:
        make_model(model, shape)
    adapter, data = os.path.join(args.work, f"adapter-{row['rank']}"), os.path.join(args.work, "data.jsonl")
    if row["rank"]:
        make_adapter(adapter, model, shape, row["rank"])
    else:
        adapter = ""
    examples = examples_of(args, row, shape, steps * row["batch"])
    if len(examples) < steps * row["batch"]:
        raise SystemExit(f"{name}: {len(examples)} records are too few for {steps} steps of {row['batch']}")
    with open(data, "w") as file:
        file.writelines(json.dumps(example) + "\n" for example in examples)
    setup = dict(task="train", model=model, adapter=adapter, data=data, dtype=row["dtype"], batch=row["batch"],
                 steps=steps, recompute=bool(row.get("recompute")), threads=args.threads,
                 at_once=row.get("at_once", row["batch"]))

    before = measure_limits(args)
    ours = run_ours(args, setup, False)
    after = measure_limits(args)
    key = row["dtype"] + "_gflops"
    limit = max(before[key], after[key])
    timed = examples[min(NOT_TIMED, steps - 1) * row["batch"]:]
    result = dict(row=name, run=describe(row, args), steps=steps, lora=ours, limit_gflops=limit,
                  limits=[before[key], after[key]],
                  gflops=1e-9 * work_of(shape, row, timed) / ours["seconds_timed"])
    result["share_of_limit"] = result["gflops"] / limit
    if name in SHARED_ROWS:
        result["shared"] = run_ours(args, setup, True)
        result["shared_ratio"] = result["shared"]["tokens_per_second"] / ours["tokens_per_second"]
    if args.only == "both" and not row.get("ours_only"):
        other = run_other(setup)
        worst = max(abs(a - b) / abs(b) for side in (ours, result.get("shared", ours))
                    for a, b in zip(side["losses"], other["losses"]))
        result.update(peft=other, ratio=ours["tokens_per_second"] / other["tokens_per_second"],
                      worst_loss_difference=worst, losses_agree=worst < TOLERANCE[row["dtype"]])
    return result


def table(rounds):
    """The median of all rounds; the worst of the loss differences."""
    lines = ["| run | PyTorch + PEFT: tok/s · GiB | lora: tok/s · GiB | ratio | share of the product limit | "
             "loss, first → last step | worst loss difference |", "|---|---|---|---|---|---|---|"]
    for row in rounds[0]:
        results = [r for results in rounds for r in results if r["row"] == row["row"]]
        middle = lambda get: statistics.median(get(r) for r in results)
        side = lambda key: (f"{middle(lambda r: r[key]['tokens_per_second']):.0f} · "
                            f"{middle(lambda r: r[key]['peak_memory_gib']):.2f}")
        losses = results[0]["lora"]["losses"]
        cells = [results[0]["run"], "–", side("lora"), "–", f"{100 * middle(lambda r: r['share_of_limit']):.0f} %",
                 f"{losses[0]:.4f} → {losses[-1]:.4f}", "–"]
        if "peft" in results[0]:
            cells[1], cells[3] = side("peft"), f"{middle(lambda r: r['ratio']):.2f}×"
            agree = all(r["losses_agree"] for r in results)
            cells[6] = f"{max(r['worst_loss_difference'] for r in results):.1e}" + ("" if agree else " (too much)")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n" + shared_table(rounds)


def shared_table(rounds):
    lines = []
    for row in rounds[0]:
        results = [r for results in rounds for r in results if r["row"] == row["row"]]
        if "shared" not in row:
            continue
        middle = lambda get: statistics.median(get(r) for r in results)
        side = lambda key: (f"{middle(lambda r: r[key]['tokens_per_second']):.0f} · "
                            f"{middle(lambda r: r[key]['peak_memory_gib']):.2f}")
        shared = middle(lambda r: r["shared"]["tokens_per_second"])
        peft = f"{shared / middle(lambda r: r['peft']['tokens_per_second']):.1f}×" if "peft" in row else "–"
        lines.append("| " + " | ".join(
            [row["run"], side("lora"), side("shared"), f"{middle(lambda r: r['shared_ratio']):.2f}×",
             f"{row['shared']['times_fewer_rows']:.2f}×", peft]) + " |")
    head = ["", "| run | each whole: tok/s · GiB | what is in common once | ratio | rows are fewer by | to PyTorch + PEFT |",
            "|---|---|---|---|---|---|"]
    return "\n".join(head + lines) + "\n" if lines else ""


def write_results(args, limits, rounds):
    with open(os.path.join(args.out, "against_peft.json"), "w") as file:
        json.dump(dict(threads=args.threads, limits=limits, rounds=rounds), file, indent=1)
    with open(os.path.join(args.out, "against_peft.md"), "w") as file:
        file.write(table(rounds))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parser.add_argument("--other", help=argparse.SUPPRESS)
    parser.add_argument("--lora", default=os.path.join(root, "build/release/bin/lora"))
    parser.add_argument("--limits", default=os.path.join(root, "build/release/bin/bench_limits"))
    parser.add_argument("--rows", default=",".join(ROWS), help="comma-separated: " + ", ".join([*ROWS, *SHARED_ROWS]))
    parser.add_argument("--steps", type=int, default=6, help="per row; the first two are not timed")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--only", choices=["lora", "both"], default="both")
    parser.add_argument("--smollm2", help="a model folder with tokenizer; default: random weights of that shape")
    parser.add_argument("--gsm8k", help="GSM8K's train.jsonl; needs --smollm2")
    parser.add_argument("--tokens", help="token records for SmolLM2's rows")
    parser.add_argument("--work", help="where models and runs lie, kept afterward; default: a temporary folder")
    parser.add_argument("--out", default=".")
    args = parser.parse_args()
    if args.other:
        setup = json.loads(args.other)
        return other_train(setup) if setup["task"] == "train" else other_encode(setup)
    names = args.rows.split(",")
    if unknown := [name for name in names if name not in ROWS | SHARED_ROWS]:
        parser.error(f"no row is called {unknown[0]}; there are {', '.join([*ROWS, *SHARED_ROWS])}")
    if args.gsm8k and not args.smollm2:
        parser.error("--gsm8k needs the tokenizer of --smollm2")
    if args.steps <= NOT_TIMED:
        parser.error(f"--steps must be more than {NOT_TIMED}")
    temporary = None
    if not args.work:
        temporary = tempfile.TemporaryDirectory(prefix="against-peft-")
        args.work = temporary.name
    os.makedirs(args.work, exist_ok=True)
    os.makedirs(args.out, exist_ok=True)

    limits, rounds = measure_limits(args), []
    for number in range(args.rounds):
        results = []
        for name in names:
            results.append(run_row(args, name))
            print(f"round {number + 1}, {name}: " + json.dumps(
                {key: value for key, value in results[-1].items() if key not in ("lora", "peft")}), file=sys.stderr)
            write_results(args, limits, rounds + [results])  # a long run that is stopped leaves what it has
        rounds.append(results)
    print(table(rounds), end="")
    return 0 if all(result.get("losses_agree", True) for results in rounds for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
