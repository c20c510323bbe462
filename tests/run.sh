#!/bin/sh
# Installs what is missing, builds, and runs all tests. Needs no network beyond apt.
#
#   tests/run.sh                            everything
#   tests/run.sh ARGUMENTS FOR CTEST        some tests, e.g. tests/run.sh -L kernel
set -eu
cd "$(dirname "$0")/.."

cmake/install_dependencies.sh --tests
jobs=$(nproc)

# With assertions: what release builds promise is checked here.
cmake --preset dev
cmake --build --preset dev -j "$jobs"
if [ $# -gt 0 ]; then exec ctest --preset dev -j "$jobs" "$@"; fi
failed=0
ctest --preset dev -j "$jobs" || failed=1

# The program that ships is compiled otherwise, and other code computes in it: what is proved of whole models, of their
# modules and of runs must hold there too.
cmake --preset release-tests
cmake --build --preset release-tests -j "$jobs" --target test_model test_nn test_train
ctest --preset release-tests -j "$jobs" -L '^(model|nn|train)$' || failed=1

# Where oneDNN is found the tests above use it and can force the other path; a build that never saw it must pass too.
cmake --preset no-onednn
cmake --build --preset no-onednn -j "$jobs" --target test_kernel
ctest --preset no-onednn -j "$jobs" -L '^kernel$' || failed=1
exit $failed
