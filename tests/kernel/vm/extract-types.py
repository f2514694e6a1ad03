#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""extract-types.py VMLINUZ FILE: the kernel's type information (BTF) of a compressed image."""

import subprocess
import sys
import tempfile
from pathlib import Path

PACKERS = (
    (b"\x28\xb5\x2f\xfd", ["zstd", "-dcq"]),
    (b"\xfd7zXZ\x00", ["xz", "-dcq", "--single-stream"]),
    (b"\x1f\x8b\x08", ["gzip", "-dcq"]),
)


def unpacked(image: bytes) -> bytes:
    """Return the ELF file in an image: what follows one of the places that look like the begin of packed data."""
    for magic, command in PACKERS:
        at = image.find(magic)
        while at >= 0:
            # behind the packed data is more, of which the tools complain
            found = subprocess.run(command, input=image[at:], capture_output=True, check=False).stdout
            if found.startswith(b"\x7fELF"):
                return found
            at = image.find(magic, at + 1)
    sys.exit("no packed kernel was found in the image")


with tempfile.NamedTemporaryFile() as elf:
    elf.write(unpacked(Path(sys.argv[1]).read_bytes()))
    elf.flush()
    subprocess.run(["objcopy", "--dump-section", f".BTF={sys.argv[2]}", elf.name, "/dev/null"], check=True)
