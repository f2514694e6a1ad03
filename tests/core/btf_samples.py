# SPDX-License-Identifier: Apache-2.0
"""Type information (BTF) made by hand, as include/uapi/linux/btf.h has it."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

from fencepath.kernel_types import KernelTypes

INT, ARRAY, STRUCT, UNION, ENUM, TYPEDEF, VOLATILE, CONST, RESTRICT = 1, 3, 4, 5, 6, 8, 9, 10, 11
FUNCTION, PROTOTYPE, VARIABLE, SECTION, TAG, ENUM64 = 12, 13, 14, 15, 17, 19

Member = tuple[str, int, int]
"""Name, number of its type, offset in bits."""


class Btf:
    """Types of one file, numbered in the order in which they are added.

    Args:
        base: what they go on from.
    """

    def __init__(self, base: Btf | None = None) -> None:
        self._before: bytes = base.texts if base else b""
        self._texts = b"" if base else b"\0"
        self._types: list[bytes] = []
        self._first = base.end if base else 1

    @property
    def texts(self) -> bytes:
        """Those of the base too."""
        return self._before + self._texts

    @property
    def end(self) -> int:
        """The number of the next type."""
        return self._first + len(self._types)

    def text(self, name: str) -> int:
        """Where a text is: as pahole does it, one of the base is used again, and the end of a longer one too."""
        if not name:
            return 0
        if self.texts.find(name.encode() + b"\0") < 0:
            self._texts += name.encode() + b"\0"
        return self.texts.find(name.encode() + b"\0")

    def add(self, kind: int, name: str = "", *rest: int, count: int = 0, of: int = 4, flag: bool = False) -> int:
        """Add a type, with the words that follow its three, and return its number."""
        words = (self.text(name), flag << 31 | kind << 24 | count, of, *rest)
        self._types.append(struct.pack(f"<{len(words)}I", *words))
        return self.end - 1

    def integer(self) -> int:
        return self.add(INT, "int", 32)

    def structure(self, name: str, members: Sequence[Member], kind: int = STRUCT, *, flag: bool = False) -> int:
        words = [word for member, number, bits in members for word in (self.text(member), number, bits)]
        return self.add(kind, name, *words, count=len(members), flag=flag)

    def variable(self, name: str) -> int:
        return self.add(VARIABLE, name, 1)

    def section(self, name: str, variables: Sequence[tuple[int, int]]) -> int:
        """Variables are (number, offset)."""
        words = [word for number, offset in variables for word in (number, offset, 4)]
        return self.add(SECTION, name, *words, count=len(variables))

    def every_kind(self) -> None:
        """Add a type of each kind that has words behind its three."""
        self.add(ARRAY, "", 1, 1, 2)
        self.add(ENUM, "colours", self.text("red"), 1, self.text("green"), 2, count=2)
        self.add(ENUM64, "wide", self.text("red"), 1, 0, count=1)
        self.add(PROTOTYPE, "", self.text("x"), 1, self.text("y"), 1, count=2)
        self.add(TAG, "tag", 0)
        self.section("none", [(self.variable("no_one_s"), 4)])

    def bytes(self) -> bytes:
        types = b"".join(self._types)
        head = struct.pack("<HBBIIIII", 0xEB9F, 1, 0, 24, 0, len(types), len(types), len(self._texts))
        return head + types + self._texts


def kernel_types(folder: Path, kernel: Btf | bytes, module: Btf | None = None) -> KernelTypes:
    """Write the files, and return the types of the module if there is one, else the kernel's."""
    (folder / "vmlinux").write_bytes(kernel.bytes() if isinstance(kernel, Btf) else kernel)
    if module is not None:
        (folder / "module").write_bytes(module.bytes())
    return KernelTypes("module" if module is not None else "", folder)
