# SPDX-License-Identifier: Apache-2.0
"""Errors of GPUs and switches from the driver's tracepoints and its lines in the kernel's log, each counted once.

The driver writes the line and raises the tracepoint for one error, on one thread. The line alone names the process that made
the failing channel, and is there with every version; the tracepoint alone is never split or merged with other lines.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np

from fencepath.entities import NO_ENTITY, Entities
from fencepath.events import Batch, Column, columns_of
from fencepath.joins import Events, GraphRule
from fencepath_nvidia.events import Error
from fencepath_nvidia.kinds import ERROR, LOG, RECORDED_CALLS, SXID, XID

__all__ = ["ErrorMaker", "Occurrence", "merged", "parse_line"]

BUS_LOST = 79
"""Xid of a GPU that does not answer on PCIe; the driver also writes lines without a number about it."""

_SAME_NS = 1_000_000_000
"""A line and a tracepoint of one code and GPU are one error if they are no further apart."""

_PCI = r"(?P<gpu>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2})(?:\.[0-7])?"
_XID = re.compile(
    r"(?P<switch>S?)Xid \((?:PCI:)?"
    + _PCI
    + r"(?: GPU-I:(?P<instance>\d+)(?: GPU-CI:\d+)?)?\): (?P<code>\d+)(?P<rest>.*)",
    re.IGNORECASE,
)
_WHO = re.compile(r", pid='?(?P<pid>\d+|<unknown>)'?, name=(?P<name>.*?)(?:, |$)")
_BUS = re.compile(r"GPU (?:at PCI:)?" + _PCI + r".*fallen off the bus", re.IGNORECASE)
_HIGHEST_CODE = 0xFFFFFFFF


class Occurrence(msgspec.Struct, frozen=True, kw_only=True):
    """One error as one source tells it; attributes as of :class:`fencepath_nvidia.events.Error`."""

    time_ns: int
    code: int
    gpu: str
    of_switch: bool = False
    gpu_instance: int = -1
    pid: int = 0
    program: str = ""
    message: str = ""
    by_tracepoint: bool = False
    by_log: bool = False
    cpu: int = 0


def parse_line(text: str, time_ns: int = 0, cpu: int = 0) -> list[Occurrence]:
    """Return the errors that a line of the kernel's log tells of.

    Args:
        text: one message; several lines if the kernel merged them.
        time_ns: when it was written, CLOCK_MONOTONIC.
        cpu: where.
    """
    found: list[Occurrence] = []
    for line in text.splitlines():
        xid, bus = _XID.search(line), _BUS.search(line)
        if xid is not None and int(xid["code"]) <= _HIGHEST_CODE:
            found.append(_of_xid(xid, time_ns, cpu))
        elif bus is not None:
            found.append(
                Occurrence(time_ns=time_ns, cpu=cpu, code=0, gpu=_address(bus["gpu"]), message=line, by_log=True)
            )
    return found


def _of_xid(match: re.Match[str], time_ns: int, cpu: int) -> Occurrence:
    rest = match["rest"]
    who = _WHO.match(rest)
    pid, program = (who["pid"], who["name"]) if who else ("", "")
    return Occurrence(
        time_ns=time_ns,
        cpu=cpu,
        code=int(match["code"]),
        gpu=_address(match["gpu"]),
        of_switch=bool(match["switch"]),
        gpu_instance=int(match["instance"] or -1),
        pid=int(pid) if pid.isdigit() and int(pid) <= _HIGHEST_CODE else 0,
        program="" if program == "<unknown>" else program,
        message=(rest[who.end() :] if who else rest).strip(", "),
        by_log=True,
    )


def _address(text: str) -> str:
    """A PCI address without function, lower case, the domain in four digits."""
    domain, _, rest = text.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest.split('.')[0]}"


def merged(lines: Sequence[Occurrence], raised: Sequence[Occurrence]) -> list[Occurrence]:
    """Return each error once, by time.

    Args:
        lines: from the log.
        raised: from tracepoints.
    """
    waiting: dict[tuple[bool, int, str], list[Occurrence]] = defaultdict(list)
    for line in sorted(lines, key=lambda each: each.time_ns):
        waiting[line.of_switch, line.code, line.gpu].append(line)
    found: list[Occurrence] = []
    for each in sorted(raised, key=lambda each: each.time_ns):
        same = waiting[each.of_switch, each.code, each.gpu]
        twin = next((line for line in same if abs(line.time_ns - each.time_ns) <= _SAME_NS), None)
        if twin is None:
            found.append(each)
        else:
            same.remove(twin)
            found.append(msgspec.structs.replace(twin, message=each.message or twin.message, by_tracepoint=True))
    found += [line for same in waiting.values() for line in same]
    return sorted(_without_repeats(found), key=lambda each: each.time_ns)


def _without_repeats(found: Sequence[Occurrence]) -> Iterator[Occurrence]:
    """Leave out lines without a number that say what an Xid said at the same time, or an earlier such line."""
    lost: dict[str, list[int]] = defaultdict(list)
    for each in found:
        if each.code == BUS_LOST and not each.of_switch:
            lost[each.gpu].append(each.time_ns)
    for each in sorted(found, key=lambda each: each.time_ns):
        if each.code == 0 and not each.of_switch:
            if any(abs(time_ns - each.time_ns) <= _SAME_NS for time_ns in lost[each.gpu]):
                continue
            lost[each.gpu].append(each.time_ns)
        yield each


class ErrorMaker:
    """Makes ``nvidia.error``; implements :class:`fencepath.joins.Derived`."""

    kinds = (ERROR,)

    def derive(self, events: Events, entities: Entities) -> Sequence[Batch]:
        """Return the errors. Their process is the one that the driver names, if it was recorded."""
        del entities
        found = merged(list(_lines(events)), [*_raised(events, XID), *_raised(events, SXID)])
        return [_batch(found, _processes(events, found))] if found else []

    def rules(self) -> Sequence[GraphRule]:
        """Return none: what an error caused is not known."""
        return ()


def _lines(events: Events) -> Iterator[Occurrence]:
    batch = events.batch(LOG)
    for text, time_ns, cpu in zip(*_plain(batch, "text", "time_ns", "cpu"), strict=True):
        yield from parse_line(text, time_ns, cpu)


def _raised(events: Events, kind: str) -> Iterator[Occurrence]:
    batch = events.batch(kind)
    for time_ns, cpu, code, dev, text in zip(*_plain(batch, "time_ns", "cpu", "code", "dev", "message"), strict=True):
        found = re.search(_PCI, dev, re.IGNORECASE)
        yield Occurrence(
            time_ns=time_ns,
            cpu=cpu,
            code=code,
            gpu=_address(found["gpu"]) if found else dev,
            of_switch=kind == SXID,
            message=text.strip(),
            by_tracepoint=True,
        )


def _plain(batch: Batch, *names: str) -> list[list[object]]:
    return [batch[name].tolist() for name in names]


def _processes(events: Events, found: Sequence[Occurrence]) -> list[int]:
    """Process entity of each error: of its pid, as this layer's calls knew it last."""
    calls: dict[int, list[tuple[int, int]]] = defaultdict(list)
    wanted = {each.pid for each in found if each.pid}
    for kind in RECORDED_CALLS:
        batch = events.batch(kind)
        if not len(batch):
            continue
        rows = np.isin(batch["tgid"], list(wanted))
        columns = (batch[name][rows].tolist() for name in ("tgid", "time_ns", "process"))
        for tgid, time_ns, process in zip(*columns, strict=True):
            calls[tgid].append((time_ns, process))
    return [_last(sorted(calls.get(each.pid, [])), each.time_ns) for each in found]


def _last(calls: Sequence[tuple[int, int]], time_ns: int) -> int:
    before = [process for at, process in calls if at <= time_ns]
    return before[-1] if before else NO_ENTITY


def _batch(found: Sequence[Occurrence], processes: Sequence[int]) -> Batch:
    dtypes = columns_of(Error)
    given: Mapping[str, Sequence[object]] = {
        "begin_ns": [each.time_ns for each in found],
        "tgid": [each.pid for each in found],
        "tid": [0] * len(found),
        "flags": [0] * len(found),
    }
    columns: dict[str, Column] = {
        name: np.array(given.get(name) or [getattr(each, name) for each in found], dtype)
        for name, dtype in dtypes.items()
    }
    columns["process"] = np.array(processes, np.int64)
    columns["thread"] = np.full(len(found), NO_ENTITY, np.int64)
    return Batch(ERROR, columns)
