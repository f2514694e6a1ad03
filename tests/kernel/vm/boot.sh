#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# boot.sh DIR OUT COMMAND: run COMMAND as root under the kernel in DIR, with this machine's files as they are (read-only, with a
# throw-away overlay), at the same paths, in the same working folder.
#
# OUT is writable in the guest as /mnt/out and gets: output and rc of the command, console and dmesg of the kernel.
# Exits with the command's code; 124 if the time is up; 125 if the guest ended without a result.
# Environment: VM_TIMEOUT (seconds), VM_MEMORY, VM_CPUS.
set -uo pipefail

here=$(cd "$(dirname "$0")" && pwd) dir=$(cd "$1" && pwd) out=$2 command=$3
mkdir -p "$out"
out=$(cd "$out" && pwd)
rm -f "$out"/{rc,output,dmesg,console}
printf 'MODULES=%q\nCOMMAND=%q\nFOLDER=%q\n' "$(cat "$dir/modules")" "$command" "$PWD" > "$out/env.sh"
[ -e "$dir/initrd.img" ] || "$here/make-initrd.sh" "$dir" || exit 125
# avx2=off: qemu 7.2 emulates it wrongly, so that numpy sorts 9 to 16 numbers in a wrong order (tests/kernel/test_machine.py)
timeout -k 5 "${VM_TIMEOUT:-300}" qemu-system-x86_64 -M q35 -accel tcg,thread=multi,tb-size=512 -cpu max,avx2=off \
    -device edu -smp "${VM_CPUS:-2}" -m "${VM_MEMORY:-2G}" -nodefaults -no-reboot -display none -serial "file:$out/console" \
    -kernel "$(cat "$dir/vmlinuz")" -initrd "$dir/initrd.img" \
    -append "console=ttyS0 panic=-1 mitigations=off loglevel=4 vm_init=$here/guest-init.sh" \
    -virtfs local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap \
    -virtfs "local,path=$out,mount_tag=out,security_model=none,multidevs=remap" < /dev/null
code=$?
[ -s "$out/rc" ] && exit "$(cat "$out/rc")"
[ "$code" = 124 ] && exit 124
tail -20 "$out/console" >&2
exit 125
