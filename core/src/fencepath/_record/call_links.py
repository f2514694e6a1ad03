# SPDX-License-Identifier: Apache-2.0
"""Attaches the programs of a call table at places in a file: which program, with which cookie, with or without its return."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fencepath._bpf.attach import UprobeMethod, attach_uprobes
from fencepath._bpf.sys import ProgramType
from fencepath._libraries import ProbePoint
from fencepath._record.programs import LoadedSet
from fencepath.calls import CallTable
from fencepath.errors import FencepathError
from fencepath.plugin import Detail
from fencepath.records import Layouts

__all__ = ["CallLinks", "Points"]

Points = Mapping[int, Iterable[ProbePoint]]
"""Where probes of functions go, by the functions' index in their table."""


class CallLinks:
    """Attaches call programs.

    Args:
        layouts: of the recording.
        detail: which functions are on.
        exact: record the end of hot asynchronous calls too.
        returns: whether return probes may be used at all.
        method: how uprobes are attached here.
    """

    def __init__(self, layouts: Layouts, detail: Detail, *, exact: bool, returns: bool, method: UprobeMethod) -> None:
        self._layouts = layouts
        self._detail: Detail = detail
        self._exact = exact
        self._returns = returns
        self._method = method

    def load(self, loaded: LoadedSet, program: str) -> int:
        """Load a program, or return the descriptor of one that is loaded.

        Raises:
            LoadError: the verifier refuses it.
        """
        return loaded.bpf.load(program, ProgramType.UPROBE, self._method.attach_type)

    def pairs(self, table: CallTable, index: int) -> bool:
        """Whether a function's return is probed too."""
        function = table.functions[index]
        if not self._returns or not function.no_unwind:
            return False
        return self._exact or not function.entry_only

    def attach(self, loaded: LoadedSet, table: CallTable, points: Points, path: str) -> None:
        """Attach at all points or, if that fails, at none.

        Args:
            loaded: the set with the table's programs; it gets the links.
            table: the functions'.
            points: of functions that are on at this detail.
            path: of the file.

        Raises:
            FencepathError: a program or a probe is refused.
        """
        before = len(loaded.links)
        try:
            for program in table.programs(self._detail):
                mine = {index: points[index] for index in program.functions if index in points}
                paired = {index: found for index, found in mine.items() if self.pairs(table, index)}
                single = {index: found for index, found in mine.items() if index not in paired}
                # returns first: an entry whose return is not probed yet would stay open for ever
                self._link(loaded, table, program.exit, paired, path, returning=True)
                self._link(loaded, table, program.entry, paired, path, returning=False)
                self._link(loaded, table, program.once, single, path, returning=False)
        except FencepathError:
            # half of them would be there twice if it went well the next time
            while len(loaded.links) > before:
                loaded.links.pop().close()
            raise

    def _link(
        self, loaded: LoadedSet, table: CallTable, program: str, points: Points, path: str, *, returning: bool
    ) -> None:
        pairs = [
            (point.offset, table.cookie(index, self._layouts.number(table.functions[index].kind)))
            for index, found in points.items()
            for point in found
        ]
        if not pairs:
            return
        fd = self.load(loaded, program)
        offsets, cookies = zip(*pairs, strict=True)
        loaded.links.append(attach_uprobes(fd, path, offsets, cookies, returning=returning, method=self._method))
