# SPDX-License-Identifier: Apache-2.0
"""The recorder: attaches, follows the targets, writes what comes, and stops without losing what is there."""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

import msgspec
import numpy as np

from fencepath._bpf.attach import close_links
from fencepath._bpf.rings import Rings
from fencepath._bpf.shared import Shared
from fencepath._loader import LoadedPlugin
from fencepath._record.calibration import Calibration, calibrate, programs_of
from fencepath._record.declared_code import layer_codes
from fencepath._record.estimate import CallTally, Estimate, estimate
from fencepath._record.facts import process_fact, thread_fact
from fencepath._record.plan import MissingSet, Plan, PlannedSet
from fencepath._record.process_facts import ProcessFacts
from fencepath._record.programs import LoadedSet, load_set, recorded_functions
from fencepath._record.rows import LossSampler, RowSplitter
from fencepath._record.target_code import TargetCode
from fencepath._record.targets import Targets, threads_of
from fencepath._record.uprobes import UprobeAttacher
from fencepath._version import __version__
from fencepath.calls import End, EntryState
from fencepath.clocks import ClockSource, realtime_sample
from fencepath.errors import FencepathError, MachineError
from fencepath.plugin import Check, Detail
from fencepath.recording import KindInfo, LayerInfo, LossRow, MissingProbe, RecordingWriter, new_manifest
from fencepath.records import Records
from fencepath.syscalls import SyscallTable, SyscallTracer
from fencepath.system import System

__all__ = ["Options", "Recorder"]

_POLL_S = 0.02
_SECOND_NS = 1_000_000_000
_PRIORITY = -10
"""Niceness while recording."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How to record.

    Attributes:
        detail: which probes are on.
        exact: record the end of hot asynchronous calls too, at the price of a return probe each; without it their end is
            a bound, and on a GPU most of a decode step is then shown as inside them.
        returns: whether return probes may be used at all.
        ring_bytes: most memory of all rings together.
        keep_ns: drop segments older than this; None keeps all.
        max_bytes: drop the oldest segments beyond this size; None for no limit.
        owner: user and group of the recording, None for the caller.
        targets: what is recorded, in words.
        cgroup: id of a cgroup; who is in it, or below, becomes a target when it forks, execs or maps a program.
        checks: what is not as it should be on this machine, for the manifest.
    """

    detail: Detail = "launch"
    exact: bool = True
    returns: bool = True
    ring_bytes: int = 68 << 20
    keep_ns: int | None = None
    max_bytes: int | None = None
    owner: tuple[int, int] | None = None
    targets: tuple[str, ...] = ()
    cgroup: int | None = None
    checks: tuple[Check, ...] = ()


class Recorder:
    """Records targets into a folder. For use by one thread, as a context manager.

    The order is: construct (compiles and attaches what does not depend on targets), :meth:`add` targets, :meth:`run`, and
    leaving the context, which takes what is left and closes the recording.

    A recorder that is left before :meth:`run` was called leaves nothing on disk.

    Args:
        path: folder to make.
        plan: what to attach.
        system: this machine.
        options: how to record.
        proceed: called between the steps of compiling and attaching; what it raises ends the construction.

    Raises:
        MachineError: something without which nothing can be recorded is missing.
        UsageError: the path is taken.
    """

    def __init__(
        self, path: Path, plan: Plan, system: System, options: Options, proceed: Callable[[], None] = lambda: None
    ) -> None:
        self._plan = plan
        self._proceed = proceed
        self._begun = False
        self._ended = False
        self._failure: FencepathError | None = None
        self._options = options
        self._stack = contextlib.ExitStack()
        self._loaded: list[LoadedSet] = []
        self._ended_threads: dict[int, int] = {}
        self._ended_processes: dict[int, int] = {}
        self._returned: list[Records] = []
        self._second_ns = 0
        self._syscalls: SyscallTracer | None = None
        self._marks = 0
        self._begun_ns = 0
        self.estimate: Estimate | None = None
        with contextlib.ExitStack() as undo:
            numbers = {kind: plan.layouts.number(kind) for kind in plan.layouts}
            self._shared = undo.enter_context(Shared(numbers, rings=Rings(options.ring_bytes), cgroup=options.cgroup))
            self._targets = Targets(self._shared.tgids, self._shared.tids)
            self._entries = undo.enter_context(EntryState(plan.layouts))
            self._clocks = self._clock_sources(system)
            # before the programs are compiled, which takes much longer: the path may be taken
            manifest = new_manifest(self._kinds(), detail=options.detail, targets=options.targets, tool=__version__)
            self._writer = RecordingWriter(
                path,
                manifest,
                keep_ns=options.keep_ns,
                max_bytes=options.max_bytes,
                owner=options.owner,
                kept_kinds=[kind for kind, info in plan.infos.items() if info.keep],
            )
            undo.callback(self._close_writer)
            self._load(undo)
            self._calibration = self._calibrate()
            self._tally = CallTally([table for loaded in self._loaded for table in loaded.planned.tables])
            self._uprobes = UprobeAttacher(
                self._loaded,
                plan.layouts,
                options.detail,
                exact=options.exact,
                returns=options.returns,
                note=self._writer.fact,
                gap=self._note_gap,
            )
            undo.callback(self._uprobes.close)
            codes = layer_codes(loaded.planned for loaded in self._loaded)
            self._code = TargetCode(self._uprobes, codes, self._writer.fact, self._note_gap)
            undo.callback(self._code.close)
            self._splitter = RowSplitter(plan.layouts)
            self._losses = LossSampler(self._shared.losses, plan.layouts)
            self._attach(undo)
            self._take_facts(system)
            layers = [planned.plugin for planned in plan.sets]
            self._processes = ProcessFacts(plan.registry, layers, system, self._writer.fact)
            self._write_manifest()
            self._stack = undo.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        try:
            if self._begun:
                self._finish()
        finally:
            self._stack.close()

    def _close_writer(self) -> None:
        if self._begun:
            self._writer.close()
        else:
            self._writer.discard()

    def add(self, pid: int) -> None:
        """Make a process a target, with the libraries it has mapped.

        Raises:
            UsageError: there is no such process.
        """
        self._targets.add(pid)
        self._code.look(pid, time.monotonic_ns())
        self._describe(pid)
        self._write_manifest()

    def expect(self, command: str, environ: Mapping[str, str]) -> None:
        """Attach to the libraries that a command will probably load, before it starts."""
        self._uprobes.attach_known(command, environ)
        self._write_manifest()

    @property
    def missing(self) -> tuple[MissingSet, ...]:
        """What was wanted and is not attached."""
        unseen = self._uprobes.unseen() if self._ended else ()
        names = self._code.missing() if self._ended else ()
        return (*self._plan.missing, *self._uprobes.missing, *self._uprobes.absent(), *unseen, *names)

    @property
    def attached_functions(self) -> int:
        """Functions with probes, over all library files."""
        return sum(image.functions for image in self._uprobes.images)

    @property
    def counts(self) -> dict[str, int]:
        """Records taken so far, by kind."""
        return dict(self._splitter.counts)

    def run(self, until: Callable[[], bool]) -> None:
        """Record until `until` returns true; it is asked about every 20 ms.

        Raises:
            MachineError: the recording cannot be written (a full disk).
        """
        self._begun = True
        self._begun_ns = time.monotonic_ns()
        self._be_prompt()
        while not until():
            self._step()
            self._shared.rings.wait(_POLL_S, fill=0.25)

    def _step(self) -> None:
        now_ns = time.monotonic_ns()
        for batch in self._shared.rings.drain():
            for kind, records in self._splitter.split(batch):
                # first: a library that was mapped has no probes until then
                with self._held_back():
                    self._follow(kind, records)
                with self._held_back():
                    self._writer.append(kind, records)
        with self._held_back():
            self._code.settle()
        with self._held_back():
            self._writer.loss(self._losses.sample())
        if now_ns - self._second_ns >= _SECOND_NS:
            self._second_ns = now_ns
            with self._held_back():
                self._each_second()
        with self._held_back():
            self._writer.tick(now_ns)
        self._raise_failure()

    @contextlib.contextmanager
    def _held_back(self) -> Generator[None]:
        """Go on after a write that was refused: what has been taken out of the rings must be counted, as lost."""
        try:
            yield
        except FencepathError as error:
            self._failure = self._failure or error

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _follow(self, kind: str, records: Records) -> None:
        """React to the life of targets; calls are remembered until the entry state has been looked at."""
        if kind == "process.fork":
            columns = (records[name].tolist() for name in ("tgid", "child_tid", "clone_flags", "time_ns"))
            for tgid, child, flags, time_ns in zip(*columns, strict=True):
                self._describe_child(tgid, child, time_ns, thread=bool(flags & 0x10000))
        elif kind == "process.exec":
            for tgid, time_ns in zip(records["tgid"].tolist(), records["time_ns"].tolist(), strict=True):
                self._ended_processes[tgid] = time_ns
                self._code.exec(tgid, time_ns)
                self._describe(tgid)
        elif kind == "process.map":
            begins: dict[int, int] = {}
            for tgid, begin_ns in zip(records["tgid"].tolist(), records["begin_ns"].tolist(), strict=True):
                begins[tgid] = min(begin_ns, begins.get(tgid, begin_ns))
            for tgid, begin_ns in begins.items():
                self._code.look(tgid, begin_ns)
        elif kind == "process.exit":
            self._ended_threads.update(zip(records["tid"].tolist(), records["time_ns"].tolist(), strict=True))
            for pid in records["tid"][records["tid"] == records["tgid"]].tolist():
                self._code.exit(pid)
        elif kind.startswith("mark."):
            self._marks += len(records)
        elif "function" in (records.dtype.names or ()):
            self._returned.append(records)
            self._tally.add(kind, records)
            self._code.take(kind, records)

    def _each_second(self) -> None:
        for source in self._clocks:
            with contextlib.suppress(OSError, FencepathError):
                self._writer.clock_sample(source.sample())
        self._writer.clock_sample(realtime_sample())
        self._code.look_around()
        self._processes.look(self._targets.processes)
        if self._syscalls is not None:
            self._syscalls.refresh_devices()  # a driver that was loaded has its devices from then on
        self._sweep()

    def _sweep(self) -> None:
        """Take calls out of the entry state that will never return."""
        abandoned = self._entries.abandoned(
            returned=self._returned, threads=self._ended_threads, processes=self._ended_processes
        )
        self._returned = []
        self._ended_threads, self._ended_processes = {}, {}
        for kind, records in abandoned.records.items():
            self._writer.append(kind, records)
        now_ns = time.monotonic_ns()
        self._writer.loss(
            LossRow(
                stage=f"abandoned_{end}",
                kind=kind,
                cpu=-1,
                from_ns=abandoned.since_ns[end, kind],
                to_ns=now_ns,
                count=count,
            )
            for (end, kind), count in abandoned.counts.items()
            if end is not End.EXIT
        )

    def _skipped(self) -> dict[str, int]:
        """How often at the most the kernel skipped a program; see :meth:`LoadedSet.skipped`."""
        misses: Counter[str] = Counter()
        for loaded in self._loaded:
            misses.update(loaded.skipped())
        if self._syscalls is not None:
            misses.update(self._syscalls.skipped())
        return {kind: count for kind, count in misses.items() if count}

    def _be_prompt(self) -> None:
        """Ask to be run before others: while a ring is not read, it fills."""
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, min(_PRIORITY, os.getpriority(os.PRIO_PROCESS, 0)))

    def _calibrate(self) -> Calibration | None:
        """Measure what a probe costs here; a recording goes on without."""
        defines = {**self._shared.defines(), **self._entries.defines()}
        programs = programs_of(self._loaded, self._plan.layouts, defines, self._options.detail)
        if programs is None:
            return None
        try:
            return calibrate(programs=programs)
        except MachineError:
            return None

    def _estimate(self) -> None:
        if self._calibration is None:
            return
        stepped: dict[str, set[str]] = {}
        for image in self._uprobes.images:
            stepped.setdefault(image.layer, set()).update(image.stepped)
        wall_ns = time.monotonic_ns() - self._begun_ns
        self.estimate = estimate(self._calibration, self._tally.counts(stepped), wall_ns, marks=self._marks)

    def _finish(self) -> None:
        """Detach, take what is left, write calls that are still open, and check that nothing is unaccounted for."""
        # while the probes are on: what a process does after that is in no record to compare with
        with self._held_back():
            self._processes.look(self._targets.processes)
            self._processes.end()
        self._uprobes.stop()
        now_ns = time.monotonic_ns()
        # before: a call that returns meanwhile has its record, and is told from it by when it began
        open_calls = [found for loaded in self._loaded for found in loaded.open_calls(now_ns)]
        close_links([link for loaded in self._loaded for link in loaded.links])
        for kind, records, sure in open_calls:
            with self._held_back():
                if sure:
                    self._writer.append(kind, records)
                else:
                    self._note_gap("missed_return", int(records["begin_ns"].min()), now_ns, kind, len(records))
        for step in (
            self._end_syscalls,
            self._step,
            self._step,
            self._each_second,
            self._end_calls,
            self._code.finish,
            self._account,
            self._estimate,
        ):
            with self._held_back():
                step()
        self._ended = True
        with self._held_back():
            self._write_manifest()
        self._raise_failure()

    def _end_syscalls(self) -> None:
        if self._syscalls is not None:
            open_calls = self._syscalls.open_calls(time.monotonic_ns())
            self._syscalls.detach()
            self._append_open(open_calls)

    def _end_calls(self) -> None:
        for kind, records in self._entries.open_calls(time.monotonic_ns()).items():
            self._writer.append(kind, records)

    def _note_gap(self, stage: str, from_ns: int, to_ns: int, kind: str = "", count: int = 0) -> None:
        """Something was there that could not be seen; how many calls are missing for that cannot be known."""
        self._writer.loss([LossRow(stage=stage, kind=kind, cpu=-1, from_ns=from_ns, to_ns=to_ns, count=count)])

    def _append_open(self, records: Records) -> None:
        """Write open system calls, whose kinds are mixed."""
        names = {self._plan.layouts.number(kind): kind for kind in self._plan.layouts}
        for number in np.unique(records["kind"]).tolist():
            if number in names:
                self._writer.append(names[number], records[records["kind"] == number])

    def _account(self) -> None:
        """Every record that a program submitted must have been taken out; what is not is loss."""
        now_ns = time.monotonic_ns()
        for kind, submitted in self._losses.recorded().items():
            left = submitted - self._splitter.counts[kind]
            if left > 0:
                self._writer.loss([LossRow(stage="ring_left", kind=kind, cpu=-1, from_ns=0, to_ns=now_ns, count=left)])

    def _load(self, undo: contextlib.ExitStack) -> None:
        defines = {**self._shared.defines(), **self._entries.defines()}
        for planned in self._plan.sets:
            if planned.syscalls is not None:
                continue
            self._proceed()
            try:
                loaded = load_set(planned, defines, self._options.detail)
            except FencepathError as error:
                self._give_up(planned, error)
                continue
            undo.callback(loaded.close)
            self._loaded.append(loaded)

    def _attach(self, undo: contextlib.ExitStack) -> None:
        self._attach_syscalls(undo)
        for loaded in list(self._loaded):
            self._proceed()
            try:
                loaded.attach()
            except FencepathError as error:
                loaded.detach()
                self._loaded.remove(loaded)
                self._give_up(loaded.planned, error)

    def _attach_syscalls(self, undo: contextlib.ExitStack) -> None:
        """Attach once to each system call that any layer wants."""
        sets = [planned for planned in self._plan.sets if planned.syscalls is not None]
        if not sets:
            return
        numbers = {kind: self._plan.layouts.number(kind) for kind in self._plan.layouts}
        try:
            merged = SyscallTable.merged(planned.syscalls for planned in sets if planned.syscalls is not None)
            self._syscalls = undo.enter_context(SyscallTracer(merged, self._shared, numbers))
        except (FencepathError, ValueError) as error:
            for planned in sets:
                self._plan.without(planned, str(error))

    def _give_up(self, planned: PlannedSet, error: FencepathError) -> None:
        """Go on without a set, unless it is core's own: without processes and marks nothing could be told apart."""
        if planned.plugin.distribution == "fencepath" and planned.plugin.name == "process":
            raise error
        self._plan.without(planned, str(error))

    def _take_facts(self, system: System) -> None:
        """Keep what the layers know of this machine and a reader elsewhere does not."""
        for plugin, facts in self._plan.registry.collect("fencepath_facts", system=system):
            if any(planned.plugin is plugin for planned in self._plan.sets):
                for name, data in self._plan.registry.guard(plugin, "fencepath_facts", partial(list[Any], facts), []):
                    self._writer.fact(f"{plugin.name}.{name}", data)

    def _clock_sources(self, system: System) -> list[ClockSource]:
        return [
            source
            for _, sources in self._plan.registry.collect("fencepath_clocks", system=system)
            for source in sources
        ]

    def _kinds(self) -> dict[str, KindInfo]:
        plan = self._plan
        return {
            kind: KindInfo(
                number=plan.layouts.number(kind),
                layer=plan.layer_of(kind),
                fields=plan.layouts[kind].fields,
                version=plan.infos[kind].version,
            )
            for kind in (layout.kind for planned in plan.sets for layout in planned.layouts)
        }

    def _write_manifest(self) -> None:
        functions = recorded_functions(self._plan.sets)
        costs: dict[str, Any] = msgspec.to_builtins(self._calibration) if self._calibration else {}
        if self.estimate is not None:
            costs["estimate"] = msgspec.to_builtins(self.estimate)
        extra: dict[str, Any] = {"checks": msgspec.to_builtins(self._options.checks)} if self._options.checks else {}
        if self._ended:
            extra["skipped_runs"] = self._skipped()
        manifest = msgspec.structs.replace(
            self._writer.manifest, functions=functions, layers=self._layers(), calibration=costs, extra=extra
        )
        self._writer.update_manifest(manifest)

    def _layers(self) -> dict[str, LayerInfo]:
        def missing(plugin: LoadedPlugin) -> Iterable[MissingProbe]:
            return (MissingProbe(item.probe, item.why) for item in self.missing if item.layer == plugin.name)

        attached: dict[str, Sequence[str]] = {}
        for loaded in self._loaded:
            planned = loaded.planned
            names = [*(program.resolved.name for program in planned.programs), *loaded.functions]
            attached[planned.plugin.name] = (*attached.get(planned.plugin.name, ()), *names)
        for planned in self._plan.sets:
            if planned.syscalls is not None and self._syscalls is not None:
                layer = planned.plugin.name
                attached[layer] = (*attached.get(layer, ()), *self._syscalls.attached)
        for image in self._uprobes.images:
            more = f", {len(image.by_offset)} by offset" if image.by_offset else ""
            shown = f"{image.path} ({image.functions} functions{more})"
            attached[image.layer] = (*attached.get(image.layer, ()), shown)
        return {
            name: LayerInfo(
                version=plugin.info.version, attached=tuple(attached.get(name, ())), missing=tuple(missing(plugin))
            )
            for name, plugin in self._plan.registry.plugins.items()
        }

    def _describe(self, pid: int) -> None:
        now_ns = time.monotonic_ns()
        self._fact("process", process_fact(pid, now_ns))
        for tid in threads_of(pid):
            self._fact("thread", thread_fact(pid, tid, now_ns))

    def _describe_child(self, tgid: int, child: int, time_ns: int, *, thread: bool) -> None:
        if thread:
            self._fact("thread", thread_fact(tgid, child, time.monotonic_ns()))
        else:
            self._code.fork(child, tgid, time_ns)
            self._describe(child)

    def _fact(self, name: str, data: Mapping[str, Any] | None) -> None:
        if data is not None:
            self._writer.fact(name, data)
