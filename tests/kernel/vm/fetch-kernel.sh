#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# fetch-kernel.sh SUITE DIR PACKAGE: unpack (not install) a Debian kernel's image, modules and headers into DIR.
#
#   SUITE    bookworm-security | trixie-backports | ...
#   PACKAGE  linux-image-amd64 (the suite's newest), another meta package (linux-image-6.12-amd64), or an exact image
#
# Apt gets a state of its own, so that the machine's packages and sources stay as they are. Needs no root. Writes DIR/kver,
# and the paths DIR/modules, DIR/vmlinuz and DIR/headers (empty where the suite has no headers of that kernel any more).
# No pipefail: grep -q and sed end before apt-cache has said everything.
set -eu

suite=$1 dir=$2 image=$3
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
state=$dir/.apt
trap 'rm -rf "$state"' EXIT
mkdir -p "$state"/{lists/partial,cache/archives/partial,sources.d,debs}

mirror=$("$(dirname "$0")/../../../tools/debian-mirror.sh")
case $suite in
    *-security) uri=$mirror-security suites=$suite ;;
    *-backports) uri=$mirror suites="${suite%-backports} $suite" ;;
    *) uri=$mirror suites=$suite ;;
esac
key=/usr/share/keyrings/debian-archive-keyring.gpg
[ -e "$key" ] || { echo "no $key: install debian-archive-keyring" >&2; exit 1; }
cat > "$state/sources.d/kernel.sources" << SOURCES
Types: deb
URIs: $uri
Suites: $suites
Components: main
Signed-By: $key
SOURCES
cat > "$state/apt.conf" << CONFIG
Dir::Etc::sourcelist "/dev/null";
Dir::Etc::sourceparts "$state/sources.d";
Dir::State::lists "$state/lists";
Dir::State::status "/dev/null";
Dir::Cache "$state/cache";
APT::Sandbox::User "root";
APT::Architecture "amd64";
APT::Default-Release "$suite";
Acquire::Retries "3";
CONFIG
export APT_CONFIG=$state/apt.conf
apt-get update -qq

show() { apt-cache show "$1" 2> /dev/null | sed -n '1,/^$/p'; }
depends() { show "$1" | sed -n 's/^\(Pre-\)\?Depends: //p' | tr ',|' '\n\n' | sed 's/^ *//; s/[ (].*//'; }
has() { apt-cache policy "$1" 2> /dev/null | grep -q 'Candidate: [0-9]'; }

real=$(depends "$image" | grep -m1 '^linux-image-[0-9]') && image=$real
kver=${image#linux-image-}
packages=("$image")
# From 6.19 on the image package is split.
for package in "linux-base-$kver" "linux-binary-$kver" "linux-modules-$kver"; do
    if has "$package"; then packages+=("$package"); fi
done
headers=linux-headers-$kver
if has "$headers"; then
    packages+=("$headers")
    for package in $(depends "$headers" | grep -E '^linux-(headers|kbuild)-' || true); do
        if has "$package"; then packages+=("$package"); fi
    done
fi
(cd "$state/debs" && apt-get download -qq "${packages[@]}")
for package in "$state"/debs/*.deb; do dpkg-deb -x "$package" "$dir"; done

base=$dir
if [ -d "$dir/usr/lib/modules/$kver/kernel" ]; then base=$dir/usr; fi
rm -f "$base/lib/modules/$kver/build" "$base/lib/modules/$kver/source"
[ -e "$base/lib/modules/$kver/modules.dep" ] || depmod -b "$base" "$kver"
vmlinuz=$dir/boot/vmlinuz-$kver
[ -e "$vmlinuz" ] || vmlinuz=$base/lib/modules/$kver/vmlinuz

# The host tools of a newer release need its libc: unpacked beside them, and wrappers that use it.
wrap_tools() {
    (cd "$state/debs" && apt-get download -qq libc6)
    dpkg-deb -x "$state"/debs/libc6_*.deb "$dir/.libc"
    local loader
    loader=$(find "$dir/.libc" -name ld-linux-x86-64.so.2 -path '*x86_64-linux-gnu*' | head -1)
    find "$1" -type f -perm -100 | while read -r tool; do
        head -c4 "$tool" | grep -q ELF || continue
        mv "$tool" "$tool.elf"
        printf '#!/bin/sh\nexec %s --library-path %s:/lib/x86_64-linux-gnu:/usr/lib/x86_64-linux-gnu %s.elf "$@"\n' \
            "$loader" "$(dirname "$loader")" "$tool" > "$tool"
        chmod +x "$tool"
    done
}

source=$dir/usr/src/linux-headers-$kver
if [ -d "$source" ]; then
    # The packages' Makefile has absolute paths, and their configuration may ask for options gcc-12 does not have.
    sed -i "s#/usr/src/#$dir/usr/src/#g" "$source/Makefile"
    sed -i '/CONFIG_CC_HAS_MIN_FUNCTION_ALIGNMENT/d' "$source/include/config/auto.conf"
    tools=$(readlink -f "$source/scripts/..")
    cp -f "$tools/tools/objtool/objtool.real-x86" "$tools/tools/objtool/objtool" 2> /dev/null || true
    cp -f "$tools/scripts/mod/modpost.real-lsb-64" "$tools/scripts/mod/modpost" 2> /dev/null || true
    if "$tools/tools/objtool/objtool" --help 2>&1 | grep -q GLIBC; then wrap_tools "$tools"; fi
else
    source=
fi
echo "$base/lib/modules/$kver" > "$dir/modules"
echo "$vmlinuz" > "$dir/vmlinuz"
echo "$source" > "$dir/headers"
# Last: a folder without it is not complete.
echo "$kver" > "$dir/kver"
