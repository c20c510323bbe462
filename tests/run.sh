#!/bin/sh
# Installs what is missing, builds, and runs all tests. Needs no network beyond apt.
#
#   tests/run.sh [ARGUMENTS FOR CTEST]      e.g. tests/run.sh -L kernel
set -eu
cd "$(dirname "$0")/.."

cmake/install_dependencies.sh --tests
jobs=$(nproc)

# With assertions: what release builds promise is checked here.
cmake --preset dev
cmake --build --preset dev -j "$jobs"
failed=0
ctest --preset dev -j "$jobs" "$@" || failed=1

# Where oneDNN is found the tests above use it and can force the other path; a build that never saw it must pass too.
cmake --preset no-onednn
programs=$(cd tests && for folder in kernel cpu; do if ls $folder/*_test.cpp >/dev/null 2>&1; then echo "test_$folder"; fi; done)
# shellcheck disable=SC2086  # $programs is a list
cmake --build --preset no-onednn -j "$jobs" --target $programs
ctest --preset no-onednn -j "$jobs" -L '^(kernel|cpu)$' "$@" || failed=1
exit $failed
