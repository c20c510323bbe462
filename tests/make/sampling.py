#!/usr/bin/env python3
"""Writes tests/fixtures/sampling.json: logits, settings of the sampling, and what transformers' filters make of them.

    python tests/make/sampling.py

The filters are those that `generate` chooses for the settings, in its order. "kept": the ids that they leave, from the
most likely on, with their probabilities. "seen": the ids of the sequence so far. Logits have few digits, so that some
are equal; settings whose top_p would end between equal ones are left out.
"""
import itertools
import json
import pathlib

import torch
import transformers
from transformers import GenerationConfig
from transformers.generation import GenerationMixin

OUTPUT = pathlib.Path(__file__).resolve().parents[1] / "fixtures/sampling.json"


class Nobody(GenerationMixin):
    """What `_get_logits_processor` asks of a model."""

    config = transformers.PretrainedConfig()
    device = torch.device("cpu")


def kept(logits, seen, settings):
    config = GenerationConfig(do_sample=True, **{"top_k": 0, **settings})
    config._eos_token_tensor = None
    filters = Nobody()._get_logits_processor(config, input_ids_seq_length=len(seen), device="cpu", model_kwargs={})
    scores = filters(torch.tensor([seen]), torch.tensor([logits]))[0]
    left = [i for i in range(len(logits)) if torch.isfinite(scores[i])]
    probabilities = scores.double().softmax(-1)
    left.sort(key=lambda i: (-probabilities[i], i))
    return [[i, round(float(probabilities[i]), 7)] for i in left]


def main():
    random = torch.Generator().manual_seed(1)
    rows = [[round(float(x), 1) for x in 3 * torch.randn(24, generator=random)] for _ in range(3)]
    seen = [5, 3, 5, 17, 0, 23]
    choices = {
        "temperature": [1.0, 0.6, 1.7],
        "top_k": [None, 1, 6],
        "top_p": [None, 0.8, 0.95],
        "min_p": [None, 0.05, 1.0],
        "repetition_penalty": [None, 1.3, 0.7],
    }
    cases = []
    for i, values in enumerate(itertools.product(*choices.values())):
        if i % 5:
            continue
        settings = {name: value for name, value in zip(choices, values) if value is not None}
        row = i // 5 % len(rows)
        left = kept(rows[row], seen, settings)
        if "top_p" in settings:
            without = kept(rows[row], seen, {k: v for k, v in settings.items() if k != "top_p"})
            of = dict(map(tuple, without))
            equal = sum(abs(of[i] - of[left[-1][0]]) < 1e-7 for i in of)
            if equal > sum(abs(of[i] - of[left[-1][0]]) < 1e-7 for i, _ in left):
                continue
        cases.append({"row": row, "settings": settings, "kept": left})
    lines = ",\n".join(json.dumps(case) for case in cases)
    made = {"transformers": transformers.__version__, "torch": torch.__version__}
    OUTPUT.write_text(f'{{"made_with": {json.dumps(made)},\n"seen": {json.dumps(seen)},\n"rows": {json.dumps(rows)},\n'
                      f'"cases": [\n{lines}\n]}}\n')
    print(len(cases), "cases,", OUTPUT.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
