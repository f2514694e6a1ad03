#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# build-module.sh DIR: DIR/mockgpu/mockgpu.ko, DIR/nvidia/nvidia.ko and nvidia_xid.ko for a kernel unpacked by fetch-kernel.sh.
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
    make -s -C "$headers" M="$dir/$name" CC=gcc-12 HOSTCC=gcc-12 CONFIG_DEBUG_INFO_BTF_MODULES= modules
done
