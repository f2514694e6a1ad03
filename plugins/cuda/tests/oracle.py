# SPDX-License-Identifier: Apache-2.0
"""The rules of order again, told call by call with nothing but loops, to compare the vectorised ones with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from plugins.cuda.tests.story import LEGACY, PER_THREAD, Call, Edge

from fencepath.records import Flags

RECORD, WAIT_EVENT = "cuda.event.record", "cuda.stream.wait_event"
ON_STREAM = {"cuda.launch", "cuda.memcpy", "cuda.malloc", RECORD, WAIT_EVENT}
WAITS = {"cuda.stream.synchronize", "cuda.event.synchronize", "cuda.context.synchronize"}
BOUNDED, INFERRED, EXACT = "bounded", "inferred", "exact"
NEVER = float("inf")

Stream = tuple[int, int, int, int]


class Oracle:
    """Edges of each rule over the calls of a story."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self.calls = sorted(calls, key=lambda call: call.begin)
        captures = self._captures()
        candidates = [call for call in self.calls if self._submits(call)]
        self.ops = [op for op in candidates if not _inside(captures, self.stream(op), op.begin)]
        unbound = [op for op in self.ops if op.kind == WAIT_EVENT and self._record_as_of(op) is None]
        self.ops = [op for op in self.ops if op not in unbound]

    def _submits(self, call: Call) -> bool:
        return call.kind in ON_STREAM and not call.failed and self.stream(call) is not None

    def stream(self, call: Call) -> Stream | None:
        """Process, handle, generation and, of a per-thread stream, the thread; None for none."""
        if call.stream == 0:
            return None
        if call.stream in (LEGACY, PER_THREAD):
            return call.pid, call.stream, 0, call.tid if call.stream == PER_THREAD else 0
        return call.pid, call.stream, len(self._creations(call)), 0

    def _creations(self, call: Call) -> list[Call]:
        return [
            each
            for each in self.calls
            if each.kind == "cuda.stream.create"
            and each.returned
            and not each.failed
            and (each.pid, each.stream) == (call.pid, call.stream)
            and each.end <= call.begin
        ]

    def is_blocking(self, call: Call) -> bool | None:
        """Whether the legacy stream orders the call's stream; None if it is not known."""
        if call.stream in (LEGACY, PER_THREAD):
            return call.stream == PER_THREAD
        made = self._creations(call)
        return not max(made, key=lambda each: each.end).more.get("stream_flags", 0) & 1 if made else None

    def _captures(self) -> list[tuple[Stream | None, int, float]]:
        windows: list[tuple[Stream | None, int, float]] = []
        for call in self.calls:
            if call.kind == "cuda.graph.capture_begin" and not call.failed and call.stream:
                ends = (
                    each.end
                    for each in self.calls
                    if each.kind == "cuda.graph.capture_end"
                    and self.stream(each) == self.stream(call)
                    and each.begin > call.begin
                )
                windows.append((self.stream(call), call.begin, next(ends, float("inf"))))
        while True:
            joined = list(self._joins(windows))
            if not joined:
                return windows
            windows += joined

    def _joins(self, windows: list[tuple[Stream | None, int, float]]) -> Iterator[tuple[Stream | None, int, float]]:
        for wait in self.calls:
            if wait.kind != WAIT_EVENT or not self._submits(wait) or _inside(windows, self.stream(wait), wait.begin):
                continue
            records = [each for each in self.calls if each.kind == RECORD and self._submits(each)]
            record = _last(each for each in records if _event(each) == _event(wait) and each.begin <= wait.begin)
            until = _inside(windows, self.stream(record), record.begin) if record and wait.event else None
            if until is not None and until >= wait.begin:
                yield self.stream(wait), wait.begin, until

    def of(self, rule: str) -> list[Edge]:
        """The edges of a rule, sorted."""
        return sorted(getattr(self, rule.removeprefix("cuda."))())

    def waits(self, kind: str) -> list[Call]:
        return [call for call in self.calls if call.kind == kind and not call.failed]

    def returned(self, call: Call) -> float:
        """When a call is known to have come back."""
        if call.returned:
            return call.end
        mine = [each for each in self.calls if each.tid == call.tid and each.kind in ON_STREAM | WAITS]
        return min((each.begin for each in mine if each.begin > call.begin), default=NEVER)

    def is_sure(self, cause: Call, effect: Call) -> bool:
        return cause.tid == effect.tid or self.returned(cause) <= effect.begin

    def _completion(self, cause: Call | None, wait: Call, sure: bool | None = None) -> Iterator[Edge]:
        if cause is None:
            return
        sure = self.is_sure(cause, wait) if sure is None else sure
        confidence = BOUNDED if sure else INFERRED
        entry_only = cause.flags & Flags.ENTRY_ONLY
        latest_end = min(self.returned(cause), cause.begin + 1_000_000) if entry_only else cause.end
        if latest_end <= wait.end:
            yield Edge(cause.number, wait.number, "finish_finish", confidence)
        elif cause.begin <= wait.begin:
            yield Edge(cause.number, wait.number, "start_start", confidence)

    def stream_synchronize(self) -> Iterator[Edge]:
        for wait in self.waits("cuda.stream.synchronize"):
            mine = [op for op in self.ops if self.stream(op) == self.stream(wait)]
            before = _last(op for op in mine if op.begin <= wait.begin)
            during = _last(op for op in mine if wait.begin < op.begin < wait.end)
            yield from self._completion(before, wait)
            yield from self._completion(during, wait, False)

    def context_synchronize(self) -> Iterator[Edge]:
        waits = self.waits("cuda.context.synchronize")
        for wait in waits:
            mine = [op for op in self.ops if op.pid == wait.pid]
            for stream in {self.stream(op) for op in mine}:
                last = _last(op for op in mine if self.stream(op) == stream and op.begin <= wait.begin)
                if last and not self._settled(last, wait, waits):
                    yield from self._completion(last, wait)

    def _settled(self, op: Call, wait: Call, waits: list[Call]) -> bool:
        """Whether a wait for everything that began after the operation's call had come back is over."""
        return any(
            each.returned and each.pid == wait.pid and each.end <= wait.begin and each.begin >= self.returned(op)
            for each in waits
        )

    def event_synchronize(self) -> Iterator[Edge]:
        for wait in self.waits("cuda.event.synchronize"):
            record = self._record_as_of(wait)
            if record:
                yield from self._completion(record, wait, self._is_sure_record(record, wait))

    def _is_sure_record(self, record: Call, wait: Call) -> bool:
        again = [
            op
            for op in self.ops
            if op.kind == RECORD and _event(op) == _event(wait) and record.begin < op.begin < wait.end
        ]
        return self.is_sure(record, wait) and not again

    def _record_as_of(self, call: Call) -> Call | None:
        same = [op for op in self.ops if op.kind == RECORD and call.event and _event(op) == _event(call)]
        return _last(op for op in same if op.begin <= call.begin)

    def stream_wait_event(self) -> Iterator[Edge]:
        edges: dict[tuple[int, int], bool] = {}
        for wait in self.ops:
            if wait.kind != WAIT_EVENT:
                continue
            record = self._record_as_of(wait)
            later = (
                op
                for op in self.ops
                if op.kind != WAIT_EVENT and self.stream(op) == self.stream(wait) and op.begin > wait.begin
            )
            following = next(later, None)
            if record and following:
                sure = self._is_sure_record(record, wait) and self.is_sure(wait, following)
                pair = record.number, following.number
                edges[pair] = edges.get(pair, False) or sure
        for (cause, effect), sure in edges.items():
            yield Edge(cause, effect, "start_start", BOUNDED if sure else INFERRED)

    def stream_order(self) -> Iterator[Edge]:
        for effect in self.ops:
            before = [op for op in self.ops if self.stream(op) == self.stream(effect) and op.begin < effect.begin]
            if before:
                confidence = EXACT if self.is_sure(before[-1], effect) else INFERRED
                yield Edge(before[-1].number, effect.number, "start_start", confidence)

    def legacy_stream(self) -> Iterator[Edge]:
        for op in self.ops:
            if op.stream == LEGACY:
                yield from self._around(op)
        waits = self.waits("cuda.stream.synchronize")
        for wait in waits:
            if wait.stream == LEGACY:
                yield from self._legacy_wait(wait, [each for each in waits if each.stream == LEGACY])

    def _around(self, legacy: Call) -> Iterator[Edge]:
        mine = [op for op in self.ops if op.pid == legacy.pid]
        others = [op for op in mine if op.stream == LEGACY and op is not legacy]
        for stream in {self.stream(op) for op in mine if op.stream != LEGACY}:
            on_it = [op for op in mine if self.stream(op) == stream]
            blocking = self.is_blocking(on_it[0])
            if blocking is False:
                continue
            before = _last(op for op in on_it if op.begin < legacy.begin)
            after = next((op for op in on_it if op.begin > legacy.begin), None)
            if before and not any(before.begin < other.begin < legacy.begin for other in others):
                yield self._legacy_edge(before, legacy, blocking)
            if after and not any(legacy.begin < other.begin < after.begin for other in others):
                yield self._legacy_edge(legacy, after, blocking)

    def _legacy_edge(self, cause: Call, effect: Call, blocking: bool | None) -> Edge:
        confidence = BOUNDED if blocking and self.is_sure(cause, effect) else INFERRED
        return Edge(cause.number, effect.number, "start_start", confidence)

    def _legacy_wait(self, wait: Call, waits: list[Call]) -> Iterator[Edge]:
        mine = [op for op in self.ops if op.pid == wait.pid]
        for stream in {self.stream(op) for op in mine if op.stream != LEGACY and self.is_blocking(op)}:
            last = _last(op for op in mine if self.stream(op) == stream and op.begin <= wait.begin)
            if last is None or self._settled(last, wait, waits):
                continue
            if not any(op.stream == LEGACY and last.begin < op.begin <= wait.begin for op in mine):
                yield from self._completion(last, wait)


def _event(call: Call) -> tuple[int, int]:
    return call.pid, call.event


def _last(calls: Iterable[Call]) -> Call | None:
    return max(calls, key=lambda call: call.begin, default=None)


def _inside(windows: list[tuple[Stream | None, int, float]], stream: Stream | None, time_ns: int) -> float | None:
    return next((end for owner, begin, end in windows if owner == stream and begin <= time_ns <= end), None)
