#!/bin/sh
# Installs what is missing, builds, and runs all tests, or those of some folders. Needs no network beyond apt.
#
#   tests/run.sh              everything
#   tests/run.sh FOLDER...    the tests of these folders of tests/, with assertions: what a change there asks for first
#   LORA_JOBS=1 tests/run.sh  with fewer processes at a time than there are processors
set -eu
cd "$(dirname "$0")/.."

case "${1:-}" in -h | --help) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
for folder in "$@"; do
  if [ ! -f "tests/$folder/CMakeLists.txt" ] && ! ls "tests/$folder/"*_test.cpp >/dev/null 2>&1; then
    echo "tests/run.sh: $folder is no folder of tests; --help says more" >&2
    exit 2
  fi
done
cmake/install_dependencies.sh --tests
jobs=${LORA_JOBS:-$(nproc)}
at_once=$((jobs + 1))  # at a time: some wait, for disks and for each other
cmake --preset dev

if [ $# -gt 0 ]; then
  targets="" labels=""
  for folder in "$@"; do
    if ls "tests/$folder/"*_test.cpp >/dev/null 2>&1; then targets="$targets test_$folder"; fi
    if [ "$folder" = ascend ]; then targets="$targets ascend_steps stand_in_sample"; fi
    if [ "$folder" = fuzz ]; then targets="$targets fuzz"; fi
    labels="$labels|$folder"
  done
  # shellcheck disable=SC2086  # a list
  if [ -n "$targets" ]; then cmake --build --preset dev -j "$jobs" --target $targets; fi
  exec ctest --preset dev -j "$at_once" -L "^(floors$labels)\$"
fi

cmake --build --preset dev -j "$jobs" --target tests
ctest --preset dev -j "$at_once"
