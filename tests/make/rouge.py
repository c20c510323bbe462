#!/usr/bin/env python3
"""Writes tests/fixtures/rouge.json: ROUGE-L of pairs of ASCII texts as Google's rouge_score gives it, without stemming.

  tests/make/rouge.py        needs: pip install rouge-score
"""
import json
import pathlib
import random

from rouge_score import rouge_scorer

WORDS = "the a path Lost: Cairo, Tokyo. r3-r6 60 ms (core) don't Links 1.5 Gbit/s > node9 x_y A-B ... is linked to".split()


def main():
    scorer = rouge_scorer.RougeScorer(["rougeL"], use_stemmer=False)
    draw = random.Random(5)
    pairs = [("", ""), ("a", ""), ("", "a"), ("same text", "same text"), ("Same TEXT!", "same text"), ("...", "...")]
    for _ in range(80):
        answer = " ".join(draw.choice(WORDS) for _ in range(draw.randrange(12)))
        reference = " ".join(draw.choice(WORDS) for _ in range(draw.randrange(12)))
        pairs.append((answer, reference))
    lines = [
        {"answer": a, "reference": b, "rouge_l": scorer.score(b, a)["rougeL"].fmeasure} for a, b in pairs
    ]
    path = pathlib.Path(__file__).resolve().parent.parent / "fixtures" / "rouge.json"
    path.write_text("[\n" + ",\n".join(json.dumps(line) for line in lines) + "\n]\n")


if __name__ == "__main__":
    main()
