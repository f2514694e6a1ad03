#!/bin/bash
# Installs what `make test-kernel` needs to boot Debian's kernels. Without root it says in one line what is missing, and fails.
set -euo pipefail

missing=()
need() { command -v "$2" > /dev/null || missing+=("$1"); }

PATH=$PATH:/usr/sbin:/sbin
need qemu-system-x86 qemu-system-x86_64
need busybox-static busybox
need kmod depmod
need cpio cpio
need zstd zstd
need xz-utils xz
need gcc-12 gcc-12
need make make
need dwarves pahole
[ ${#missing[@]} -gt 0 ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get > /dev/null; then
    echo "test-kernel needs, and this user cannot install: ${missing[*]}" >&2
    exit 1
fi
echo "installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}"; } > "$log" 2>&1; then
    tail -20 "$log" >&2
    echo "could not install ${missing[*]}" >&2
    exit 1
fi
