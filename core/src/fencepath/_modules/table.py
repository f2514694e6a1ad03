# SPDX-License-Identifier: Apache-2.0
"""Modules of a recording, and which of them an address lies in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from fencepath._modules.history import History
from fencepath._modules.intervals import Intervals
from fencepath.events import Column
from fencepath.recording import Fact, Recording

__all__ = ["NO_MODULE", "CodeName", "Located", "Module", "ModuleKind", "Modules"]

T = TypeVar("T", bound=msgspec.Struct)

_MOST_MODULES = 1 << 20

NO_MODULE = -1
"""In place of a module: it is not known whose code an address is."""

ModuleKind: TypeAlias = Literal["file", "memory", "anonymous", "kernel"]


class Module(msgspec.Struct, frozen=True, kw_only=True):
    """Something that code of a process is in.

    Attributes:
        kind: ``file``; ``memory`` if it is a file in memory only (memfd_create); ``anonymous`` if it is memory without a file,
            as just-in-time compilers make; ``kernel`` if the kernel has put it there (``[vdso]``).
        path: as the process saw it; of memory without a file ``""`` or what the kernel calls it.
        soname: name that the file gives itself, ``""`` if none.
        build_id: GNU build-id in hex, ``""`` if there is none, None if the file was gone before it could be read.
    """

    kind: ModuleKind
    path: str
    soname: str = ""
    build_id: str | None = ""

    @property
    def name(self) -> str:
        """Short, for display: ``libcublas.so.13``, ``python3.11``, ``[vdso]``, ``[anonymous]``."""
        if self.kind == "anonymous":
            return self.path or "[anonymous]"
        return self.soname or self.path.rsplit("/", 1)[-1]


class Located(NamedTuple):
    """Where addresses lie.

    Attributes:
        module: index in :class:`Modules` for each, int32; :data:`NO_MODULE` if it is not known.
        offset: in the file, bytes, int64; where there is no file, from the begin of the mapping. 0 if it is not known.
    """

    module: npt.NDArray[np.int32]
    offset: npt.NDArray[np.int64]


class CodeName(msgspec.Struct, frozen=True):
    """A function at an address.

    Attributes:
        name: as in the file, not demangled.
        how: ``symbol`` from a symbol table; ``registration`` from the call by which the program made it known under that name;
            ``like_registration`` if that may have been a call of another function.
    """

    name: str
    how: str


class _ModuleFact(Module, frozen=True, kw_only=True):
    module: int


class _NameFact(msgspec.Struct, frozen=True):
    module: int
    offset: int
    name: str
    how: str


class Modules:
    """The modules of a recording, as a sequence, and what lies at addresses of its processes.

    Args:
        recording: read at once; works on any machine.
    """

    def __init__(self, recording: Recording | None) -> None:
        facts = recording.facts() if recording is not None else []
        self._modules: list[Module] = []
        self._index: dict[int, int] = {}
        self._history = History(facts)
        self._intervals: dict[int, Intervals] = {}
        self._names: dict[int, dict[int, CodeName]] = defaultdict(dict)
        for fact in facts:
            self._take(fact)

    def __len__(self) -> int:
        return len(self._modules)

    def __getitem__(self, index: int) -> Module:
        if index < 0:
            raise IndexError(f"{index} is no module")
        return self._modules[index]

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules)

    def locate(self, pids: Column, times_ns: Column, addresses: Column) -> Located:
        """Find what each address is in, in its process and at its time.

        Args:
            pids: processes, as in the column ``tgid``.
            times_ns: CLOCK_MONOTONIC, such as ``begin_ns``.
            addresses: such as ``caller_ip``.
        """
        module = np.full(len(addresses), NO_MODULE, np.int32)
        offset = np.zeros(len(addresses), np.int64)
        for pid in np.unique(pids).tolist():
            rows = np.flatnonzero(pids == pid)
            times = times_ns[rows].astype(np.int64)
            found, at = self._of(pid).find(times, addresses[rows].astype(np.uint64))
            module[rows], offset[rows] = found, at
        return Located(*self._known(module, offset))

    def _known(
        self, number: npt.NDArray[np.int32], offset: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """Turn the recording's numbers into indices; those whose fact is missing (a damaged file) are not known."""
        index = np.full(max(self._index, default=-1) + 2, NO_MODULE, np.int32)
        index[list(self._index)] = list(self._index.values())
        # what is beyond them, and -1 too, leads to the last
        module = index[np.where((number >= 0) & (number < len(index)), number, len(index) - 1)]
        return module, np.where(module == NO_MODULE, 0, offset)

    def names(self, located: Located) -> list[CodeName | None]:
        """Return the function at each place, None where it was not asked for while recording or has no name.

        Only the columns that a layer declares as addresses of functions are asked for (:class:`CodeAddresses`).
        """
        pairs = zip(located.module.tolist(), located.offset.tolist(), strict=True)
        return [self._names[module].get(offset) if module in self._names else None for module, offset in pairs]

    def _of(self, pid: int) -> Intervals:
        if pid not in self._intervals:
            self._intervals[pid] = Intervals(self._history.rows(pid))
        return self._intervals[pid]

    def _take(self, fact: Fact) -> None:
        if fact.type == "module":
            found = _converted(fact.data, _ModuleFact)
            if found is not None and 0 <= found.module < _MOST_MODULES:
                self._index[found.module] = len(self._modules)
                self._modules.append(
                    Module(kind=found.kind, path=found.path, soname=found.soname, build_id=found.build_id)
                )
        elif fact.type == "code_name":
            name = _converted(fact.data, _NameFact)
            if name is not None and name.module in self._index:
                self._names[self._index[name.module]][name.offset] = CodeName(name.name, name.how)


def _converted(data: dict[str, Any], form: type[T]) -> T | None:
    try:
        return msgspec.convert(data, form)
    except msgspec.ValidationError:
        return None
