# SPDX-License-Identifier: Apache-2.0
"""Which process and thread a pid and a time mean: pids are reused, so identity is pid, start time and execs seen."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from fencepath.entities import NO_ENTITY, Entities, EntityIds
from fencepath.events import Batch, Column
from fencepath.records import Flags

__all__ = ["EXEC", "FORK", "ProcessTable"]

FORK = "process.fork"
EXEC = "process.exec"
THREAD_FLAG = 0x00010000
"""CLONE_THREAD of include/uapi/linux/sched.h."""


class _Lives:
    """Lives of one kind of id: for each id the times at which a new life began, with its entity."""

    def __init__(self) -> None:
        self._begins: dict[int, list[int]] = defaultdict(list)
        self._entities: dict[int, list[int]] = defaultdict(list)

    def add(self, number: int, from_ns: int, entity: int) -> None:
        self._begins[number].append(from_ns)
        self._entities[number].append(entity)

    def __contains__(self, number: int) -> bool:
        return number in self._begins

    def at(self, number: int, time_ns: int) -> int:
        """Entity of an id at a time: the life that had begun, or the first."""
        begins = self._begins[number]
        index = max(0, int(np.searchsorted(begins, time_ns, "right")) - 1)
        return self._entities[number][index]

    def begins(self, number: int, after_ns: int, before_ns: int) -> list[int]:
        """Times within a span at which a new life of an id began."""
        return [begin for begin in self._begins[number] if after_ns < begin < before_ns]

    def column(self, numbers: Column, times: Column) -> EntityIds:
        unique, inverse = np.unique(numbers, return_inverse=True)
        simple = np.array([self._entities[int(n)][0] if int(n) in self else NO_ENTITY for n in unique], np.int64)
        result = simple[inverse]
        for code, number in enumerate(unique.tolist()):
            begins = self._begins.get(number, ())
            if len(begins) > 1:
                rows = np.flatnonzero(inverse == code)
                index = np.maximum(
                    np.searchsorted(np.array(begins, np.int64), times[rows].astype(np.int64), "right") - 1, 0
                )
                result[rows] = np.array(self._entities[number], np.int64)[index]
        return result


class ProcessTable:
    """Names processes and threads from what the live machine knew (facts) and from fork and exec events.

    Facts used: ``process`` {pid, start_ticks, time_ns, ...} and ``thread`` {pid, tid, start_ticks, time_ns, name}.
    """

    def __init__(self, boot_id: str, facts: Iterable[Mapping[str, Any]], entities: Entities) -> None:
        self._boot = boot_id
        self._entities = entities
        self._processes = _Lives()
        self._threads = _Lives()
        self._facts = list(facts)
        self.names: dict[int, str] = {}
        """Thread names by thread entity."""
        self.details: dict[int, Mapping[str, Any]] = {}
        """The fact of each process entity."""
        self._described: set[int] = set()
        self.births: dict[int, tuple[int, int]] = {}
        """For threads whose creation was seen: (time_ns, tid of who created it), by thread entity."""

    def build(self, forks: Batch | None, execs: Batch | None) -> None:
        """Work out all lives; called once, before :meth:`identify`."""
        fork_rows = _rows(forks, ("time_ns", "tgid", "tid", "child_tid", "clone_flags"))
        born_threads: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        born_processes: dict[int, list[int]] = defaultdict(list)
        for time_ns, tgid, tid, child, flags in fork_rows:
            thread = bool(flags & THREAD_FLAG)
            born_threads[child].append((time_ns, tgid if thread else child, tid))
            if not thread:
                born_processes[child].append(time_ns)
        exec_times: dict[int, list[int]] = defaultdict(list)
        for time_ns, tgid in _rows(execs, ("time_ns", "tgid")):
            exec_times[tgid].append(time_ns)
        self._build_processes(born_processes, exec_times)
        self._build_threads(born_threads)

    def _build_processes(self, born: Mapping[int, list[int]], execs: Mapping[int, list[int]]) -> None:
        facts: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
        for fact in self._facts:
            if fact.get("type") == "process":
                facts[int(fact["pid"])].append(fact)
        for pid in sorted({*facts, *born, *execs}):
            births = sorted(born.get(pid, []))
            if not births or any(int(f["time_ns"]) < births[0] for f in facts[pid]):
                births.insert(0, 0)
            for index, birth in enumerate(births):
                until = births[index + 1] if index + 1 < len(births) else 1 << 63
                mine = [f for f in facts[pid] if birth <= int(f["time_ns"]) < until]
                start = str(mine[0]["start_ticks"]) if mine else f"~{birth}"
                points = [birth, *(t for t in sorted(execs.get(pid, [])) if birth <= t < until)]
                for count, point in enumerate(points):
                    entity = self._process(pid, start, count)
                    self._processes.add(pid, point, entity)
                    if mine:
                        self.details[entity] = mine[-1]

    def _process(self, pid: int, start: str, execs: int) -> int:
        return self._entities.intern(
            "process", (pid, start, execs), lambda: f"process:{self._boot}/{pid}@{start}#{execs}"
        )

    def _build_threads(self, born: Mapping[int, list[tuple[int, int, int]]]) -> None:
        facts: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
        for fact in self._facts:
            if fact.get("type") == "thread":
                facts[int(fact["tid"])].append(fact)
        for tid in sorted({*facts, *born}):
            births = sorted(born.get(tid, []))
            if not births or any(int(f["time_ns"]) < births[0][0] for f in facts[tid]):
                births.insert(0, (0, int(facts[tid][0]["pid"]) if facts[tid] else births[0][1], 0))
            for index, (birth, pid, parent) in enumerate(births):
                until = births[index + 1][0] if index + 1 < len(births) else 1 << 63
                mine = [f for f in facts[tid] if birth <= int(f["time_ns"]) < until]
                start = str(mine[0]["start_ticks"]) if mine else f"~{birth}"
                self._add_thread(tid, pid, start, birth, until)
                entity = self._threads.at(tid, birth)
                for fact in mine:
                    self.names[self._threads.at(tid, int(fact["time_ns"]))] = str(fact.get("name", ""))
                if parent:
                    self.births[entity] = (birth, parent)

    def _add_thread(self, tid: int, pid: int, start: str, birth: int, until: int) -> None:
        """A thread is part of its process, so an exec gives it a new identity too."""
        if pid not in self._processes:
            self._processes.add(pid, 0, self._process(pid, "?", 0))
        for point in (birth, *self._processes.begins(pid, birth, until)):
            process = self._processes.at(pid, point)
            entity = self._thread(tid, process, start)
            self._threads.add(tid, point, entity)
            self._described.add(entity)

    def _thread(self, tid: int, process: int, start: str) -> int:
        return self._entities.intern(
            "thread", (tid, process, start), lambda: f"thread:{self._entities.text(process)}/{tid}@{start}"
        )

    def identify(self, batch: Batch) -> None:
        """Add the columns ``process`` and ``thread``; :data:`NO_ENTITY` where the event was not in task context."""
        task = (batch["flags"] & int(Flags.TASK)) != 0
        times = batch["time_ns"]
        pairs = np.unique(batch["tgid"][task].astype(np.uint64) << np.uint64(32) | batch["tid"][task].astype(np.uint64))
        for pair in pairs.tolist():
            self._ensure(pair >> 32, pair & 0xFFFFFFFF)
        process = self._processes.column(batch["tgid"], times)
        thread = self._threads.column(batch["tid"], times)
        batch.columns["process"] = np.where(task, process, NO_ENTITY)
        batch.columns["thread"] = np.where(task, thread, NO_ENTITY)

    @property
    def known_threads(self) -> frozenset[int]:
        """Threads that the recorder described or saw being created: those of targets."""
        return frozenset(self._described)

    def threads(self, tids: Column, times: Column) -> EntityIds:
        """Thread entities of bare tids (``wakee_tid``, ``next_tid``); NO_ENTITY for threads never seen otherwise."""
        return self._threads.column(tids, times)

    def _ensure(self, tgid: int, tid: int) -> None:
        if tgid not in self._processes:
            self._processes.add(tgid, 0, self._process(tgid, "?", 0))
        if tid not in self._threads:
            self._threads.add(tid, 0, self._thread(tid, self._processes.at(tgid, 0), "?"))


def _rows(batch: Batch | None, names: tuple[str, ...]) -> list[tuple[int, ...]]:
    if batch is None or not len(batch):
        return []
    return list(zip(*(batch[name].tolist() for name in names), strict=True))
