#!/bin/sh
# Makes what a release consists of, in build/package/release: the sources, the Debian package, a tarball of the same files,
# and SHA256SUMS of them all. The program is built for any processor, with the preset package.
#
#   cmake/make_release.sh
#
# Of the sources it takes what is committed, and refuses to begin where the tree has changes: the rest would be made of them.
set -eu
cd "$(dirname "$0")/.."

case "${1:-}" in
  "") ;;
  -h | --help) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 0 ;;
  *) echo "make_release: unknown option $1; see --help" >&2; exit 2 ;;
esac
if [ -n "$(git status --porcelain)" ]; then
  echo "make_release: the tree has changes that are not committed; expected none, see git status" >&2
  exit 1
fi

umask 022  # of which cpack makes the modes of folders
release=build/package/release
rm -rf "$release"
mkdir -p "$release"
# Times in the packages are those of the commit.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
cmake --preset package
cmake --build --preset package
cpack --config build/package/CPackConfig.cmake -G "DEB;TGZ" -B "$release"
rm -rf "$release/_CPack_Packages"
version=$(build/package/bin/lora --version | cut -d' ' -f2)
git archive --format=tar.gz --prefix="lora-$version/" -o "$release/lora-$version.tar.gz" HEAD
(cd "$release" && sha256sum -- *.deb *.tar.gz >SHA256SUMS && cat SHA256SUMS)
