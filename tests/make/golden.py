#!/usr/bin/env python3
"""Makes tests/fixtures/golden: tiny random models with an adapter each, and what PyTorch + PEFT compute with them; and
tests/fixtures/adapters: adapters of every kind that PEFT writes.

    python tests/make/golden.py [--out DATA] [--only golden|full|loraplus|additional|neftune|adapters|heads|no_rope|windows]
        [--family FAMILY]      needs torch, transformers, peft, safetensors
    python tests/make/golden.py --check-adapter FOLDER [--base MODEL]      does PEFT load what lora saved, value by value?

For each family OUT/<family> holds
    config.json, model.safetensors             the model; norms away from 1, biases away from 0
    adapter/                                   a PEFT adapter whose lora_B is not zero
    reference.json                             versions, the data, losses, gradient norms, learning rates
    reference.safetensors                      logits, every adapter gradient, the adapter after training
    perplexity.json                            of sequences longer than a window, by transformers' sliding window
    long.json, long.safetensors                one sequence of 700 tokens: loss, logits of some rows, adapter gradients
    full.json, full.safetensors                the whole model trained on reference.json's data: losses, gradient norms,
                                               every gradient, every weight after training
    loraplus.json, loraplus.safetensors        the adapter trained on the same data by PEFT's LoRA+ optimizer
    additional.json, additional.safetensors    of llama: the adapter trained on the same data beside modules_to_save
    neftune.json, neftune.safetensors          of qwen3: loss and adapter gradients with transformers' NEFTune, whose
                                               uniform numbers are those of lora
and OUT/rotary.json frequencies and magnitude of rotary settings that no family has

DATA/adapters belongs to the model golden/llama and holds
    <name>/                                    an adapter that plain LoRA can express, as PEFT saved it
    logits.safetensors                         what PEFT computes with each of them, after the last three tokens
    refused.json                               configs that ask for more, as PEFT saved them, by the field to blame
    reference.json                             versions, and the tokens

DATA/heads belongs to the model golden/qwen3, whose head is tied, and holds
    <name>/                                    an adapter whose modules_to_save are the head or the embedding alone
    losses.json                                versions, the data, and the loss beside each of them, which is that of the
                                               folder that PEFT merges and of transformers with it

DATA/windows.json has, for qwen2 and qwen3, the loss of golden/<family> on its reference.json's evaluation data where
fields of config.json give some layers a sliding window, and without.

DATA/no_rope.json has, for each family whose config.json can't tell transformers so, the loss of golden/<family> on its
reference.json's evaluation data with some layers without rotary embedding, and the lines of Python that switch it off.

The reference is computed in float64 throughout, one sequence at a time and so without padding. Where transformers
forces float32 in between (norms, rotary tables), the same formula runs in float64; the rotary frequencies keep the
float32 values that transformers gives them.
"""
import argparse
import json
import math
import os
import platform
import shutil
import sys
import tempfile

import peft
import safetensors
import torch
import transformers
from peft import LoraConfig, PeftConfig, PeftModel, get_peft_model
from peft.tuners.lora import config as kinds
from peft.optimizers import create_loraplus_optimizer
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM
from transformers.integrations.neftune import activate_neftune

ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
SIZES = dict(vocab_size=256, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=128, initializer_range=0.15, bos_token_id=None,
             eos_token_id=0, pad_token_id=0)

FAMILIES = {
    "qwen2": dict(
        max_grad_norm=2.0, full_max_grad_norm=4.5,
        config=dict(tie_word_embeddings=False,
                    rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0,
                                         original_max_position_embeddings=32)),
        adapter=dict(r=4, lora_alpha=8, target_modules=ALL)),
    "qwen3": dict(
        max_grad_norm=3.2, full_max_grad_norm=4.3,
        config=dict(tie_word_embeddings=True, head_dim=24, rope_parameters=dict(rope_type="default", rope_theta=1e6)),
        stored=torch.bfloat16,
        adapter=dict(r=3, lora_alpha=6, use_rslora=True, target_modules=ALL)),
    "llama": dict(
        max_grad_norm=1.8, full_max_grad_norm=4.4,
        config=dict(tie_word_embeddings=False, attention_bias=True, mlp_bias=True, rms_norm_eps=1e-5,
                    rope_parameters=dict(rope_type="llama3", rope_theta=500.0, factor=8.0, low_freq_factor=1.0,
                                         high_freq_factor=4.0, original_max_position_embeddings=64)),
        old_spelling=True,
        adapter=dict(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj", "down_proj"])),
    "smollm3": dict(
        max_grad_norm=4.2, full_max_grad_norm=4.8,
        config=dict(tie_word_embeddings=True, no_rope_layers=[1, 0, 1],
                    rope_parameters=dict(rope_type="linear", rope_theta=5000.0, factor=2.5)),
        adapter=dict(r=4, lora_alpha=12, target_modules=["q_proj", "k_proj", "o_proj", "up_proj", "down_proj"],
                     rank_pattern={"q_proj": 2, "layers.1.mlp.up_proj": 6}, alpha_pattern={"o_proj": 32.0})),
    "mistral": dict(
        max_grad_norm=2.3, full_max_grad_norm=4.0,
        config=dict(tie_word_embeddings=False, head_dim=12, sliding_window=6, rms_norm_eps=1e-5,
                    rope_parameters=dict(rope_type="default", rope_theta=1e4)),
        adapter=dict(r=4, lora_alpha=8, target_modules=ALL)),
    "phi3": dict(
        max_grad_norm=1.6, full_max_grad_norm=3.0,
        config=dict(vocab_size=64, hidden_size=18, intermediate_size=16, num_hidden_layers=2, num_attention_heads=3,
                    num_key_value_heads=1, tie_word_embeddings=False, sliding_window=9, max_position_embeddings=4096,
                    original_max_position_embeddings=1024,
                    rope_parameters=dict(rope_type="longrope", rope_theta=1e4, short_factor=[1.0, 1.25, 1.5],
                                         long_factor=[1.0, 4.0, 8.0])),
        adapter=dict(r=3, lora_alpha=6, target_modules=["qkv_proj", "o_proj", "gate_up_proj", "down_proj"])),
    "gemma2": dict(
        max_grad_norm=1.55, full_max_grad_norm=3.4,
        config=dict(vocab_size=64, hidden_size=21, intermediate_size=16, num_hidden_layers=2, num_attention_heads=3,
                    num_key_value_heads=1, head_dim=8, tie_word_embeddings=True, sliding_window=6,
                    query_pre_attn_scalar=1, attn_logit_softcapping=0.75, final_logit_softcapping=1.5,
                    rope_parameters=dict(rope_type="default", rope_theta=1e4)),
        adapter=dict(r=3, lora_alpha=6, target_modules=ALL)),
    "gemma3_text": dict(
        max_grad_norm=2.6, full_max_grad_norm=5.6,
        config=dict(vocab_size=64, hidden_size=20, intermediate_size=16, num_hidden_layers=3, num_attention_heads=4,
                    num_key_value_heads=2, head_dim=6, tie_word_embeddings=True, sliding_window=5,
                    query_pre_attn_scalar=9,
                    layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                    rope_parameters=dict(full_attention=dict(rope_type="linear", rope_theta=2e4, factor=2.0),
                                         sliding_attention=dict(rope_type="default", rope_theta=300.0))),
        adapter=dict(r=3, lora_alpha=6, target_modules=ALL)),
}

TRAINING = dict(steps=10, accumulation=2, micro_batch=2, learning_rate=0.01, warmup_steps=3, schedule="linear", weight_decay=0.1, beta1=0.9, beta2=0.999, epsilon=1e-8)


def write_model(folder, family, rule):
    config = transformers.AutoConfig.for_model(family, **dict(SIZES, **rule["config"]))
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.copy_(("gemma" not in family) + 0.3 * torch.randn_like(parameter))
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


def adapted(base, config):
    """The base with a new adapter, no matrix of which is zero."""
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    model = get_peft_model(model, LoraConfig(**dict(dict(task_type="CAUSAL_LM", lora_dropout=0.0), **config)))
    if config.get("init_lora_weights") == "eva":
        ids = torch.randint(1, SIZES["vocab_size"], (4, 16))
        peft.initialize_lora_eva_weights(model, [dict(input_ids=ids, attention_mask=torch.ones_like(ids))] * 4,
                                         show_progress_bar=False)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name and not parameter.any():
                parameter.copy_(0.1 * torch.randn_like(parameter))
            if "modules_to_save" in name:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def tidy(folder):
    """Takes out of an adapter folder what is not the same each time."""
    if os.path.exists(os.path.join(folder, "README.md")):
        os.remove(os.path.join(folder, "README.md"))
    path = os.path.join(folder, "adapter_config.json")
    values = json.load(open(path))
    values["base_model_name_or_path"] = None
    for name in ("target_modules", "exclude_modules"):
        if isinstance(values.get(name), list):
            values[name] = sorted(values[name])
    write_json(path, values)
    return values


def write_adapter(folder, rule):
    adapted(folder, rule["adapter"]).save_pretrained(os.path.join(folder, "adapter"))
    tidy(os.path.join(folder, "adapter"))


def norm_forward(self, x):
    return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)


def gemma_norm_forward(self, x):
    return (1 + self.weight) * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)


def capped_attention(module, query, key, value, mask, scaling, softcap=None, **_):
    """Gemma 2's eager attention, whose softmax transformers forms in float32."""
    repeats = module.num_key_value_groups
    key, value = key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1)
    scores = query @ key.transpose(2, 3) * scaling
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    shares = torch.softmax(scores + mask, dim=-1)
    return (shares @ value).transpose(1, 2).contiguous(), shares


def rotary_forward(self, x, position_ids, layer_type=None):
    of = f"{layer_type}_" if layer_type else ""  # of Gemma 3
    angles = position_ids[..., None].double() * getattr(self, of + "inv_freq").double()
    both = torch.cat((angles, angles), dim=-1)
    scaling = getattr(self, of + "attention_scaling")
    return both.cos() * scaling, both.sin() * scaling


def frequencies_of(module):
    """Of a rotary embedding; of Gemma 3's those of layers without a window, then those of the others."""
    names = ("inv_freq", "full_attention_inv_freq", "sliding_attention_inv_freq")
    return [getattr(module, name).clone() for name in names if hasattr(module, name)]


def load(folder, adapter=None, modules_to_save=None):
    """The model, with an adapter if there is one, as their files say, in float64; modules_to_save begin as the base's."""
    family = transformers.AutoConfig.from_pretrained(folder).model_type
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32,
                                                 attn_implementation="eager" if family == "gemma2" else "sdpa")
    if family == "gemma2":
        transformers.models.gemma2.modeling_gemma2.eager_attention_forward = capped_attention
    if adapter is not None:
        if modules_to_save is None:
            model = PeftModel.from_pretrained(model, adapter, is_trainable=True)
        else:
            config = PeftConfig.from_pretrained(adapter)
            config.modules_to_save, config.inference_mode = modules_to_save, False
            model = get_peft_model(model, config)
            stored = load_file(os.path.join(adapter, "adapter_model.safetensors"))
            with torch.no_grad():
                for name, parameter in model.named_parameters():
                    if "lora_" in name:
                        parameter.copy_(stored[name.replace(".default", "")])
    frequencies = None
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = (gemma_norm_forward if "Gemma" in type(module).__name__ else norm_forward).__get__(module)
        if type(module).__name__.endswith("RotaryEmbedding"):
            frequencies = frequencies_of(module)
            module.forward = rotary_forward.__get__(module)
    model.double()
    for module in model.modules():
        if type(module).__name__.endswith("RotaryEmbedding"):
            assert all(torch.equal(now.float(), then) for now, then in zip(frequencies_of(module), frequencies))
        if hasattr(module, "scalar_embed_scale"):
            module.embed_scale.fill_(module.scalar_embed_scale)
    model.config.use_cache = False
    return model, frequencies


def sequences(count, generator, vocabulary):
    """Ragged sequences with a prompt that isn't labeled; some have one label, or none."""
    result = []
    for i in range(count):
        length = [2, 23, 9, 14, 5, 17, 11, 7][i % 8] + int(torch.randint(0, 4, (1,), generator=generator)) * (i >= 8)
        ids = torch.randint(1, vocabulary, (length,), generator=generator).tolist()
        prompt = [1, 6, 0, length, 4, length - 1, 3, 2][i % 8]  # 0: all labeled; length: none
        result.append(dict(input_ids=ids, labels=[-100] * prompt + ids[prompt:]))
    return result


def labeled(batch):
    return sum(label != -100 for sequence in batch for label in sequence["labels"][1:])


def loss_sum(model, sequence):
    """-log p over the labeled tokens of one sequence, and its logits (S, V)."""
    ids = torch.tensor([sequence["input_ids"]])
    logits = model(input_ids=ids).logits[0]
    assert logits.dtype == torch.float64
    targets = torch.tensor(sequence["labels"][1:], dtype=torch.long)
    return torch.nn.functional.cross_entropy(logits[:-1], targets, ignore_index=-100, reduction="sum"), logits


def perplexity(model, data, window):
    """exp of the mean negative log likelihood over all labeled tokens, longer sequences in windows of `window` tokens,
    each half a window on, where a token is scored in the first window that holds it. After transformers' page
    "Perplexity of fixed-length models", with labels."""
    total, count = 0.0, 0
    for sequence in data:
        ids, labels, scored = sequence["input_ids"], sequence["labels"], 0
        for begin in range(0, len(ids), max(1, window // 2)):
            end = min(begin + window, len(ids))
            fresh = [-100] * (max(scored, begin) - begin) + labels[max(scored, begin):end]
            if labeled([dict(labels=fresh)]) > 0:
                part = dict(input_ids=ids[begin:end], labels=fresh)
                total += loss_sum(model, part)[0].item()
                count += labeled([part])
            scored = end
            if end == len(ids):
                break
    return dict(window=window, labeled=count, loss=total / count, perplexity=math.exp(total / count))


def adapter_tensors(model, of):
    """By the names of an adapter file."""
    return {name.replace(".modules_to_save", "").replace(".default", ""): of(parameter).detach().clone().contiguous()
            for name, parameter in model.named_parameters() if parameter.requires_grad}


def train(model, data, t, optimizer=None):
    params = [p for p in model.parameters() if p.requires_grad]
    # As transformers' Trainer groups them: biases and the weights of norms do not decay.
    groups = [dict(params=[p for p in params if p.dim() > 1]),
              dict(params=[p for p in params if p.dim() == 1], weight_decay=0.0)]
    optimizer = optimizer or torch.optim.AdamW(
        [g for g in groups if g["params"]], lr=t["learning_rate"], betas=(t["beta1"], t["beta2"]), eps=t["epsilon"],
        weight_decay=t["weight_decay"])
    schedule = transformers.get_scheduler(t["schedule"], optimizer, t["warmup_steps"], t["steps"])
    log, at = [], 0
    for _ in range(t["steps"]):
        batch = data[at:at + t["accumulation"] * t["micro_batch"]]
        at += len(batch)
        total = 0.0
        for sequence in batch:
            loss = loss_sum(model, sequence)[0] / labeled(batch)
            loss.backward()
            total += loss.item()
        norm = torch.nn.utils.clip_grad_norm_(params, t["max_grad_norm"]).item()
        log.append(dict(loss=total, grad_norm=norm, learning_rate=schedule.get_last_lr()[0], labeled=labeled(batch)))
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    assert any(s["grad_norm"] > t["max_grad_norm"] for s in log), "clipping never acts"
    assert any(s["grad_norm"] < t["max_grad_norm"] for s in log), "clipping always acts"
    return log


def versions():
    return dict(python=platform.python_version(), torch=torch.__version__, transformers=transformers.__version__,
                peft=peft.__version__, safetensors=safetensors.__version__)


def write_json(path, values):
    with open(path, "w") as file:
        json.dump(values, file, indent=1)
        file.write("\n")


def make(folder, family, rule, seed):
    torch.manual_seed(seed)
    shutil.rmtree(folder, ignore_errors=True)
    write_model(folder, family, rule)
    write_adapter(folder, rule)
    model, frequencies = load(folder, os.path.join(folder, "adapter"))
    generator = torch.Generator().manual_seed(seed)
    vocabulary = model.config.vocab_size
    evaluation = sequences(5, generator, vocabulary)
    data = sequences(TRAINING["steps"] * TRAINING["accumulation"] * TRAINING["micro_batch"], generator, vocabulary)

    tensors, loss, logits = {}, 0.0, []
    for sequence in evaluation:
        part, rows = loss_sum(model, sequence)
        (part / labeled(evaluation)).backward()
        loss += part.item() / labeled(evaluation)
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
        final_loss = sum(loss_sum(model, sequence)[0].item() for sequence in evaluation) / labeled(evaluation)
    save_file(tensors, os.path.join(folder, "reference.safetensors"))
    stored = load_file(os.path.join(folder, "adapter", "adapter_model.safetensors"))
    assert set(stored) == set(start) and all(torch.equal(stored[n].double(), start[n]) for n in start)
    write_json(os.path.join(folder, "reference.json"), dict(
        versions=versions(), evaluation=evaluation, loss=loss, final_loss=final_loss, labeled=labeled(evaluation),
        inverse_frequencies=frequencies[0].tolist(), training=training, data=data, steps=steps,
        **({"window_inverse_frequencies": frequencies[1].tolist()} if len(frequencies) > 1 else {})))
    update = math.sqrt(sum((final[n] - start[n]).pow(2).sum().item() for n in final))
    norm = math.sqrt(sum(value.pow(2).sum().item() for value in start.values()))
    print(f"{family}: loss {loss:.4f} -> {final_loss:.4f}, gradient norms "
          f"{[round(s['grad_norm'], 3) for s in steps]}, adapter norm {norm:.3f}, update {update:.3f}")


def make_long(folder, seed):
    model, _ = load(folder, os.path.join(folder, "adapter"))
    generator = torch.Generator().manual_seed(1000 + seed)
    ids = torch.randint(1, model.config.vocab_size, (700,), generator=generator).tolist()
    sequence = dict(input_ids=ids, labels=[-100] * 100 + ids[100:])
    loss, logits = loss_sum(model, sequence)
    loss = loss / labeled([sequence])
    loss.backward()
    rows = [0, 199, 200, 255, 256, 511, 512, 699]
    tensors = {"gradient." + n: value.float() for n, value in adapter_tensors(model, lambda p: p.grad).items()}
    save_file(dict(tensors, logits=logits.detach()[rows].float().contiguous()),
              os.path.join(folder, "long.safetensors"))
    write_json(os.path.join(folder, "long.json"), dict(
        versions=versions(), evaluation=[sequence], labeled=labeled([sequence]), loss=loss.item(), rows=rows))


def make_loraplus(folder):
    """The adapter's training once more, with PEFT's LoRA+ optimizer. Its two rates of decay are one here."""
    reference = json.load(open(os.path.join(folder, "reference.json")))
    model, _ = load(folder, os.path.join(folder, "adapter"))
    t = dict(reference["training"], loraplus_lr_ratio=8.0)
    optimizer = create_loraplus_optimizer(
        model, torch.optim.AdamW, lr=t["learning_rate"], loraplus_lr_ratio=t["loraplus_lr_ratio"],
        loraplus_weight_decay=t["weight_decay"], betas=(t["beta1"], t["beta2"]), eps=t["epsilon"],
        weight_decay=t["weight_decay"])
    steps = train(model, reference["data"], t, optimizer)
    save_file({"final." + n: v for n, v in adapter_tensors(model, lambda p: p).items()},
              os.path.join(folder, "loraplus.safetensors"))
    evaluation = reference["evaluation"]
    with torch.no_grad():
        final_loss = sum(loss_sum(model, sequence)[0].item() for sequence in evaluation) / labeled(evaluation)
    write_json(os.path.join(folder, "loraplus.json"), dict(
        versions=versions(), evaluation=evaluation, final_loss=final_loss, training=t, data=reference["data"],
        steps=steps))


def make_additional(folder):
    """The adapter's training once more, with embedding, head and norms trained in full beside it."""
    reference = json.load(open(os.path.join(folder, "reference.json")))
    model, _ = load(folder, os.path.join(folder, "adapter"), ["embed_tokens", "lm_head", "norm"])
    t = dict(reference["training"], learning_rate=0.005, max_grad_norm=3.0)
    steps = train(model, reference["data"], t)
    final = {n if "lora_" in n else n.removeprefix("base_model.model."): v
             for n, v in adapter_tensors(model, lambda p: p).items()}
    save_file({"final." + n: v.float() for n, v in final.items()}, os.path.join(folder, "additional.safetensors"))
    evaluation = reference["evaluation"]
    with torch.no_grad():
        final_loss = sum(loss_sum(model, sequence)[0].item() for sequence in evaluation) / labeled(evaluation)
    write_json(os.path.join(folder, "additional.json"), dict(
        versions=versions(), evaluation=evaluation, final_loss=final_loss, training=t, data=reference["data"],
        steps=steps))


def sequences_in_common(count, generator, vocabulary):
    """Records that begin alike: 16 tokens that all have, then 16 of one of two documents; the answer is labeled."""
    draw = lambda length: torch.randint(1, vocabulary, (length,), generator=generator).tolist()
    system, documents = draw(16), [draw(16), draw(16)]
    result = []
    for i in range(count):
        question, answer = draw(1 + i % 4), draw(1 + i % 3)
        prompt = system + documents[i % 3 // 2] + question
        result.append(dict(input_ids=prompt + answer, labels=[-100] * len(prompt) + answer))
    return result


def make_shared(folder, seed):
    """The adapter's training once more, on records that begin alike, each computed whole."""
    reference = json.load(open(os.path.join(folder, "reference.json")))
    model, _ = load(folder, os.path.join(folder, "adapter"))
    generator = torch.Generator().manual_seed(2000 + seed)
    t = dict(reference["training"], micro_batch=3)
    vocabulary = model.config.vocab_size
    data = sequences_in_common(t["steps"] * t["accumulation"] * t["micro_batch"], generator, vocabulary)
    evaluation = sequences_in_common(4, generator, vocabulary)
    steps = train(model, data, t)
    save_file({"final." + n: v for n, v in adapter_tensors(model, lambda p: p).items()},
              os.path.join(folder, "shared.safetensors"))
    with torch.no_grad():
        final_loss = sum(loss_sum(model, sequence)[0].item() for sequence in evaluation) / labeled(evaluation)
    write_json(os.path.join(folder, "shared.json"), dict(
        versions=versions(), evaluation=evaluation, final_loss=final_loss, training=t, data=data, steps=steps))


U64 = (1 << 64) - 1


def mix_key(seed, *words):
    """As in lora/core/random.hpp."""
    def finalize(z):
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & U64
        z = (z ^ z >> 27) * 0x94D049BB133111EB & U64
        return z ^ z >> 31

    state = finalize(seed + 0x9E3779B97F4A7C15 & U64)
    for word in words:
        state = finalize(state * 0x9E3779B97F4A7C15 + word + 0x632BE59BD9B4E019 & U64)
    return state


def philox(c0, c1, c2, c3, key):
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = p1 >> 32 ^ c1 ^ k0, p1 & 0xFFFFFFFF, p0 >> 32 ^ c3 ^ k1, p0 & 0xFFFFFFFF
        k0, k1 = k0 + 0x9E3779B9 & 0xFFFFFFFF, k1 + 0xBB67AE85 & 0xFFFFFFFF
    return c0, c1, c2, c3


def make_neftune(folder):
    """Loss and gradients with transformers' own hook, which draws from here."""
    reference = json.load(open(os.path.join(folder, "reference.json")))
    evaluation, random_key, alpha = reference["evaluation"], 12345, 5.0
    model, _ = load(folder, os.path.join(folder, "adapter"))
    model.train()
    activate_neftune(model, alpha)
    key = mix_key(random_key, 0x6E6F697365)
    drawn = torch.Tensor.uniform_
    loss = 0.0
    for place, sequence in enumerate(evaluation):
        def uniform(self, low, high):
            assert self.shape[0] == 1 and low == -high
            for position in range(self.shape[1]):
                words = [w for block in range(self.shape[2] // 4) for w in philox(block, position, place, 0, key)]
                self[0, position] = torch.tensor([(w >> 8) * 2.0 ** -23 - 1 for w in words], dtype=self.dtype)
            return self.mul_(high)

        torch.Tensor.uniform_ = uniform
        try:
            part = loss_sum(model, sequence)[0] / labeled(evaluation)
            part.backward()
        finally:
            torch.Tensor.uniform_ = drawn
        loss += part.item()
    assert abs(loss - reference["loss"]) > 1e-3, "there was no noise"
    tensors = {"gradient." + n: v.float() for n, v in adapter_tensors(model, lambda p: p.grad).items()}
    save_file(tensors, os.path.join(folder, "neftune.safetensors"))
    write_json(os.path.join(folder, "neftune.json"), dict(
        versions=versions(), evaluation=evaluation, loss=loss, labeled=labeled(evaluation),
        neftune_noise_alpha=alpha, random_key=random_key))


def make_full(folder, rule):
    """The whole model's training, on the data of reference.json."""
    reference = json.load(open(os.path.join(folder, "reference.json")))
    model, _ = load(folder)
    evaluation, tensors, loss = reference["evaluation"], {}, 0.0
    for sequence in evaluation:
        part = loss_sum(model, sequence)[0] / labeled(evaluation)
        part.backward()
        loss += part.item()
    tensors.update({"gradient." + n: p.grad.float().contiguous() for n, p in model.named_parameters()})
    model.zero_grad()
    training = dict(reference["training"], learning_rate=0.002, max_grad_norm=rule["full_max_grad_norm"])
    steps = train(model, reference["data"], training)
    tensors.update({"final." + n: p.detach().float().contiguous() for n, p in model.named_parameters()})
    with torch.no_grad():
        final_loss = sum(loss_sum(model, sequence)[0].item() for sequence in evaluation) / labeled(evaluation)
    save_file(tensors, os.path.join(folder, "full.safetensors"))
    write_json(os.path.join(folder, "full.json"), dict(
        versions=versions(), evaluation=evaluation, loss=loss, final_loss=final_loss, labeled=labeled(evaluation),
        training=training, data=reference["data"], steps=steps))
    print(f"{os.path.basename(folder)}, whole: loss {loss:.4f} -> {final_loss:.4f}, gradient norms "
          f"{[round(s['grad_norm'], 3) for s in steps]}")


YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=8.0, original_max_position_embeddings=64)
ROTARY = [
    dict(rope_type="default", rope_theta=5e5),
    dict(rope_type="linear", rope_theta=1e4, factor=3.0),
    dict(rope_type="llama3", rope_theta=5e5, factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0,
         original_max_position_embeddings=64),
    YARN,
    dict(YARN, truncate=False),
    dict(YARN, beta_fast=16.0, beta_slow=2.0),
    dict(YARN, attention_factor=1.25),
    dict(YARN, mscale=0.9, mscale_all_dim=0.6),
    dict(YARN, mscale=0.7),
]


def make_rotary(path):
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
    cases = []
    for settings in ROTARY:
        config = transformers.AutoConfig.for_model("llama", **dict(SIZES, head_dim=48), rope_parameters=dict(settings))
        module = LlamaRotaryEmbedding(config)
        cases.append(dict(rope_parameters=settings, head_dim=48, inverse_frequencies=module.inv_freq.tolist(),
                          magnitude=float(module.attention_scaling)))
    write_json(path, dict(versions=versions(), cases=cases))


# Adapters that are plain LoRA once they are saved. "stored": the type of the file; "converted": saved as what it adds to
# the weights that the base had before its initialization changed them.
PLAIN = {
    "all": dict(target_modules=ALL),
    "subset": dict(r=3, lora_alpha=5, target_modules=["q_proj", "v_proj"]),
    "regex": dict(target_modules=r".*layers\.[12]\.(self_attn\.(q|o)_proj|mlp\.down_proj)"),
    "all_linear": dict(target_modules="all-linear", lora_dropout=0.1),
    "rslora": dict(r=4, lora_alpha=6, use_rslora=True, target_modules=["k_proj", "up_proj"]),
    "patterns": dict(target_modules=["q_proj", "o_proj", "up_proj"],
                     rank_pattern={"q_proj": 1, "layers.1.mlp.up_proj": 3},
                     alpha_pattern={"model.layers.2.self_attn.q_proj": 7, "o_proj": 3}),
    "layers": dict(target_modules=["v_proj", "gate_proj"], layers_to_transform=[0, 2]),
    "layers_pattern": dict(target_modules=["v_proj", "gate_proj"], layers_to_transform=1, layers_pattern="layers"),
    "named_in_full": dict(target_modules=["v_proj", "model.layers.1.self_attn.q_proj"], layers_to_transform=[0]),
    "excluded": dict(target_modules="all-linear", exclude_modules=["o_proj", "layers.1.mlp.up_proj"]),
    "excluded_regex": dict(target_modules=["q_proj", "down_proj"], exclude_modules=r".*\.[02]\.mlp\..*"),
    "fan_in_fan_out": dict(target_modules=["q_proj"], fan_in_fan_out=True),
    "gaussian": dict(target_modules=["k_proj"], init_lora_weights="gaussian"),
    "orthogonal": dict(target_modules=["o_proj"], init_lora_weights="orthogonal"),
    "mica": dict(target_modules=["o_proj"], init_lora_weights="mica"),
    "eva": dict(target_modules=["q_proj", "down_proj"], init_lora_weights="eva",
                eva_config=kinds.EvaConfig(rho=2.0, adjust_scaling_factors=True)),
    "pissa_converted": dict(target_modules=["v_proj"], init_lora_weights="pissa", converted=True),
    "olora_converted": dict(target_modules=["down_proj"], init_lora_weights="olora", converted=True),
    "bfloat16": dict(target_modules=["q_proj", "up_proj"], stored=torch.bfloat16),
    "float16": dict(target_modules=["q_proj", "up_proj"], stored=torch.float16),
    "modules_to_save": dict(target_modules=["q_proj", "down_proj"], modules_to_save=["lm_head", "embed_tokens", "norm"]),
}

# Field to blame → settings that plain LoRA can't express.
REFUSED = {
    "use_dora": [dict(use_dora=True)],
    "bias": [dict(bias="all"), dict(bias="lora_only")],
    "modules_to_save": [dict(modules_to_save=["o_proj"])],
    "init_lora_weights": [dict(init_lora_weights=kind) for kind in ("pissa", "pissa_niter_4", "olora")] + [
        dict(init_lora_weights="corda", corda_config=kinds.CordaConfig()),
        dict(init_lora_weights="lora_ga", lora_ga_config=kinds.LoraGAConfig()),
        dict(later=dict(init_lora_weights="loftq", loftq_config=dict(loftq_bits=4, loftq_iter=1)))],  # without scipy
    "corda_config": [dict(corda_config=kinds.CordaConfig())],
    "use_qalora": [dict(use_qalora=True)],
    "lora_bias": [dict(lora_bias=True)],
    "fan_in_fan_out": [dict(fan_in_fan_out=True)],
    "trainable_token_indices": [dict(trainable_token_indices=[1, 2])],
    "target_parameters": [dict(target_parameters=["mlp.experts.down_proj"])],
    "layer_replication": [dict(layer_replication=[(0, 2), (1, 3)])],
    "megatron_config": [dict(megatron_config=dict(hidden_size=32))],
    "alora_invocation_tokens": [dict(alora_invocation_tokens=[5, 6])],
    "arrow_config": [dict(arrow_config=kinds.ArrowConfig())],
    "use_bdlora": [dict(use_bdlora=kinds.BdLoraConfig())],
    "kasa_config": [dict(kasa_config=kinds.KasaConfig())],
    "velora_config": [dict(velora_config=kinds.VeloraConfig())],
    "monteclora_config": [dict(monteclora_config=kinds.MontecloraConfig())],
    "ensure_weight_tying": [dict(ensure_weight_tying=True)],
    "layers_pattern": [dict(layers_to_transform=[1], layers_pattern=["blocks", "layers"])],
    "rank_pattern": [dict(rank_pattern={r"layers\.[01]\..*": 4})],
    "alpha_pattern": [dict(alpha_pattern={"^model.layers.0.self_attn.q_proj": 4})],
    "target_modules": [dict(target_modules=["q_proj", "lm_head"]), dict(target_modules=["embed_tokens"])],
    "peft_type": [peft.LoHaConfig(target_modules=["q_proj"]), peft.IA3Config(target_modules=["q_proj"],
                                                                            feedforward_modules=[])],
}


def write_plain(folder, base, settings):
    settings = dict(settings)
    stored, converted = settings.pop("stored", None), settings.pop("converted", False)
    model = adapted(base, dict(dict(r=2, lora_alpha=4), **settings))
    if not converted:
        model.save_pretrained(folder)
    else:
        with tempfile.TemporaryDirectory() as start:
            kind = model.peft_config["default"].init_lora_weights
            model.peft_config["default"].init_lora_weights = True
            model.save_pretrained(start)
            model.peft_config["default"].init_lora_weights = kind
            with torch.no_grad():
                for name, parameter in model.named_parameters():
                    if "lora_" in name:
                        parameter.add_(0.05 * torch.randn_like(parameter))
            model.save_pretrained(folder, path_initial_model_for_weight_conversion=start)
    path = os.path.join(folder, "adapter_model.safetensors")
    tensors = load_file(path)
    if stored is not None:
        save_file({name: value.to(stored) for name, value in tensors.items()}, path, metadata={"format": "pt"})
    values = tidy(folder)
    print(f"{os.path.basename(folder)}: {len(tensors)} tensors, targets {values['target_modules']}")


def make_adapters(out, base):
    shutil.rmtree(out, ignore_errors=True)
    generator = torch.Generator().manual_seed(7)
    ids = torch.randint(1, SIZES["vocab_size"], (10,), generator=generator)
    logits = {}
    for seed, (name, settings) in enumerate(PLAIN.items()):
        torch.manual_seed(100 + seed)
        write_plain(os.path.join(out, name), base, settings)
        with torch.no_grad():
            model = load(base, os.path.join(out, name))[0].eval()
            logits[name] = model(input_ids=ids[None]).logits[0, -3:].float().contiguous()
    for name, values in logits.items():  # nothing may be left out without being seen
        assert all(name == other or (values - logits[other]).norm() > 1e-3 for other in logits), name
    save_file(logits, os.path.join(out, "logits.safetensors"))

    refused = []
    for field, choices in REFUSED.items():
        for settings in choices:
            config = settings
            if isinstance(settings, dict):
                settings = dict(dict(task_type="CAUSAL_LM", r=2, lora_alpha=4, target_modules=["q_proj"]), **settings)
                later = settings.pop("later", {})
                config = LoraConfig(**settings)
                for name, value in later.items():
                    setattr(config, name, value)
            with tempfile.TemporaryDirectory() as folder:
                config.save_pretrained(folder)
                refused.append(dict(field=field, config=tidy(folder)))
    write_json(os.path.join(out, "refused.json"), refused)
    write_json(os.path.join(out, "reference.json"), dict(versions=versions(), tokens=ids.tolist()))


def mean_loss(model, data):
    with torch.no_grad():
        return sum(loss_sum(model, sequence)[0].item() for sequence in data) / labeled(data)


def make_heads(out, base):
    """Adapters that part a tied head from the embedding, and what PEFT, and transformers with what it merges, make of
    them."""
    torch.manual_seed(11)
    shutil.rmtree(out, ignore_errors=True)
    data = json.load(open(os.path.join(base, "reference.json")))["evaluation"]
    losses = {}
    for name in ("lm_head", "embed_tokens"):
        folder = os.path.join(out, name)
        model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
        model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", r=2, lora_alpha=4, target_modules=["q_proj"],
                                                 modules_to_save=[name]))
        with torch.no_grad():
            for parameter in (p for p in model.parameters() if p.requires_grad):
                parameter.add_(0.1 * torch.randn_like(parameter))
        model.save_pretrained(folder)
        tidy(folder)
        losses[name] = mean_loss(load(base, folder)[0], data)
        with tempfile.TemporaryDirectory() as merged:
            plain = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32), folder)
            plain.merge_and_unload().save_pretrained(merged)
            config = os.path.join(merged, "config.json")
            values = json.load(open(config))
            assert not values["tie_word_embeddings"]
            stored = load_file(os.path.join(merged, "model.safetensors"))
            assert not torch.equal(stored["lm_head.weight"], stored["model.embed_tokens.weight"])
            assert abs(mean_loss(load(merged)[0], data) - losses[name]) < 1e-6 * losses[name]
            write_json(config, dict(values, tie_word_embeddings=True))  # as earlier versions of PEFT left it
            assert abs(mean_loss(load(merged)[0], data) - losses[name]) < 1e-6 * losses[name]
    write_json(os.path.join(out, "losses.json"), dict(versions=versions(), data=data, losses=losses,
                                                      tied=mean_loss(load(base)[0], data)))


# As model/export/rotary_note.hpp writes them into a README.md.
WITHOUT_ROTATION = """import torch

def without_rotation(module, args, kwargs):
    cos, sin = kwargs["position_embeddings"]
    return args, {**kwargs, "position_embeddings": (torch.ones_like(cos), torch.zeros_like(sin))}

for layer, rotates in zip(model.model.layers, model.config.no_rope_layers):
    if not rotates:
        layer.self_attn.register_forward_pre_hook(without_rotation, with_kwargs=True)
"""


def make_no_rope(path, golden):
    losses = {}
    for family, layers in (("qwen2", [1, 0, 0]), ("qwen3", [0, 1, 1]), ("llama", [0, 1, 0])):
        base = os.path.join(golden, family)
        data = json.load(open(os.path.join(base, "reference.json")))["evaluation"]
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(os.path.join(base, "model.safetensors"), folder)
            write_json(os.path.join(folder, "config.json"),
                       dict(json.load(open(os.path.join(base, "config.json"))), no_rope_layers=layers))
            model = load(folder)[0]
        rotated = mean_loss(model, data)
        exec(WITHOUT_ROTATION, dict(model=model))
        losses[family] = dict(no_rope_layers=layers, loss=mean_loss(model, data), with_all=rotated)
    write_json(path, dict(versions=versions(), lines=WITHOUT_ROTATION, families=losses))


WINDOWS = {
    "qwen2": dict(use_sliding_window=True, sliding_window=4, max_window_layers=1, layer_types=None),
    "qwen3": dict(use_sliding_window=True, sliding_window=3,
                  layer_types=["sliding_attention", "full_attention", "sliding_attention"]),
}


def make_windows(path, golden):
    losses = {}
    for family, fields in WINDOWS.items():
        base = os.path.join(golden, family)
        data = json.load(open(os.path.join(base, "reference.json")))["evaluation"]
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(os.path.join(base, "model.safetensors"), folder)
            write_json(os.path.join(folder, "config.json"),
                       dict(json.load(open(os.path.join(base, "config.json"))), **fields))
            losses[family] = dict(fields=fields, loss=mean_loss(load(folder)[0], data),
                                  without=mean_loss(load(base)[0], data))
    write_json(path, dict(versions=versions(), families=losses))


def check_adapter(folder, base):
    """Loads an adapter that lora saved, and compares every value."""
    base = base or json.load(open(os.path.join(folder, "adapter_config.json")))["base_model_name_or_path"]
    where = dict(pretrained_model_name_or_path=base)
    if base.endswith(".gguf"):
        where = dict(pretrained_model_name_or_path=os.path.dirname(base) or ".", gguf_file=os.path.basename(base))
    config = os.path.join(folder, "config.json")
    if os.path.exists(config):
        where["config"] = transformers.AutoConfig.from_pretrained(config)
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(dtype=torch.float32, **where), folder,
                                      is_trainable=True)
    stored = load_file(os.path.join(folder, "adapter_model.safetensors"))
    loaded = adapter_tensors(model, lambda p: p)
    differing = sorted(name for name in set(stored) ^ set(loaded))
    differing += [name for name in set(stored) & set(loaded) if not torch.equal(stored[name].float(), loaded[name])]
    if differing:
        sys.exit(f"{folder}: PEFT does not load {', '.join(differing[:5])}")
    print(f"{folder}: PEFT {peft.__version__} loads all {len(stored)} tensors, every value the same")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=os.path.join(os.path.dirname(__file__), "..", "fixtures"))
    parser.add_argument("--only", choices=["golden", "full", "loraplus", "additional", "shared", "neftune", "adapters",
                                           "heads", "no_rope", "windows"])
    parser.add_argument("--family", choices=list(FAMILIES), help="of golden, full, loraplus and shared: this one alone")
    parser.add_argument("--check-adapter", metavar="FOLDER")
    parser.add_argument("--base", metavar="MODEL")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.check_adapter:
        return check_adapter(options.check_adapter, options.base)
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, peft {peft.__version__}")
    chosen = {family: rule for family, rule in FAMILIES.items() if options.family in (None, family)}
    seeds = {family: seed for seed, family in enumerate(FAMILIES)}
    if options.only in (None, "golden"):
        for family, rule in chosen.items():
            seed = seeds[family]
            make(os.path.join(options.out, "golden", family), family, rule, seed)
            make_long(os.path.join(options.out, "golden", family), seed)
        if not options.family:
            make_rotary(os.path.join(options.out, "golden", "rotary.json"))
    if options.only in (None, "golden", "full"):
        for family, rule in chosen.items():
            make_full(os.path.join(options.out, "golden", family), rule)
    if options.only in (None, "golden", "loraplus"):
        for family in chosen:
            make_loraplus(os.path.join(options.out, "golden", family))
    if options.only in (None, "golden", "shared"):
        for family in chosen:
            make_shared(os.path.join(options.out, "golden", family), seeds[family])
    if options.family:
        return
    if options.only in (None, "golden", "additional"):
        make_additional(os.path.join(options.out, "golden", "llama"))
    if options.only in (None, "golden", "neftune"):
        make_neftune(os.path.join(options.out, "golden", "qwen3"))
    if options.only in (None, "adapters"):
        make_adapters(os.path.join(options.out, "adapters"), os.path.join(options.out, "golden", "llama"))
    if options.only in (None, "heads"):
        make_heads(os.path.join(options.out, "heads"), os.path.join(options.out, "golden", "qwen3"))
    if options.only in (None, "no_rope"):
        make_no_rope(os.path.join(options.out, "no_rope.json"), os.path.join(options.out, "golden"))
    if options.only in (None, "windows"):
        make_windows(os.path.join(options.out, "windows.json"), os.path.join(options.out, "golden"))


if __name__ == "__main__":
    main()
