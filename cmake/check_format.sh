#!/bin/sh
# Checks that every C++ file of the project is as clang-format would leave it; with --fix, makes it so.
set -eu
cd "$(dirname "$0")/.."

program=""
for candidate in clang-format-16 clang-format; do
  if command -v $candidate >/dev/null && $candidate --version | grep -q 'version 16\.'; then program=$candidate; break; fi
done
if [ -z "$program" ]; then
  echo "check_format: needs clang-format 16 (other versions format otherwise); cmake/install_dependencies.sh --format" >&2
  exit 1
fi

mode="--dry-run -Werror"
if [ "${1:-}" = --fix ]; then mode=-i; fi

# Only files that git knows, or would add: not what a build left behind.
files=$(git ls-files --cached --others --exclude-standard -- '*.hpp' '*.ipp' '*.cpp' |
        while read -r file; do if [ -e "$file" ]; then echo "$file"; fi; done)
if [ -z "$files" ]; then
  echo "check_format: found no files" >&2
  exit 1
fi
# shellcheck disable=SC2086  # both are lists
$program $mode $files
echo "format: $(echo "$files" | wc -l) files are as clang-format leaves them"
