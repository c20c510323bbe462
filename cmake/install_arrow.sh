#!/bin/sh
# Puts Arrow's C++ libraries into a folder, those of Python's wheel of them, and prints what LORA_ARROW_ROOT is then.
# Calling it again does nothing. Needs python3 with venv (Debian: python3-venv) and a network.
#
#   cmake/install_arrow.sh FOLDER
set -eu

case "${1:-}" in
  -h | --help) sed -n '2,5s/^# \{0,1\}//p' "$0"; exit 0 ;;
  "" | -*) echo "install_arrow: expected a folder; see --help" >&2; exit 2 ;;
esac
python="$1/bin/python3"
where='import os, pyarrow; print(os.path.dirname(pyarrow.__file__))'
if ! "$python" -c "$where" >/dev/null 2>&1; then
  python3 -m venv "$1" >&2
  "$python" -m pip install --quiet --only-binary :all: --no-deps 'pyarrow>=26' >&2
fi
"$python" -c "$where"
