#!/usr/bin/env python3
"""Exports models with `lora export`, loads the files in llama.cpp, and compares what it answers with transformers (and PEFT).

    python tests/scripts/export_in_llama_cpp.py LORA [--model FOLDER [--adapter FOLDER]] [--tokens N]

LORA is the program. Without --model: the tiny models of tests/fixtures, with random weights. Needs xllamacpp, gguf, torch,
transformers, and peft for adapters. For each type a line: whether llama.cpp cuts the prompts into the tokenizer's ids, whether the
greedy tokens are the same, and how far the log-probabilities of the same tokens are apart; of an adapter also its file alone beside
the base's. Another type than f32 rounds weights, which may turn a close choice: there a second line compares llama.cpp's answers with
those of `lora generate` from the same file. Exit 1 if ids are others, tokens of f32, or answers of another type beside lora's.
"""
import argparse
import itertools
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import urllib.request

os.environ["TRANSFORMERS_VERBOSITY"] = "error"
import gguf  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
import xllamacpp  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: E402

FIXTURES = pathlib.Path(__file__).resolve().parents[1] / "fixtures"
TYPES = ("f32", "f16", "bf16", "q8_0")
CLOSE = {"f16": 0.002, "bf16": 0.01, "q8_0": 0.05}  # how near in log p choices lie that roundings of x may turn
PROMPTS = ["in the and a thin 0012", "<|im_start|>user\nthe  than, that's\n\n it<|im_end|>\n", "<|user|>\nthe  than<|end|>\n<|assistant|>\n",
           "<start_of_turn>user\n\tthe      than,\n\n  it <end_of_turn>\n"]
FAMILIES = ("qwen2", "qwen3", "llama", "smollm3", "mistral", "phi3", "gemma2", "gemma3_text")


def log_softmax(logits):
    shifted = np.asarray(logits, np.float64) - np.max(logits)
    return shifted - np.log(np.sum(np.exp(shifted)))


def greedy(likeliest, ids, count):
    """Tokens, with what is told of each."""
    ids, answer = list(ids), []
    for _ in range(count):
        answer.append(likeliest(ids))
        ids.append(answer[-1][0])
    return answer


def in_transformers(folder, adapter):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    if adapter:
        from peft import PeftModel

        model = PeftModel.from_pretrained(model, adapter)
    model.eval().requires_grad_(False)

    def likeliest(ids):
        scores = log_softmax(model(torch.tensor([ids])).logits[0, -1].double().numpy())
        second, first = np.sort(scores)[-2:]
        return int(np.argmax(scores)), float(first), float(first - second)

    return likeliest


class InLlamaCpp:
    def __init__(self, path, adapter=None):
        settings = xllamacpp.CommonParams()
        settings.model.path = str(path)
        settings.n_ctx, settings.n_parallel, settings.verbosity, settings.warmup = 128, 1, -1, False
        settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = settings.n_threads_http = 1
        settings.cache_type_k = settings.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        if adapter:
            settings.lora_adapters = [xllamacpp.CommonAdapterLoraInfo(str(adapter), 1.0)]
        self.server = xllamacpp.Server(settings)

    def ask(self, what, **fields):
        request = urllib.request.Request(self.server.listening_address + what, json.dumps(fields).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def ids(self, text):
        return self.ask("/tokenize", content=text, add_special=True, parse_special=True)["tokens"]

    def __call__(self, ids, without=()):
        """The likeliest token, of those that are not `without`, its log-probability, and how far below the next one's lies."""
        answer = self.ask("/completion", prompt=ids, n_predict=1, temperature=0, n_probs=2 + len(without), return_tokens=True,
                          cache_prompt=False, logit_bias=[[token, False] for token in without])
        told = answer.get("completion_probabilities")  # not of a byte that is no character by itself, nor of an end
        likely = [one["logprob"] for one in told[0]["top_logprobs"] if one["id"] not in without] if told else [math.nan, math.nan]
        return answer["tokens"][0], likely[0], likely[0] - likely[1]


def must(lora, *words):
    done = subprocess.run([lora, *map(str, words)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout


def compare(name, model, tokenizer, reference, count):
    same_ids, same_tokens, apart = True, True, 0.0
    for text in PROMPTS:
        ids = tokenizer(text)["input_ids"]
        same_ids = same_ids and model.ids(text) == ids
        expected, found = greedy(reference, ids, count), greedy(model, ids, count)
        same_tokens = same_tokens and [t for t, *_ in expected] == [t for t, *_ in found]
        for (a, p, _), (b, q, _) in zip(expected, found):
            if a != b:
                break
            apart = max(apart, 0.0 if math.isnan(q) else abs(p - q))
    print(f"{name:32} ids {'same' if same_ids else 'OTHER'}   tokens {'same' if same_tokens else 'other'}   log p ±{apart:.4f}", flush=True)
    return same_ids, same_tokens


def beside_lora(name, lora, path, model, tokenizer, count, closest):
    """Whether llama.cpp's greedy answers from a file are those that `lora` has from it, ends among them, up to a choice between two
    tokens of nearly the same probability: it rounds rows of x to the type of the weights, of which lora does so with Q8_0's in steps."""
    fields = gguf.GGUFReader(path).fields
    kinds = fields["tokenizer.ggml.token_type"].contents()
    # lora never says what is no token; these models, which nobody has trained, do.
    unused = [token for token, kind in enumerate(kinds) if kind == gguf.TokenType.UNUSED]
    ends = {fields[key].contents() for key in (f"tokenizer.ggml.{end}_token_id" for end in ("eos", "eot", "eom")) if key in fields}
    asked = [tokenizer(text)["input_ids"] for text in PROMPTS]
    records = path.with_suffix(".jsonl")
    records.write_text("".join(json.dumps({"input_ids": ids, "labels": [-100] * len(ids)}) + "\n" for ids in asked))
    words = ("generate", "--model_name_or_path", path, "--dataset", records, "--max_new_tokens", count, "--dtype", "float32", "--device", "cpu")
    answers = [json.loads(line)["predict"] for line in must(lora, *words).splitlines()]
    others = close = 0
    for ids, text in zip(asked, answers, strict=True):
        said, found = [], greedy(lambda all_ids: model(all_ids, unused), ids, count)
        for token, _, gap in found:
            if token in ends or not text.startswith(decoded(tokenizer, kinds, [*said, token]).rstrip("\ufffd")):
                break
            said.append(token)
        if decoded(tokenizer, kinds, said) == text and (len(said) == count or token in ends):
            continue
        others, close = others + (not gap < closest), close + (gap < closest)
    print(f"{name:32} beside lora: {len(asked) - others - close} answers same, {close} part at close choices, {others} OTHER", flush=True)
    return others == 0


def decoded(tokenizer, kinds, tokens):
    """A text as lora shows it: without what the file says is a mark."""
    return tokenizer.decode([token for token in tokens if kinds[token] != gguf.TokenType.CONTROL])


def check(lora, folder, adapter, count):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    reference = in_transformers(folder, adapter)
    good = True
    with tempfile.TemporaryDirectory() as temporary:
        temporary = pathlib.Path(temporary)
        chosen = ["--adapter_name_or_path", adapter] if adapter else []
        for outtype in TYPES:
            path = temporary / f"{outtype}.gguf"
            must(lora, "export", "--model_name_or_path", folder, *chosen, "--output_file", path, "--outtype", outtype)
            name, model = f"{folder.name} {outtype}", InLlamaCpp(path)
            same_ids, same_tokens = compare(name, model, tokenizer, reference, count)
            if outtype != "f32":
                same_tokens = beside_lora(name, lora, path, model, tokenizer, count, CLOSE[outtype])
            good = good and same_ids and same_tokens
        if adapter:
            base, alone = temporary / "base.gguf", temporary / "adapter.gguf"
            must(lora, "export", "--model_name_or_path", folder, "--output_file", base, "--outtype", "f32")
            must(lora, "export", "--model_name_or_path", folder, *chosen, "--output_file", alone, "--adapter_only")
            good = all(compare(f"{folder.name} f32 and the adapter", InLlamaCpp(base, alone), tokenizer, reference, count)) and good
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
        for family in FAMILIES:
            folder = pathlib.Path(temporary) / family
            folder.mkdir()
            fixture(family, folder)
            whole = (FIXTURES / "export" / family / "model.safetensors").exists()  # of no golden model, and its adapter
            adapter = None if whole else FIXTURES / "golden" / family / "adapter"
            good = check(options.lora, folder, adapter, options.tokens) and good
    sys.exit(not good)


main()
