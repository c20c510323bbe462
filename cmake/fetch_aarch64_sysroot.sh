#!/bin/sh
# Puts the arm64 packages that the preset aarch64 builds against into a folder of their own (build/aarch64-sysroot).
# They come from this machine's apt sources; nothing on the system changes and no root is needed.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
sysroot="$root/build/aarch64-sysroot"
packages="libsentencepiece-dev libsentencepiece0 zlib1g-dev zlib1g libzstd-dev libzstd1
  libcsv-dev libcsv3
  libyaml-cpp-dev libyaml-cpp0.7 libeigen3-dev nlohmann-json3-dev doctest-dev
  libcli11-dev"

if [ -e "$sysroot/complete" ]; then
  echo "fetch_aarch64_sysroot: $sysroot is there"
  exit 0
fi
rm -rf "$sysroot"
mkdir -p "$sysroot/apt/state/lists/partial" "$sysroot/apt/cache/archives/partial" "$sysroot/apt/packages"
cd "$sysroot/apt/packages"

apt() {
  apt-get -q -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User= \
    -o Dir::State="$sysroot/apt/state" -o Dir::State::status=/dev/null -o Dir::Cache="$sysroot/apt/cache" "$@" </dev/null
}
# shellcheck disable=SC2086  # $packages is a list
if ! apt update || ! apt download $packages; then
  echo "fetch_aarch64_sysroot: apt could not fetch the arm64 packages. Is there a network and a package mirror?" >&2
  exit 1
fi
for package in *.deb; do dpkg-deb -x "$package" "$sysroot"; done
rm -rf "$sysroot/apt"
touch "$sysroot/complete"
