# SPDX-License-Identifier: Apache-2.0
"""Where code of one file calls functions of others, and its own through the global offset table (x86-64)."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from fencepath._libraries.elf import ElfImage

__all__ = ["Relocations"]

_ENTRY = np.dtype([("slot", "<u8"), ("type", "<u4"), ("symbol", "<u4"), ("addend", "<i8")])
_DT_RELA, _DT_RELASZ, _DT_PLTRELSZ, _DT_JMPREL = 7, 8, 2, 23
_GLOB_DAT, _JUMP_SLOT, _RELATIVE = 6, 7, 8
_JUMP_BY_SLOT = b"\xff\x25"
_STUB_PREFIXES = (0, 1, 4, 5)
"""Bytes before the jump of a stub: none, a bnd prefix, an endbr64, or both."""


class Relocations:
    """The relocations of a file. Each part is read at first use.

    Raises:
        NotElfError: from every method, if a table is damaged.
    """

    def __init__(self, image: ElfImage) -> None:
        self._image = image

    def slots_of(self, symbol: str) -> frozenset[int]:
        """Return the addresses of the pointers by which another file's function is called."""
        entries = np.array(sorted(self._undefined(symbol)), np.uint32)
        chosen = np.isin(self._rela["type"], (_GLOB_DAT, _JUMP_SLOT)) & np.isin(self._rela["symbol"], entries)
        return frozenset(self._rela["slot"][chosen].tolist())

    def stubs_of(self, symbol: str) -> frozenset[int]:
        """Return the addresses of the linker's stubs that jump to another file's function."""
        slots = self.slots_of(symbol)
        found: set[int] = set()
        for address, code in self._image.sections(".plt") if slots else ():
            at = code.find(_JUMP_BY_SLOT)
            while at >= 0:
                goes_to = address + at + 6 + int.from_bytes(code[at + 2 : at + 6], "little", signed=True)
                if goes_to in slots:
                    found.update(address + at - before for before in _STUB_PREFIXES)
                at = code.find(_JUMP_BY_SLOT, at + 1)
        return frozenset(found)

    @cached_property
    def pointers(self) -> dict[int, int]:
        """Addresses of this file that the loader writes into pointers, by the pointer's address."""
        rela = self._rela
        relative = rela[rela["type"] == _RELATIVE]
        found: dict[int, int] = dict(zip(relative["slot"].tolist(), relative["addend"].tolist(), strict=True))
        table = self._image.tables.get(".dynsym")
        named = rela[rela["type"] == _GLOB_DAT]
        for slot, symbol in zip(named["slot"].tolist(), named["symbol"].tolist(), strict=True):
            if table is not None and (address := table.address(symbol)):
                found[slot] = address
        return found

    @cached_property
    def _rela(self) -> npt.NDArray[np.void]:
        tags = self._image.dynamic_values((_DT_RELA, _DT_RELASZ, _DT_JMPREL, _DT_PLTRELSZ))
        parts = [
            self._image.read_table(tags[table], tags[size] // _ENTRY.itemsize * _ENTRY.itemsize)
            for table, size in ((_DT_RELA, _DT_RELASZ), (_DT_JMPREL, _DT_PLTRELSZ))
            if table in tags and size in tags
        ]
        return np.frombuffer(b"".join(parts), _ENTRY)

    def _undefined(self, symbol: str) -> frozenset[int]:
        table = self._image.tables.get(".dynsym")
        return table.undefined(symbol) if table is not None else frozenset()
