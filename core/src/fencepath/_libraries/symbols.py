# SPDX-License-Identifier: Apache-2.0
"""A symbol table as columns: functions that are defined here, by name, with their versions and file offsets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

__all__ = ["Symbol", "SymbolTable"]

_ENTRY = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)
_STT_FUNC, _STT_GNU_IFUNC = 2, 10
_HIDDEN = 0x8000


class Symbol(msgspec.Struct, frozen=True):
    """A function defined in a file.

    Attributes:
        name: without the version.
        address: virtual address in the file's own terms.
        offset: in the file, bytes: where a probe is attached.
        size: of the function, bytes; 0 if not given.
        version: such as ``libcudart.so.12``; ``""`` if it has none.
        is_default: the one that a program linked today gets (``name@@VERSION``), or unversioned.
    """

    name: str
    address: int
    offset: int
    size: int
    version: str = ""
    is_default: bool = True


class SymbolTable:
    """The functions of one symbol table.

    IFUNCs are listed by name only; undefined and absolute symbols are left out.
    """

    def __init__(
        self,
        entries: bytes,
        strings: bytes,
        executable: Sequence[tuple[int, int, int]],
        versions: npt.NDArray[np.uint16] | None = None,
        version_names: dict[int, str] | None = None,
    ) -> None:
        """Take the table's bytes.

        Args:
            entries: ``Elf64_Sym`` entries.
            strings: the string table it refers to.
            executable: executable segments as (first address, address behind, offset less address).
            versions: version index for each entry, or None.
            version_names: name for each version index.
        """
        table = np.frombuffer(entries[: len(entries) // _ENTRY.itemsize * _ENTRY.itemsize], dtype=_ENTRY)
        kind = table["info"] & 0xF
        # Section 0 is undefined; from 0xff00 on it is absolute or common, except 0xffff (an index that did not fit).
        defined = (table["section"] != 0) & ((table["section"] < 0xFF00) | (table["section"] == 0xFFFF))
        offsets = np.full(len(table), -1, dtype=np.int64)
        for first, behind, delta in executable:
            inside = (table["value"] >= first) & (table["value"] < behind)
            offsets[inside] = table["value"][inside].astype(np.int64) + delta
        self._strings = strings
        self._table = table
        self._versions = versions if versions is not None and len(versions) == len(table) else None
        self._version_names = version_names or {}
        self._offsets = offsets
        self._functions = np.flatnonzero(defined & (kind == _STT_FUNC) & (offsets >= 0))
        self._ifunc_entries = np.flatnonzero(defined & (kind == _STT_GNU_IFUNC))
        self._index: dict[bytes, int | tuple[int, ...]] | None = None
        self._by_offset: npt.NDArray[np.intp] | None = None

    def __len__(self) -> int:
        return len(self._functions)

    @property
    def ifuncs(self) -> frozenset[str]:
        """Names whose address is that of a resolver."""
        return frozenset(self._names(self._ifunc_entries))

    def functions(self) -> Iterator[Symbol]:
        """Yield every function."""
        for name, entry in zip(self._names(self._functions), self._functions.tolist(), strict=True):
            yield self._symbol(name, entry)

    def named(self, name: str) -> tuple[Symbol, ...]:
        """Return every version of the function `name`."""
        key = name.encode("utf-8", "surrogateescape")
        if self._index is None:
            self._index = self._make_index()
        entries = self._index.get(key, ())
        return tuple(self._symbol(name, entry) for entry in ((entries,) if isinstance(entries, int) else entries))

    def at(self, offset: int) -> Symbol | None:
        """Return the function that has the file offset in it, or None.

        Where one has no size, only its first byte is known to be its own. Of several names of one place the first is taken.
        """
        if self._by_offset is None:
            self._by_offset = self._functions[np.argsort(self._offsets[self._functions], kind="stable")]
        begins = self._offsets[self._by_offset]
        at = int(np.searchsorted(begins, offset, "right")) - 1
        if at < 0:
            return None
        at = int(np.searchsorted(begins, begins[at], "left"))
        entry = int(self._by_offset[at])
        inside = offset - int(begins[at]) < max(int(self._table["size"][entry]), 1)
        return self._symbol(next(self._names(self._by_offset[at : at + 1])), entry) if inside else None

    def undefined(self, name: str) -> frozenset[int]:
        """Return the numbers of the entries by which another file's symbol `name` is referred to."""
        entries = np.flatnonzero(self._table["section"] == 0)
        key = name.encode("utf-8", "surrogateescape")
        names = zip(self._raw_names(entries), entries.tolist(), strict=True)
        return frozenset(entry for text, entry in names if text == key)

    def address(self, entry: int) -> int:
        """Return the virtual address of a defined symbol by its number, 0 of an undefined one or one that is not there."""
        if not 0 <= entry < len(self._table) or self._table["section"][entry] == 0:
            return 0
        return int(self._table["value"][entry])

    def _make_index(self) -> dict[bytes, int | tuple[int, ...]]:
        # One number for the many names that are there once: a million tuples would take longer than all the rest.
        index: dict[bytes, int | tuple[int, ...]] = {}
        for text, entry in zip(self._raw_names(self._functions), self._functions.tolist(), strict=True):
            other = index.setdefault(text, entry)
            if other != entry:
                index[text] = (*((other,) if isinstance(other, int) else other), entry)
        return index

    def _names(self, entries: npt.NDArray[np.intp]) -> Iterator[str]:
        return (text.decode("utf-8", "surrogateescape") for text in self._raw_names(entries))

    def _raw_names(self, entries: npt.NDArray[np.intp]) -> Iterator[bytes]:
        strings, find = self._strings, self._strings.find
        for at in self._table["name"][entries].tolist():
            end = find(b"\0", at)
            text = strings[at : end if end >= 0 else len(strings)]
            # .symtab writes a symbol's version into its name.
            yield text.split(b"@", 1)[0] if b"@" in text else text

    def _symbol(self, name: str, entry: int) -> Symbol:
        row = self._table[entry]
        version, hidden = "", False
        if self._versions is not None:
            index = int(self._versions[entry])
            hidden = bool(index & _HIDDEN)
            # 0 is local, 1 is the file itself.
            version = self._version_names.get(index & ~_HIDDEN, "") if index & ~_HIDDEN > 1 else ""
        return Symbol(name, int(row["value"]), int(self._offsets[entry]), int(row["size"]), version, not hidden)
