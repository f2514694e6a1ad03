# SPDX-License-Identifier: Apache-2.0
"""Recordings of GPU jobs that never happened, to know exactly what must be read out of them.

    story = Jobs()
    story.queue(100, job=1, tid=7)
    story.run(150, job=1)
    story.done(300, job=1)
    analysis = story.analysis(tmp_path)

Jobs are numbered; unless said otherwise their fences have the context 5 and the number as seqno. Times are CLOCK_MONOTONIC
in ns.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from tests.core.synthetic import BOOT_ID, PID, Story, ToyPlugin

from fencepath._engine.activities import CONFIDENCES
from fencepath._loader import Registry, load_plugins
from fencepath.analysis import Analysis
from fencepath.events import Batch
from fencepath.plugin import AttributeValue
from fencepath.recording import KindInfo as RecordedKind
from fencepath.recording import Recording, RecordingWriter, new_manifest, open_recording
from fencepath.records import Flags
from fencepath.syscalls import syscall_layout
from fencepath_drm import plugin as drm
from fencepath_drm.clients import Reading
from fencepath_drm.fdinfo import parse_fdinfo
from fencepath_drm.ioctls import ioctl_table
from fencepath_drm.layouts import LAYOUTS
from fencepath_host import plugin as host
from fencepath_host.events import SWITCH_LAYOUT, WAKING_LAYOUT

__all__ = ["Jobs", "plugins"]

IRQ = Flags(0)
WORKER = 3
TABLE = ioctl_table("launch")


def plugins() -> Registry:
    """Core's own layers, ``drm``, ``host`` and ``toy``, which has calls and waits."""
    extra = {"drm": drm, "host": host, "toy": ToyPlugin()}
    return load_plugins(extra=extra, entry_points=False)


class Jobs(Story):
    """What shall have happened; every method is one event.

    Args:
        with_host: whether the scheduler's events were recorded.
    """

    def __init__(self, *, with_host: bool = False) -> None:
        super().__init__(sched=False)
        self.layouts.update(LAYOUTS)
        self.layouts.update({kind: syscall_layout(kind) for kind in TABLE.kinds})
        if with_host:
            self.layouts.update({layout.kind: layout for layout in (SWITCH_LAYOUT, WAKING_LAYOUT)})
        self._names: dict[int, tuple[int, int]] = {}

    def name(self, job: int, context: int, seqno: int) -> None:
        """Give a job another fence than the usual one."""
        self._names[job] = (context, seqno)

    def fence(self, job: int) -> tuple[int, int]:
        """Context and seqno of a job's finished fence."""
        return self._names.get(job, (5, job))

    def _job(self, job: int) -> dict[str, Any]:
        context, seqno = self.fence(job)
        return {"fence_context": context, "fence_seqno": seqno}

    def _on(self, job: int, scheduled: bool = False) -> dict[str, Any]:
        context, seqno = self.fence(job)
        return {"dependency_context": context - scheduled, "dependency_seqno": seqno}

    def queue(
        self, time_ns: int, job: int, tid: int, ring: str = "gfx", dev: str = "0000:03:00.0", **fields: Any
    ) -> None:
        """A thread queues a job."""
        texts: dict[str, Any] = {"ring": ring.encode(), "dev": dev.encode()}
        self.add("drm.job.queue", time_ns, tid, **self._job(job), **texts, **fields)

    def reads(self, time_ns: int, fdinfo: str, pid: int = PID, fd: int = 3) -> None:
        """The recorder reads a process's open device; `fdinfo` is what the kernel says."""
        client = parse_fdinfo(fdinfo)
        assert client is not None
        reading = Reading(pid=pid, fd=fd, time_ns=time_ns, **msgspec.structs.asdict(client))
        self._facts.append(("drm.client", msgspec.to_builtins(reading)))

    def run(self, time_ns: int, job: int) -> None:
        """The scheduler's worker hands a job over."""
        self.add("drm.job.run", time_ns, WORKER, IRQ, **self._job(job))

    def done(self, time_ns: int, job: int, *, signaled: bool = True, **fields: Any) -> None:
        """A job is done, and unless said otherwise its fence is signalled in the same interrupt."""
        self.add("drm.job.done", time_ns, 0, IRQ, **self._job(job), **fields)
        if signaled:
            self.signal(time_ns + 1, job, **fields)

    def signal(self, time_ns: int, job: int, tid: int = 0, **fields: Any) -> None:
        """A job's finished fence is signalled."""
        context, seqno = self.fence(job)
        self.signal_other(time_ns, context, seqno, tid, **fields)

    def signal_other(self, time_ns: int, context: int, seqno: int, tid: int = 0, **fields: Any) -> None:
        """Any fence is signalled."""
        short: dict[str, Any] = {"context": context & 0xFFFFFFFF, "seqno": seqno & 0xFFFFFFFF}
        self.add("drm.fence.signaled", time_ns, tid, IRQ, **short, **fields)

    def depends(self, time_ns: int, job: int, on: int, candidates: int = 1) -> None:
        """A job depends on another."""
        named = self._job(job) if candidates == 1 else {}
        self.add("drm.job.dependency", time_ns, WORKER, IRQ, **named, **self._on(on), candidates=candidates)

    def depends_on_other(self, time_ns: int, job: int, context: int, seqno: int) -> None:
        """A job depends on a fence that is no job's."""
        on: dict[str, Any] = {"dependency_context": context, "dependency_seqno": seqno}
        self.add("drm.job.dependency", time_ns, WORKER, IRQ, **self._job(job), **on, candidates=1)

    def blocked(self, time_ns: int, job: int, on: int, *, scheduled: bool = False) -> None:
        """The scheduler finds that a dependency is not signalled."""
        self.add("drm.job.blocked", time_ns, WORKER, IRQ, **self._job(job), **self._on(on, scheduled))

    def fence_wait(self, begin: int, end: int, tid: int, context: int, seqno: int) -> None:
        """A thread waits in the kernel for a fence."""
        short: dict[str, Any] = {"context": context & 0xFFFFFFFF, "seqno": seqno & 0xFFFFFFFF}
        self.add("drm.fence.wait", end, tid, begin_ns=begin, driver=b"drm_sched", timeline=b"gfx", **short)

    def wakes(self, time_ns: int, tid: int, context: int, seqno: int, current: int = 0, **fields: Any) -> None:
        """The signal of a fence wakes a thread, and says so."""
        short: dict[str, Any] = {"context": context & 0xFFFFFFFF, "seqno": seqno & 0xFFFFFFFF}
        self.add("drm.fence.wake", time_ns, current, IRQ, wakee_tid=tid, **short, **fields)

    def stands_for(
        self, time_ns: int, whole: tuple[int, int], part: tuple[int, int], *, point: bool, prev: int = 0
    ) -> None:
        """A fence is a point of a timeline, after another one, or merged, and this is what it stands for."""
        short: dict[str, Any] = {"context": whole[0] & 0xFFFFFFFF, "seqno": whole[1] & 0xFFFFFFFF}
        full: dict[str, Any] = {"part_context": part[0], "part_seqno": part[1], "prev_seqno": prev}
        self.add("drm.fence.part", time_ns, 0, IRQ, is_point=int(point), **short, **full)

    def ioctl(self, kind: str, begin: int, end: int, tid: int, function: int, **fields: Any) -> None:
        """A system call on a DRM device."""
        self.add(kind, end, tid, begin_ns=begin, function=function, **fields)

    def leaves(self, time_ns: int, tid: int, cpu: int = 0) -> None:
        """A thread goes to sleep."""
        self.add("host.switch", time_ns, tid, next_tid=0, prev_state=1, cpu=cpu)

    def enters(self, time_ns: int, tid: int, cpu: int = 0) -> None:
        """A thread gets a CPU that was idle."""
        self.add("host.switch", time_ns, 0, IRQ, next_tid=tid, prev_state=0, cpu=cpu)

    def woken(self, time_ns: int, tid: int, current: int = 0, cpu: int = 0) -> None:
        """An interrupt on a CPU wakes a thread."""
        self.add("host.waking", time_ns, current, IRQ, wakee_tid=tid, cpu=cpu)

    def analysed(self, folder: Path, **options: Any) -> Told:
        """Write the recording and analyse it."""
        analysis = Analysis(self.write(folder / "r.fencepath"), plugins(), **options)
        assert analysis.problems == ()
        return Told(analysis, {self.fence(job): job for job in [*range(1, 200), *self._names]})

    def write(self, path: Path, shuffled: random.Random | None = None) -> Recording:
        """Write the recording, with what a manifest keeps of system calls, and open it."""
        kinds = {
            kind: RecordedKind(number=number, layer=kind.split(".")[0], fields=layout.fields)
            for number, (kind, layout) in enumerate(self.layouts.items())
        }
        functions = {kind: TABLE.recorded(kind) for kind in TABLE.kinds} | {"toy": tuple(self._functions)}
        manifest = new_manifest(kinds, boot_id=BOOT_ID, host="toyhost", kernel="6.99.0", functions=functions)
        with RecordingWriter(path, manifest) as writer:
            for kind, records in list(self._pieces(shuffled)):
                writer.append(kind, records)
                writer.flush()
            for name, fact in self._facts:
                writer.fact(name, fact)
            writer.loss(self._losses)
        return open_recording(path)


class Told:
    """What is said of a story, with jobs by their numbers."""

    def __init__(self, analysis: Analysis, numbers: Mapping[tuple[int, int], int]) -> None:
        self.analysis = analysis
        self._numbers = numbers

    def batch(self, kind: str) -> Batch:
        return self.analysis.view.batch(kind)

    def texts(self, kind: str, column: str) -> list[str]:
        """Texts of the entities in a column, "" for none."""
        return [self.analysis.entity_text(one) if one >= 0 else "" for one in self.batch(kind)[column].tolist()]

    def job_of(self, text: str) -> int:
        """Number of the job whose fence has this text, 0 for none's."""
        context, seqno = text.split("/")[-2:]
        return self._numbers.get((int(context), int(seqno)), 0)

    def jobs(self, kind: str, column: str = "fence") -> list[int]:
        return [self.job_of(text) if text else 0 for text in self.texts(kind, column)]

    def spans(self, kind: str) -> dict[int, tuple[int, int]]:
        """Begin and end of each job's event of a kind; those of other fences are left out."""
        batch = self.batch(kind)
        every = zip(self.jobs(kind), batch["begin_ns"].tolist(), batch["time_ns"].tolist(), strict=True)
        found = [row for row in every if row[0]]
        assert len({job for job, _, _ in found}) == len(found)
        return {job: (begin, end) for job, begin, end in found}

    def edges(self, rule: str) -> set[tuple[int, int]]:
        """Jobs of cause and effect of a rule's edges."""
        edges, table = self.analysis.edges, self.analysis.table
        if rule not in edges.rules:
            return set()
        mine = np.flatnonzero(edges.rule == edges.rules.index(rule))
        number: Callable[[int], int] = lambda activity: self._job_at(*table.locate(activity))  # noqa: E731
        return {(number(int(edges.cause[i])), number(int(edges.effect[i]))) for i in mine}

    def confidences(self, rule: str) -> set[str]:
        """How sure a rule's edges are."""
        edges = self.analysis.edges
        return {CONFIDENCES[code] for code in edges.confidence[edges.rule == edges.rules.index(rule)].tolist()}

    def _job_at(self, kind: str, row: int) -> int:
        return self.jobs(kind)[row] if "fence" in self.batch(kind) else -1

    def count(self, rule: str) -> tuple[int, int, int]:
        """What a rule matched, did not match, and found ambiguous."""
        (found,) = (count for count in self.analysis.joins if count.rule == rule)
        assert not found.off
        return found.matched, found.unmatched, found.ambiguous

    def table(self, name: str) -> list[dict[str, AttributeValue | None]]:
        """Rows of one of the layer's tables."""
        return [dict(row) for row in self.analysis.tables(self.analysis.requests)["drm"][name].rows]

    def unmatched(self) -> dict[str, int]:
        """The table ``unmatched``."""
        return {str(row["what"]): int(row["count"] or 0) for row in self.table("unmatched")}
