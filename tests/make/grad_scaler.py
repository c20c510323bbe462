#!/usr/bin/env python3
"""Writes tests/fixtures/grad_scaler.json: the scale of PyTorch's GradScaler after each of a row of steps, of which some
overflow.

  tests/make/grad_scaler.py        needs: pip install torch
"""
import json
import pathlib
import random

import torch

INTERVAL = 5


def main():
    draw = random.Random(3)
    weight = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.0)
    scaler = torch.amp.GradScaler("cpu", growth_interval=INTERVAL)
    steps = []
    for _ in range(120):
        overflows = draw.random() < 0.12
        optimizer.zero_grad()
        scaler.scale(weight * (float("inf") if overflows else 1.0)).sum().backward()
        scaler.step(optimizer)
        scaler.update()
        steps.append({"overflows": overflows, "scale": scaler.get_scale()})
    path = pathlib.Path(__file__).resolve().parent.parent / "fixtures" / "grad_scaler.json"
    lines = ",\n".join(json.dumps(step) for step in steps)
    path.write_text(f'{{"growth_interval": {INTERVAL}, "steps": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
