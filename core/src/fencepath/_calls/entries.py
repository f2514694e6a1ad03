# SPDX-License-Identifier: Apache-2.0
"""Calls that have been entered and have not returned, read from the map in which the BPF programs keep them."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Self

import msgspec
import numpy as np
import numpy.typing as npt

from fencepath._bpf.maps import Map
from fencepath._calls.captures import SHAPES
from fencepath._calls.dead import ended_ns, inside, stack_is_gone
from fencepath._calls.returns import return_defines
from fencepath.records import CALL_HEAD, Field, Flags, Layouts, RecordLayout, Records

__all__ = ["Abandoned", "End", "EntryState"]

_MOST_ARGS = max(shape.args for shape in SHAPES)

# struct fp_entry_key and struct fp_entry of calls.h.
_KEY = np.dtype([("sp", "<u8"), ("tid", "<u4"), ("function", "<u4"), ("kind", "<u4"), ("reserved", "<u4")])
_ENTRY = RecordLayout("entry", (*CALL_HEAD, Field("args", f"u64[{_MOST_ARGS}]"))).dtype
_STATE = np.dtype([("empty", _ENTRY), ("inserted", "<u8"), ("deleted", "<u8"), ("deleted_by_user", "<u8")])
# A key and its value, as one row.
_OPEN = np.dtype([("key", _KEY), ("entry", _ENTRY)])

_UNUSED_NS = 10**9


class End(enum.StrEnum):
    """How a call ended that never returned."""

    EXIT = "exit"
    """Its thread exited, or its process became another program."""
    UNWOUND = "unwound"
    """Left by longjmp or the like: a call around it has returned, or its thread's stack has been taken down past it."""


class Abandoned(msgspec.Struct, frozen=True):
    """Calls that will never return and were taken out of the entry state.

    Attributes:
        records: those that were open when their thread ended, by kind, as OPEN records whose ``time_ns`` is that end.
        counts: how many there were of each (end, kind), unwound ones too.
        since_ns: for each of those the least begin, CLOCK_MONOTONIC.
    """

    records: Mapping[str, Records]
    counts: Mapping[tuple[End, str], int]
    since_ns: Mapping[tuple[End, str], int]


class EntryState:
    """The map of open calls, shared by the BPF objects of every layer.

    Args:
        layouts: of all kinds that are recorded, with their numbers.
        max_entries: most calls that can be open at once; more are counted as lost (``MAP_FULL``). A quarter of
            them may be kept for calls to come.
    """

    def __init__(self, layouts: Layouts, max_entries: int = 16384) -> None:
        self._layouts = {layouts.number(kind): layout for kind, layout in layouts.items()}
        self._entries = Map.hash("fp_entries", _KEY.itemsize, _ENTRY.itemsize, max_entries)
        self._kept = max_entries // 4
        self._state_map = Map.array("fp_entries_state", _STATE.itemsize, 1, mmapable=True)
        self._memory = self._state_map.mmap()
        self._state = np.frombuffer(self._memory, _STATE, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def defines(self) -> dict[str, str | int]:
        """Return the macros that ``calls.h`` asks for."""
        return {
            "FP_ENTRIES_FD": self._entries.fd,
            "FP_ENTRIES_KEPT": self._kept,
            "FP_ENTRIES_STATE_FD": self._state_map.fd,
            **return_defines(),
        }

    def open_calls(self, now_ns: int, least_ns: int = 0) -> dict[str, Records]:
        """Return the calls that are open, by kind, as records with :attr:`Flags.OPEN`. They stay in the map.

        (tid, function, begin_ns) tells a call, so that a later record of it replaces the one given here.

        Args:
            now_ns: CLOCK_MONOTONIC, taken before the call; becomes ``time_ns``.
            least_ns: leave out calls that have been open for less.
        """
        found = _open(self._read())
        begin_ns = found["entry"]["begin_ns"].astype(np.int64)
        return self._records(found[now_ns - begin_ns >= least_ns] if least_ns else found, now_ns)

    def abandoned(
        self,
        *,
        returned: Iterable[Records] = (),
        threads: Mapping[int, int] | None = None,
        processes: Mapping[int, int] | None = None,
    ) -> Abandoned:
        """Take out the calls that will never return; to be called every second or so.

        A call is unwound if it began inside one of `returned`, as calls of a thread nest; or if its thread has since
        entered another call, or sleeps in the kernel, with a stack pointer above it on the same stack. The former is
        wrong for a program that switches stacks inside a probed call (coroutines): such a call is lost, counted as a
        return without entry when it returns.

        Args:
            returned: call records read since the last time, of any kinds.
            threads: by tid, when it exited, CLOCK_MONOTONIC in ns.
            processes: by tgid, when it exited or executed another program, likewise.
        """
        every = self._read()
        self._forget(every, threads or {}, processes or {})
        found = _open(every)
        ends = ended_ns(found, threads or {}, processes or {})
        left = inside(found, returned) | stack_is_gone(found)
        exited = self._remove(found[ends > 0])
        unwound = self._remove(found[left & (ends == 0)])
        counts: Counter[tuple[End, str]] = Counter()
        since_ns: dict[tuple[End, str], int] = {}
        for end, rows in ((End.EXIT, exited), (End.UNWOUND, unwound)):
            for number, begin_ns in zip(rows["key"]["kind"].tolist(), rows["entry"]["begin_ns"].tolist(), strict=True):
                key = (end, self._layouts[number].kind)
                counts[key] += 1
                since_ns[key] = min(begin_ns, since_ns.get(key, begin_ns))
        records = self._records(exited, ended_ns(exited, threads or {}, processes or {}))
        return Abandoned(records, counts, since_ns)

    def close(self) -> None:
        """Let go of the maps; loaded programs keep them."""
        if self._entries.fd < 0:
            return
        del self._state
        self._memory.close()
        self._entries.close()
        self._state_map.close()

    def _read(self) -> Records:
        raw = b"".join(key + value for key, value in self._entries.items())
        found: Records = np.frombuffer(raw, _OPEN)
        known = np.isin(found["key"]["kind"], list(self._layouts))
        mine: Records = found[known]
        return mine

    def _forget(self, every: Records, threads: Mapping[int, int], processes: Mapping[int, int]) -> None:
        """Delete free entries: those of threads that ended and, if too many are kept, those not used for a second."""
        entries = every["entry"]
        free = entries["begin_ns"] == 0
        unused = ended_ns(every, threads, processes) > 0
        if len(every) > self._kept:
            unused |= entries["time_ns"] + np.uint64(_UNUSED_NS) < entries["time_ns"].max()
        self._remove(every[free & unused])

    def _records(self, found: Records, time_ns: int | npt.NDArray[np.uint64]) -> dict[str, Records]:
        times = np.broadcast_to(np.asarray(time_ns, np.uint64), found.shape)
        kinds = found["key"]["kind"]
        records: dict[str, Records] = {}
        for number in np.unique(kinds).tolist():
            layout, rows = self._layouts[number], kinds == number
            records[layout.kind] = _as_records(layout, found[rows], times[rows])
        return records

    def _remove(self, found: Records) -> Records:
        """Take rows out of the map and return those that were still there, not replaced by a newer call."""
        still = np.zeros(len(found), np.bool_)
        for index, row in enumerate(found):
            key = row["key"].tobytes()
            value = self._entries.lookup(key)
            if value is not None and np.frombuffer(value, _ENTRY)[0]["begin_ns"] == row["entry"]["begin_ns"]:
                still[index] = self._entries.delete(key)
        self._state["deleted_by_user"] += np.uint64(np.count_nonzero(still))
        return found[still]


def _open(found: Records) -> Records:
    # A begin of 0: free, or being filled in at this moment.
    rows: Records = found[found["entry"]["begin_ns"] != 0]
    return rows


def _as_records(layout: RecordLayout, found: Records, times: npt.NDArray[np.uint64]) -> Records:
    entries = found["entry"]
    records = np.zeros(len(found), layout.dtype)
    for field in CALL_HEAD:
        records[field.name] = entries[field.name]
    records["args"] = entries["args"][:, : layout.dtype["args"].shape[0]]
    records["flags"] |= np.uint32(Flags.OPEN)
    records["time_ns"] = np.maximum(times, entries["begin_ns"])
    return records
