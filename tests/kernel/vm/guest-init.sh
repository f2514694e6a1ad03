#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Process 1 of the guest: file systems, modules, the command, its exit code into the shared folder, power off.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 TERM=dumb
mount -t proc proc /proc
mount -t sysfs sys /sys
mountpoint -q /dev || mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /run
[ -e /dev/fd ] || ln -s /proc/self/fd /dev/fd
mount -t debugfs debugfs /sys/kernel/debug
mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing
mount -t bpf bpf /sys/fs/bpf
ip link set lo up 2> /dev/null
mkdir -p /mnt/out
mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000 out /mnt/out
. /mnt/out/env.sh
kver=$(uname -r)
mkdir -p "/lib/modules/$kver" /run/modules-upper /run/modules-work
mount -t overlay -o lowerdir="$MODULES",upperdir=/run/modules-upper,workdir=/run/modules-work modules "/lib/modules/$kver"
read -r up _ < /proc/uptime
echo "VM: user space at ${up}s"
# The guest has no disk and no network: five times a second something that raises an interrupt.
mkfifo /run/never
(exec 3<> /run/never && while ! read -rt 0.2 -u 3; do echo > /mnt/out/alive; done) &
cd "$FOLDER" || exit
bash -c "$COMMAND" > /mnt/out/output 2>&1 < /dev/null
echo $? > /mnt/out/rc
read -r up _ < /proc/uptime
echo "VM: command ended at ${up}s with $(cat /mnt/out/rc)"
dmesg > /mnt/out/dmesg
sync
echo o > /proc/sysrq-trigger
sleep 20
