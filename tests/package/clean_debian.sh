#!/bin/sh
# Makes a release of what is committed (cmake/make_release.sh) and tries it in a Debian 12 that has nothing else: apt installs the
# package with what it depends on, the program trains, and the tarball runs as well.
#
#   tests/package/clean_debian.sh              as root, with debootstrap and a mirror of Debian, which is that of /etc/apt; else ends with 77
#   tests/package/clean_debian.sh RELEASE      the files of that folder, which make_release.sh has filled before
#
# All that it makes lies in a folder of TMPDIR (/tmp), which is removed at the end, also after an error.
set -eu
cd "$(dirname "$0")/../.."
suite=bookworm

skip() {
  echo "skipped: a release is not tried in a clean Debian, for want of $1"
  exit 77
}

fail() {
  echo "clean_debian: $1" >&2
  exit 1
}

case "${1:-}" in
  -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 0 ;;
  -*) echo "clean_debian: unknown option $1; see --help" >&2; exit 2 ;;
esac
if [ -n "${1:-}" ] && [ ! -e "$1/SHA256SUMS" ]; then fail "$1 holds no SHA256SUMS; expected the folder that make_release.sh fills"; fi

PATH=$PATH:/usr/sbin:/sbin
[ "$(id -u)" -eq 0 ] || skip "root's rights"
for tool in debootstrap unshare; do
  command -v $tool >/dev/null || skip "$tool"
done
unshare --mount --pid --fork true 2>/dev/null || skip "the right to make namespaces"
grep -q "^VERSION_CODENAME=$suite" /etc/os-release || skip "a Debian of $suite to build it on"

work=$(mktemp -d "${TMPDIR:-/tmp}/clean-debian.XXXXXX")
trap 'rm -rf --one-file-system "$work"' EXIT
trap 'exit 1' HUP INT TERM

mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null |
  sed -n 's/^URIs: *\([^ ]*\).*/\1/p; s/^deb \(\[[^]]*\] \)\{0,1\}\([^ ]*\) .*/\2/p' | grep '/debian/\{0,1\}$' | head -n 1)
mirror=${mirror:-http://deb.debian.org/debian}
/usr/lib/apt/apt-helper download-file "$mirror/dists/$suite/InRelease" "$work/InRelease" >/dev/null 2>&1 ||
  skip "a mirror: $mirror does not answer"

if [ -n "${1:-}" ]; then
  release=$(cd "$1" && pwd)
else
  git clone -q . "$work/source"
  "$work/source/cmake/make_release.sh"
  release=$work/source/build/package/release
fi
(cd "$release" && sha256sum --check --strict SHA256SUMS)
for file in "$release"/*.deb "$release"/*.tar.gz; do
  grep -q " $(basename "$file")\$" "$release/SHA256SUMS" || fail "SHA256SUMS has no line for $(basename "$file")"
done

# What is mounted on the way is so in a namespace of its own, and gone with it.
root=$work/root
unshare --mount debootstrap --variant=minbase "$suite" "$root" "$mirror" >"$work/debootstrap.log" 2>&1 || {
  tail -n 20 "$work/debootstrap.log" >&2
  fail "debootstrap could not make a $suite of $mirror"
}
inside() {
  unshare --mount --pid --fork --kill-child sh -euc 'root=$1; shift; mount -t proc proc "$root/proc"; exec chroot "$root" "$@"' inside "$root" \
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive http_proxy="${http_proxy:-}" "$@"
}
mkdir "$root/given"
cp "$release"/*.deb "$root/given/lora.deb"
cp "$release"/lora-*-Linux-*.tar.gz "$root/given/lora.tar.gz"
cp -r tests/fixtures/chat "$root/given/model"
cp examples/data/topology_*.json "$root/given"

inside apt-get install -y -q --no-install-recommends /given/lora.deb
version=$(inside lora --version)
[ "lora $(inside dpkg-query -W -f '${Version}' lora)" = "$version" ] || fail "the program says '$version', and its package another version"

# As examples/demo.sh trains and measures, but for the model, which is small and random.
train_with() {
  inside "$1" train --model_name_or_path /given/model --dataset /given/topology_train.json --output_dir /run_of_demo/train \
    --lora_rank 16 --learning_rate 1e-3 --lr_scheduler_type cosine --warmup_steps 5 --num_train_epochs 1 \
    --per_device_train_batch_size 8 --gradient_accumulation_steps 1 --logging_steps 10
  inside "$1" eval --model_name_or_path /given/model --adapter_name_or_path /run_of_demo/train/final_model \
    --dataset /given/topology_test.json --output_dir /run_of_demo/eval --predict --max_new_tokens 40 >/dev/null
  sha256sum <"$root/run_of_demo/train/final_model/adapter_model.safetensors"
  rm -rf "$root/run_of_demo"
}
of_package=$(train_with lora)

inside mkdir /opt/lora
inside tar -xzf /given/lora.tar.gz -C /opt/lora --strip-components=1
inside apt-get remove -y -q lora
if inside sh -c 'command -v lora || ls -d /usr/include/lora' 2>/dev/null; then fail "the package leaves files behind when it is removed"; fi
[ "$(inside /opt/lora/bin/lora --version)" = "$version" ] || fail "the tarball's program is of another version"
[ "$(train_with /opt/lora/bin/lora)" = "$of_package" ] || fail "the tarball's program trains to other bytes than the package's"
echo "$version was installed, trained and removed in a clean Debian of $suite; so did the tarball's program"
