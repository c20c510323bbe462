#!/usr/bin/env python3
"""Whether a training step of a large model, and a token of its answers, ask of an NPU what they did when this was written.

  tests/ascend/check_steps.py ASCEND_STEPS

Waits and allocations are promises, and so is that a run forecasts its memory; launches, bytes and memory are
what docs/ascend_forecast.md forecasts from.
"""
import json
import subprocess
import sys

RUNS = {
    "--shape 7b": {"waits": 1, "allocations": 0, "copies_to_device": 2, "launches": 2425, "gib": 23.6},
    "--shape 7b --micro_batches 2": {"waits": 1, "allocations": 0, "copies_to_device": 3, "launches": 4823, "gib": 23.6},
    "--shape 14b --recompute": {"waits": 1, "allocations": 0, "copies_to_device": 2, "launches": 5415, "gib": 35.6},
    "--shape 7b --tokens 256 --dropout 0.1": {"waits": 1, "allocations": 0, "copies_to_device": 114, "launches": 3185, "gib": 18.1},
    "--decode": {"waits": 1, "allocations": 0, "copies_to_device": 2, "copies_to_host": 1, "bytes_to_device": 196,
                 "bytes_to_host": 4 * 152064, "launches": 1265, "gib": 16.3},
    "--decode --rank 0": {"waits": 1, "allocations": 0, "launches": 873, "gib": 14.8},
    "--shape 7b --stored q8_0": {"waits": 1, "allocations": 0, "copies_to_device": 2, "launches": 3875, "gib": 17.9},
}


def main():
    wrong = []
    for options, most in RUNS.items():
        program = [sys.argv[1], *options.split()]
        found = json.loads(subprocess.run(program, check=True, stdout=subprocess.PIPE, text=True).stdout)
        found["gib"] = round(found["memory_gib"]["all"], 1)
        for part, bytes_of in found.get("forecast_gib", {}).items():
            measured = found["memory_gib"][part]
            if not 0.97 * measured <= bytes_of <= 1.05 * measured:
                wrong.append(f"{options}: {part}: {bytes_of:.3f} GiB are forecast, {measured:.3f} GiB were taken")
        for name, limit in most.items():
            if found[name] != limit:
                wrong.append(f"{options}: {name} is {found[name]}; it was {limit}. If it is meant, write it down here "
                             "and in docs/ascend_forecast.md")
    print("\n".join(wrong) if wrong else "steps: as they were")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
