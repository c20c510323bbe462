#!/bin/sh
# Trains the demo's adapter once more with a curriculum, and shows what that changes, whichever way it goes.
#
#   examples/curriculum.sh                  the model of examples/demo.sh, which runs first
#   examples/curriculum.sh --model PATH     another model, as there
#
# Both runs take the same number of steps of 8 records. Without a curriculum every record is seen once, in random order.
# With one, the field "difficulty" decides: 80 % explain and 20 % reasoning in the first 30 % of the steps, topology
# from then on. Everything lands in build/demo: curriculum/ (the run) and after_curriculum/ (its answers).
set -eu
case "${1:-}" in -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
examples=$(cd "$(dirname "$0")" && pwd)
"$examples/demo.sh" "$@"
cd "$examples/.."

out=build/demo
data=examples/data
lora=build/release/bin/lora
model=$(head -n 1 "$out/made_from.txt")

say() { printf '\n== %s\n' "$1"; }
run() {
  printf '+ %s\n' "$*"
  "$@"
}

# Results belong to one run of the demo.
if ! cmp -s "$out/made_from.txt" "$out/curriculum_made_from.txt"; then
  rm -rf "$out/curriculum" "$out/after_curriculum"
  cp "$out/made_from.txt" "$out/curriculum_made_from.txt"
fi

say "Training with a curriculum: as many steps as without"
if [ -e "$out/curriculum/final_model" ]; then
  echo "(reusing $out/curriculum)"
else
  rm -rf "$out/after_curriculum"
  run "$lora" train --model_name_or_path "$model" --dataset "$data/topology_train.json" --output_dir "$out/curriculum" \
    --lora_rank 16 --learning_rate 1e-3 --lr_scheduler_type cosine --warmup_steps 5 --num_train_epochs 1 \
    --per_device_train_batch_size 8 --gradient_accumulation_steps 1 --logging_steps 10 --use_curriculum true \
    --resume_from_checkpoint auto
fi

say "The same questions"
if [ -e "$out/after_curriculum/evaluation_results.json" ]; then
  echo "(reusing $out/after_curriculum)"
else
  run "$lora" eval --model_name_or_path "$model" --adapter_name_or_path "$out/curriculum/final_model" \
    --dataset "$data/topology_test.json" --output_dir "$out/after_curriculum" --predict --max_new_tokens 40
fi

say "Result"
python3 - "$out" <<'PYTHON'
import json
import sys

out = sys.argv[1]
parts = {"before": "before", "without": "after", "with curriculum": "after_curriculum"}
kinds = ("explain", "reasoning", "topology")
with open("examples/data/topology_test.json") as file:
    records = json.load(file)
results, exact = {}, {}
for name, folder in parts.items():
    with open(f"{out}/{folder}/evaluation_results.json") as file:
        results[name] = json.load(file)
    with open(f"{out}/{folder}/predictions.jsonl") as file:
        answers = [json.loads(line)["predict"].strip() for line in file]
    exact[name] = {
        kind: [answer == record["output"] for answer, record in zip(answers, records) if record["difficulty"] == kind]
        for kind in kinds
    }

print(f"{'':24}" + "".join(f"{name:>18}" for name in parts))
print(f"{'perplexity':24}" + "".join(f"{results[name]['perplexity']:>18.2f}" for name in parts))
print(f"{'exact match':24}" + "".join(f"{results[name]['exact_match']:>18.1%}" for name in parts))
for kind in kinds:
    print(f"{'  ' + kind:24}" + "".join(f"{sum(exact[name][kind]):>12} of {len(exact[name][kind]):2}" for name in parts))

print("\nRecords trained on, by part of the curriculum:")
with open(f"{out}/curriculum/training_metrics.json") as file:
    for part in json.load(file)["curriculum"]:
        counts = ", ".join(f"{count} {label}" for label, count in part["counts"].items())
        print(f"  steps {part['from_step'] + 1:3} to {part['to_step']:3}: {counts}")
PYTHON
