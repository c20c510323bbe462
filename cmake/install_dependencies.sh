#!/bin/sh
# Installs the Debian packages that building lora needs and that are missing. Calling it again does nothing.
#
#   cmake/install_dependencies.sh [--tests] [--format] [--clang] [--aarch64] [--bench] [--package]
#       [--parquet] [--dry-run]
#
# Without an option: what the library and the program lora need. Root, or sudo where there is one.
set -eu

packages="g++ cmake ninja-build libeigen3-dev nlohmann-json3-dev libsentencepiece-dev libdnnl-dev ocl-icd-opencl-dev
  zlib1g-dev libzstd-dev libcsv-dev libyaml-cpp-dev libcli11-dev libedit-dev libopenmpi-dev openmpi-bin"
dry_run=false
for option in "$@"; do
  case "$option" in
    --tests) packages="$packages doctest-dev python3 ccache tmux dpkg-dev file groff-base" ;;
    --format) packages="$packages clang-format-16 git" ;;
    --clang) packages="$packages clang-14 libomp-14-dev lld-14" ;;
    --aarch64) packages="$packages g++-aarch64-linux-gnu qemu-user" ;;
    --bench) packages="$packages libbenchmark-dev" ;;
    --package) packages="$packages dpkg-dev file git" ;;
    --parquet) packages="$packages python3-venv" ;;  # which cmake/install_arrow.sh wants
    --dry-run) dry_run=true ;;
    -h | --help) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "install_dependencies: unknown option $option; see --help" >&2; exit 2 ;;
  esac
done

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "install_dependencies: no apt here. Install what these Debian packages hold by other means: $packages" >&2
  exit 1
fi

missing=""
for package in $packages; do
  status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) || status=""
  if [ "$status" != installed ]; then missing="$missing $package"; fi
done
if [ -z "$missing" ]; then
  echo "install_dependencies: all packages are there"
  exit 0
fi
echo "install_dependencies: missing:$missing"
if $dry_run; then exit 0; fi

as_root=""
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "install_dependencies: needs root, and there is no sudo. As root: apt-get install$missing" >&2
    exit 1
  fi
  as_root="sudo"
fi

apt_install() {
  # shellcheck disable=SC2086  # $missing is a list
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing </dev/null
}

# The lists on the machine may be absent or old: the second attempt follows a refresh.
if ! apt_install; then
  if ! $as_root apt-get update -q </dev/null || ! apt_install; then
    echo "install_dependencies: apt could not install:$missing" >&2
    echo "Is there a network and a package mirror? Once they are installed, call this again or go on without it:" >&2
    echo "  apt-get install --no-install-recommends$missing" >&2
    exit 1
  fi
fi
