# SPDX-License-Identifier: Apache-2.0
"""Records of the GPU scheduler's events by generated programs, with old and new names, to hold against the driver's truth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
from tests.kernel.mockgpu_client import Fence, Job

from fencepath._bpf.attach import attach_tracepoint
from fencepath._bpf.compiler import BpfObject
from fencepath._bpf.losses import Stage
from fencepath._bpf.rings import Rings
from fencepath._bpf.shared import Shared
from fencepath._bpf.sys import ProgramType
from fencepath.records import Records
from fencepath.tracepoints import (
    Always,
    From,
    LiveTracepoints,
    Resolved,
    Take,
    TracepointRecord,
    accessors_header,
    generate_program,
    program_name,
)

__all__ = ["DEPENDENCY", "DONE", "QUEUE", "RUN", "SIGNALED", "JobRecorder"]

_GROUP = "gpu_scheduler"
_FENCE = (Take("fence_context", "u64"), Take("fence_seqno", "u64"))
_JOB = (*_FENCE, Take("name", "char[16]", as_="ring"), Take("dev", "char[32]"), Take("client_id", "u64"))
_OLD_JOB = (Take("fence", "u64", as_="fence_address"), Take("name", "char[16]", as_="ring"), Take("id", "u64"))


def _record(
    kind: str, event: str, fields: Sequence[Take], old_event: str, old_fields: Sequence[Take]
) -> TracepointRecord:
    alternatives = (From(_GROUP, old_event, tuple(old_fields)),)
    return TracepointRecord(kind, _GROUP, event, tuple(fields), alternatives, when=(Always(),))


QUEUE = _record("mock.queue", "drm_sched_job_queue", _JOB, "drm_sched_job", _OLD_JOB)
RUN = _record("mock.run", "drm_sched_job_run", _JOB, "drm_run_job", _OLD_JOB)
DONE = _record("mock.done", "drm_sched_job_done", _FENCE, "drm_sched_process_job", _OLD_JOB[:1])
DEPENDENCY = _record(
    "mock.dependency",
    "drm_sched_job_unschedulable",
    (Take("ctx", "u64"), Take("seqno", "u64")),
    "drm_sched_job_wait_dep",
    (Take("ctx", "u64"), Take("seqno", "u64")),
)
SIGNALED = TracepointRecord(
    "mock.signaled",
    "dma_fence",
    "dma_fence_signaled",
    (Take("context", "u64"), Take("seqno", "u64"), Take("timeline", "char[16]")),
    when=(Always(),),
)
_RECORDS = (QUEUE, RUN, DONE, DEPENDENCY, SIGNALED)


class JobRecorder:
    """The programs, attached while it is open.

    Attributes:
        resolved: by kind, what this kernel gives.
        old: whether the events have the names of before 6.17.
    """

    def __init__(self) -> None:
        kernel = LiveTracepoints()
        found = {record.kind: record.resolve(kernel) for record in _RECORDS}
        self.resolved = {kind: one for kind, one in found.items() if isinstance(one, Resolved)}
        assert len(self.resolved) == len(_RECORDS), [str(one) for one in found.values()]
        choices = {one.choice for kind, one in self.resolved.items() if kind != SIGNALED.kind}
        assert len(choices) == 1, "old and new names at once"
        self.old = choices == {1}
        self._numbers = {record.kind: number for number, record in enumerate(_RECORDS, 3)}
        self._shared = Shared(self._numbers, rings=Rings(4 << 20), all_processes=True)
        text = '#include "fencepath.h"\n#include "fp_tracepoints.h"\n' + "".join(
            record.layout.c_struct() + generate_program(self.resolved[record.kind], record.layout)
            for record in _RECORDS
        )
        headers = {"fp_tracepoints.h": accessors_header(list(self.resolved.values()))}
        self._object = BpfObject(text, defines=self._shared.defines(), headers=headers)
        self._links = [self._attach(one) for one in self.resolved.values()]

    def _attach(self, found: Resolved) -> Any:
        program = self._object.load(program_name(found), ProgramType.TRACEPOINT)
        return attach_tracepoint(program, found.format.group, found.format.event)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        for link in self._links:
            link.close()
        self._object.close()
        self._shared.close()

    def take(self) -> dict[str, Records]:
        """Return what was recorded since the last time, by kind and in order of time; nothing may have been lost."""
        rows: dict[int, list[bytes]] = {number: [] for number in self._numbers.values()}
        for batch in self._shared.rings.drain():
            for row in batch.rows:
                rows[int.from_bytes(row[16:18].tobytes(), "little")].append(row.tobytes())
        lost = self._shared.losses.snapshot().sum(axis=0)
        assert not lost[:, [stage for stage in Stage if stage != Stage.RECORDED]].any()
        return {record.kind: self._decode(record, rows[self._numbers[record.kind]]) for record in _RECORDS}

    @staticmethod
    def _decode(record: TracepointRecord, rows: list[bytes]) -> Records:
        size = record.layout.size_bytes
        found: Records = np.frombuffer(b"".join(row[:size] for row in rows), dtype=record.layout.dtype)
        return found[np.argsort(found["time_ns"], kind="stable")]

    @property
    def identity(self) -> Callable[[Job], Fence | int]:
        """What names a job in the scheduler's events: its finished fence, or on old kernels that fence's address."""
        return (lambda job: job.finished_address) if self.old else (lambda job: job.finished)

    def identities(self, records: Records) -> list[Fence | int]:
        """The same of records."""
        if self.old:
            return [int(address) for address in records["fence_address"]]
        return [Fence(int(r["fence_context"]), int(r["fence_seqno"])) for r in records]

    def counts(self, records: Records) -> Counter[Fence | int]:
        """How many records each job has; the kernel may use an address again."""
        return Counter(self.identities(records))

    def expected(self, jobs: Sequence[Job]) -> Counter[Fence | int]:
        """One record for each job."""
        return Counter(self.identity(job) for job in jobs)
