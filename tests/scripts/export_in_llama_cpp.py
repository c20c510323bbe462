#!/usr/bin/env python3
"""Exports models with `lora export`, loads the files in llama.cpp, and compares what it answers with transformers (and PEFT).

    python tests/scripts/export_in_llama_cpp.py LORA [--model FOLDER [--adapter FOLDER]] [--tokens N]

LORA is the program. Without --model: the four tiny models of tests/fixtures, with random weights. Needs llama-cpp-python, torch,
transformers, and peft for adapters. For each type a line: whether llama.cpp cuts the prompts into the tokenizer's ids, whether the
greedy tokens are the same, and how far the log-probabilities of the same tokens are apart; of an adapter also its file alone beside
the base's. Exit 1 if f32 has other ids or tokens: another type rounds weights, which may turn a close choice.
"""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

os.environ["TRANSFORMERS_VERBOSITY"] = "error"
import llama_cpp  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: E402

FIXTURES = pathlib.Path(__file__).resolve().parents[1] / "fixtures"
TYPES = ("f32", "f16", "bf16", "q8_0")
PROMPTS = ["in the and a thin 0012", "<|im_start|>user\nthe  than, that's\n\n it<|im_end|>\n"]


def log_softmax(logits):
    shifted = np.asarray(logits, np.float64) - np.max(logits)
    return shifted - np.log(np.sum(np.exp(shifted)))


def greedy(logits_of, ids, count):
    """Tokens and their log-probabilities."""
    ids, answer = list(ids), []
    for _ in range(count):
        scores = log_softmax(logits_of(ids))
        token = int(np.argmax(scores))
        answer.append((token, float(scores[token])))
        ids.append(token)
    return answer


def in_transformers(folder, adapter):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    if adapter:
        from peft import PeftModel

        model = PeftModel.from_pretrained(model, adapter)
    model.eval().requires_grad_(False)
    return lambda ids: model(torch.tensor([ids])).logits[0, -1].double().numpy()


class InLlamaCpp:
    def __init__(self, path, adapter=None):
        self.model = llama_cpp.Llama(str(path), n_ctx=128, n_threads=1, logits_all=True, verbose=False, type_k=0, type_v=0,
                                     lora_path=str(adapter) if adapter else None)

    def ids(self, text):
        return self.model.tokenize(text.encode(), add_bos=True, special=True)

    def __call__(self, ids):
        self.model.reset()
        self.model.eval(ids)
        return self.model.scores[len(ids) - 1]


def export(lora, *words):
    done = subprocess.run([lora, "export", *map(str, words)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)


def compare(name, model, tokenizer, reference, count):
    same_ids, same_tokens, apart = True, True, 0.0
    for text in PROMPTS:
        ids = tokenizer(text)["input_ids"]
        same_ids = same_ids and list(model.ids(text)) == ids
        expected, found = greedy(reference, ids, count), greedy(model, ids, count)
        same_tokens = same_tokens and [t for t, _ in expected] == [t for t, _ in found]
        for (a, p), (b, q) in zip(expected, found):
            if a != b:
                break
            apart = max(apart, abs(p - q))
    print(f"{name:32} ids {'same' if same_ids else 'OTHER'}   tokens {'same' if same_tokens else 'other'}   log p ±{apart:.4f}", flush=True)
    return same_ids and same_tokens


def check(lora, folder, adapter, count):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    reference = in_transformers(folder, adapter)
    good = True
    with tempfile.TemporaryDirectory() as temporary:
        temporary = pathlib.Path(temporary)
        chosen = ["--adapter_name_or_path", adapter] if adapter else []
        for outtype in TYPES:
            path = temporary / f"{outtype}.gguf"
            export(lora, "--model_name_or_path", folder, *chosen, "--output_file", path, "--outtype", outtype)
            same = compare(f"{folder.name} {outtype}", InLlamaCpp(path), tokenizer, reference, count)
            good = good and (same or outtype != "f32")
        if adapter:
            base, alone = temporary / "base.gguf", temporary / "adapter.gguf"
            export(lora, "--model_name_or_path", folder, "--output_file", base, "--outtype", "f32")
            export(lora, "--model_name_or_path", folder, *chosen, "--output_file", alone, "--adapter_only")
            good = compare(f"{folder.name} f32 and the adapter", InLlamaCpp(base, alone), tokenizer, reference, count) and good
    return good


def fixture(family, folder):
    for source in (FIXTURES / "golden" / family, FIXTURES / "export" / family):
        for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "generation_config.json"):
            if (source / name).exists():
                shutil.copy(source / name, folder / name)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("lora")
    parser.add_argument("--model", type=pathlib.Path)
    parser.add_argument("--adapter", type=pathlib.Path)
    parser.add_argument("--tokens", type=int, default=24)
    options = parser.parse_args()
    if options.model:
        sys.exit(not check(options.lora, options.model, options.adapter, options.tokens))
    good = True
    with tempfile.TemporaryDirectory() as temporary:
        for family in ("qwen2", "qwen3", "llama", "smollm3"):
            folder = pathlib.Path(temporary) / family
            folder.mkdir()
            fixture(family, folder)
            adapter = None if family == "smollm3" else FIXTURES / "golden" / family / "adapter"
            good = check(options.lora, folder, adapter, options.tokens) and good
    sys.exit(not good)


main()
