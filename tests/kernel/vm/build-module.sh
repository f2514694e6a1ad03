#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# build-module.sh DIR [btf]: DIR/mockgpu/mockgpu.ko, DIR/nvidia/nvidia.ko and nvidia_xid.ko for a kernel unpacked by fetch-kernel.sh.
# With btf, nvidia.ko has type information, as a distribution's own modules do and those that somebody builds later do not.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd) dir=$(cd "$1" && pwd)
headers=$(cat "$dir/headers")
[ -n "$headers" ] || { echo "no headers of $(cat "$dir/kver") to be had" >&2; exit 1; }
for name in mockgpu nvidia; do
    mkdir -p "$dir/$name"
    # Only what differs, so that make builds only that.
    for file in "$here/../$name"/*; do
        cmp -s "$file" "$dir/$name/${file##*/}" || cp "$file" "$dir/$name/"
    done
    make -s -C "$headers" M="$dir/$name" CC=gcc-12 HOSTCC=gcc-12 CONFIG_DEBUG_INFO_BTF_MODULES= KCFLAGS=-g modules
done
[ "${2-}" = btf ] || exit 0
# The build would need a vmlinux for this, which no package has; its types are in the image.
module=$dir/nvidia/nvidia.ko types=$dir/vmlinux.btf
[ -s "$types" ] || "$here/extract-types.py" "$(cat "$dir/vmlinuz")" "$types"
objdump -h "$module" | grep -q '\.BTF' || {
    pahole -J --skip_encoding_btf_enum64 --btf_base "$types" "$module"
    strip -g "$module"
}
