#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# make-initrd.sh DIR: DIR/initrd.img for a kernel unpacked by fetch-kernel.sh: busybox and the modules that mount the host's
# files over 9p with a throw-away overlay on top.
set -euo pipefail

dir=$(cd "$1" && pwd)
kver=$(cat "$dir/kver") modules=$(cat "$dir/modules")
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root"/{bin,proc,sys,dev,modules,newroot,host,writes}
cp "$(command -v busybox)" "$root/bin/"
for name in sh mount mkdir insmod switch_root cat; do ln -s busybox "$root/bin/$name"; done
: > "$root/modules/order"
for module in virtio_pci 9pnet_virtio 9p overlay; do
    modprobe -d "${modules%/lib/modules/*}" -S "$kver" --show-depends "$module" | while read -r kind path _; do
        [ "$kind" = insmod ] || continue
        name=$(basename "$path")
        name=${name%.xz}
        name=${name%.zst}
        [ -e "$root/modules/$name" ] && continue
        case $path in
            *.xz) xz -dc "$path" ;;
            *.zst) zstd -qdc "$path" ;;
            *) cat "$path" ;;
        esac > "$root/modules/$name"
        echo "$name" >> "$root/modules/order"
    done
done
cat > "$root/init" << 'INIT'
#!/bin/sh
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
while read -r module; do insmod /modules/$module || echo "VM: insmod $module failed"; done < /modules/order
mount -t 9p -o ro,trans=virtio,version=9p2000.L,cache=loose,msize=512000 host /host || exec sh
mount -t tmpfs tmpfs /writes
mkdir -p /writes/upper /writes/work
mount -t overlay -o lowerdir=/host,upperdir=/writes/upper,workdir=/writes/work root /newroot || exec sh
for word in $(cat /proc/cmdline); do case $word in vm_init=*) script=${word#vm_init=} ;; esac; done
exec switch_root /newroot $script
INIT
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) > "$dir/initrd.img.part"
mv "$dir/initrd.img.part" "$dir/initrd.img"
