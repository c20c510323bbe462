#!/bin/sh
# Trains a model of 1.7 million parameters from random weights on 2 MB of short stories, and lets it tell some.
#
#   examples/from_scratch.sh
#
# Installs the Debian packages that are missing (root or sudo), builds the release preset, writes the stories, trains
# one epoch and evaluates on stories that training never shows. The shape is examples/data/stories_model/config.json,
# the tokenizer lies beside it. Everything lands in build/from_scratch. A second call reuses what is there.
set -eu
case "${1:-}" in
  "") ;;
  -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 0 ;;
  *) echo "from_scratch: unknown option $1; see --help" >&2; exit 2 ;;
esac
cd "$(dirname "$0")/.."

out=build/from_scratch
data=examples/data
lora=build/release/bin/lora

say() { printf '\n== %s\n' "$1"; }
run() {
  printf '+ %s\n' "$*"
  "$@"
}

say "Packages"
cmake/install_dependencies.sh

say "Build"
mkdir -p "$out"
if ! cmake --preset release -DLORA_BUILD_TESTS=OFF >"$out/configure.log" 2>&1; then
  cat "$out/configure.log" >&2
  exit 1
fi
cmake --build --preset release --target lora_program

say "Stories"
python3 "$data/make_stories.py" "$out/train.txt" --megabytes 2 --seed 1
python3 "$data/make_stories.py" "$out/test.txt" --megabytes 0.1 --seed 2
head -n 1 "$out/train.txt"

say "Training"
run "$lora" train --model_name_or_path "$data/stories_model" --train_from_scratch --finetuning_type full \
  --dataset "$out/train.txt" --eval_dataset "$out/test.txt" --output_dir "$out/run" --cutoff_len 256 \
  --per_device_train_batch_size 8 --gradient_accumulation_steps 1 --learning_rate 3e-3 --lr_scheduler_type cosine \
  --warmup_steps 20 --weight_decay 0.1 --num_train_epochs 1 --logging_steps 50 --eval_steps 250 --eval_on_start \
  --resume_from_checkpoint auto

say "Stories of its own"
for beginning in "Anna was a brave owl who lived in" "One foggy morning Hugo took the drum and" \
  'There sat Mila, a shy frog from a red barn, with a map. "Is that a rope?" croaked'; do
  run "$lora" generate --model_name_or_path "$out/run/final_model" --template none --prompt "$beginning" \
    --max_new_tokens 120 --temperature 0.7 --seed 1
done
