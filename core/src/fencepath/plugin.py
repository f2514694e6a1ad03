# SPDX-License-Identifier: Apache-2.0
"""What a plugin implements and the data its hooks return.

A plugin is a module (or an object) named in the entry-point group ``fencepath.plugins`` that implements some of the hooks of
:class:`LayerSpecs` with :data:`hookimpl`. Hooks are called plugin by plugin; one that raises is isolated and reported, and
the rest goes on. No event ever passes through a hook: hooks return objects, and those are called.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import msgspec
import pluggy

from fencepath.calls import CallTable
from fencepath.clocks import ClockSource
from fencepath.entities import EntityTracker
from fencepath.events import Batch, Event
from fencepath.joins import Derived, GraphRule, JoinRule, View
from fencepath.kernel_functions import FunctionRecord
from fencepath.modules import CodeUse
from fencepath.records import Layouts, RecordLayout, Records
from fencepath.requests import Request, RequestSource
from fencepath.syscalls import SyscallTable
from fencepath.tracepoints import TracepointRecord

if TYPE_CHECKING:
    from fencepath.report import Finding
    from fencepath.system import System

__all__ = [
    "API_VERSION",
    "Alternative",
    "AttributeValue",
    "BpfSource",
    "CallProbe",
    "Check",
    "Decoder",
    "Demo",
    "DemoCommand",
    "Detail",
    "FindingRule",
    "FunctionProbe",
    "LayerInfo",
    "LayerSpecs",
    "Link",
    "LinkState",
    "Probe",
    "ProbeSet",
    "ProcessWatch",
    "StackLink",
    "SyscallProbes",
    "TableRule",
    "TracepointProbe",
    "Verdict",
    "hookimpl",
    "hookspec",
]

API_VERSION = (1, 0)
"""Major and minor version of everything in this module. Another major, or a newer minor, is refused."""

PROJECT = "fencepath"
ENTRY_POINT_GROUP = "fencepath.plugins"

hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marks the hook implementations of a plugin."""
hookspec = pluggy.HookspecMarker(PROJECT)

AttributeValue: TypeAlias = str | bool | int | float
Detail: TypeAlias = Literal["sync", "launch", "full"]
Verdict: TypeAlias = Literal["ok", "warn", "degrade", "refuse"]
Link: TypeAlias = Literal["call", "submit", "queue", "execute", "signal", "wake"]
LinkState: TypeAlias = Literal["seen", "built", "no"]


class StackLink(msgspec.Struct, frozen=True, kw_only=True):
    """One link of a request's path on one stack, as a layer gives it, for the support matrix.

    Attributes:
        stack: the programs, libraries and driver a request goes through, such as ``CUDA on NVIDIA``. Layers that say the same
            name share a row.
        link: in the order of a path: ``call`` of the library, ``submit`` to the driver, ``queue`` and dependencies in front of the
            device, ``execute`` on it, ``signal`` of its end, ``wake`` of who waited. Named as the roles of kinds are.
        state: ``seen`` if a test compares what is recorded with what the other side says it did, ``built`` if it is
            recorded and no such test has run on the hardware, ``no`` if this layer cannot have it.
        text: by what, or why not; "" if there is nothing to add. A link that no layer declares is ``no`` by itself, and a ``no`` only
            shows where no other layer has the link.
    """

    stack: str
    link: Link
    state: LinkState
    text: str = ""


class LayerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Who a plugin is.

    Attributes:
        name: the layer, such as ``cuda``; its kinds begin with it. Two plugins with one name are both refused.
        title: one line: what it covers.
        version: of the plugin.
        api: the :data:`API_VERSION` it was written for.
        status: "" if complete, else one line that says what is not built yet.
        seen: one line that says where it was seen to work, for the support matrix; "" if that is not known.
        links: which links of a path it gives on which stacks, for the support matrix; of a stack that it has no part in, nothing.
        limits: what it sees on no machine and a reader may miss, a line each; every report with events of the layer says so.
    """

    name: str
    title: str
    version: str
    api: tuple[int, int]
    status: str = ""
    seen: str = ""
    links: tuple[StackLink, ...] = ()
    limits: tuple[str, ...] = ()


class BpfSource(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin's BPF C file and what core generates for it before it is compiled.

    The file includes ``fencepath.h``. Core adds the structs of the alternative's layouts, ``FP_KIND_*`` numbers,
    ``fp_calls.h`` for a call table, and the field accessors of `tracepoints` (``fp_tracepoints.h``).

    Attributes:
        path: the .c file, in the plugin's package.
        defines: further -D macros.
        tracepoints: events whose fields the source reads.
    """

    path: Path
    defines: Mapping[str, str | int] = {}
    tracepoints: tuple[TracepointRecord, ...] = ()


class CallProbe(msgspec.Struct, frozen=True, kw_only=True):
    """Uprobes on the functions of a call table that are on at the recording's detail.

    Attributes:
        table: the functions.
        code: what their records say of addresses of code.
    """

    table: CallTable
    code: CodeUse = CodeUse()


class TracepointProbe(msgspec.Struct, frozen=True, kw_only=True):
    """A BPF function of the alternative's source, attached to a kernel tracepoint.

    Attributes:
        record: says which event it is, by what is there.
        program: C function of the source; "" means the generated program that copies the record's fields.
        raw: attach to the tracepoint itself and not to its record: `ctx` then holds the tracepoint's arguments, one u64 each
            (``FP_RAW_ARGUMENT``), and the accessors of `record` are of no use. For events that come in interrupts: the
            kernel skips a program on a record where it interrupts another one, and this one it does not. Needs `program`.
    """

    record: TracepointRecord
    program: str = ""
    raw: bool = False


class SyscallProbes(msgspec.Struct, frozen=True, kw_only=True):
    """System calls, told apart by the device they go to.

    Core attaches once to each system call, whatever number of plugins wants it. Only an alternative's sole probe may be this.
    """

    table: SyscallTable


class FunctionProbe(msgspec.Struct, frozen=True, kw_only=True):
    """Kernel probes at the begin and return of functions of the kernel or a module. Core makes the programs.

    Attributes:
        record: says which functions they are, by what is there.
    """

    record: FunctionRecord


Probe: TypeAlias = CallProbe | TracepointProbe | SyscallProbes | FunctionProbe


class Alternative(msgspec.Struct, frozen=True, kw_only=True):
    """One way to get a probe set's events.

    Attributes:
        probes: all must be possible for the alternative to be taken.
        gives: kinds it records.
        layouts: record layouts of those kinds; those of a call table or a generated program come by themselves, as do those of
            system calls and kernel functions.
        bpf: source with the programs; None if all programs are generated.
        loses: what one does not get by this alternative, for the manifest and doctor; "" if nothing.
    """

    probes: tuple[Probe, ...]
    gives: tuple[str, ...]
    layouts: tuple[RecordLayout, ...] = ()
    bpf: BpfSource | None = None
    loses: str = ""


class ProbeSet(msgspec.Struct, frozen=True, kw_only=True):
    """Events that belong together, with the ways to get them, best first.

    Attributes:
        name: unique in the layer, such as ``switch``.
        detail: the least detail at which it is on.
        alternatives: the first that is possible here is taken.
    """

    name: str
    detail: Detail
    alternatives: tuple[Alternative, ...]


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One finding of ``fencepath doctor``.

    Attributes:
        name: short, such as ``tracepoint sched:sched_switch``.
        verdict: ok, warn, degrade (goes on with less) or refuse (cannot go on).
        evidence: what was looked at and seen.
        cost: what the user loses; "" if nothing.
        remedy: how to mend it; "" if nothing can be done.
    """

    name: str
    verdict: Verdict
    evidence: str
    cost: str = ""
    remedy: str = ""


class Decoder(Protocol):
    """Turns the records of a layer into batches."""

    def decode(self, kind: str, records: Records) -> Batch:
        """Decode records of one kind.

        Must not raise on any bytes: fields that make no sense are decoded as they are. An exception isolates the kind
        and the report says so.
        """
        ...


class DemoCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A command that a demo records.

    Attributes:
        argv: command line.
        environ: added to the environment.
    """

    argv: tuple[str, ...]
    environ: Mapping[str, str] = {}


class Demo(Protocol):
    """A workload that ``fencepath demo`` can build and record, on a machine without the layer's hardware."""

    @property
    def title(self) -> str:
        """One line that says what it is, and that it is simulated if it is."""
        ...

    @property
    def packaged(self) -> Path:
        """A recording that is shown where none can be made."""
        ...

    @property
    def packaged_title(self) -> str:
        """One line that says what that recording is of."""
        ...

    def build(self, folder: Path, requests: int) -> DemoCommand:
        """Build it in an empty folder.

        Raises:
            MachineError: something that it needs (a C compiler) is missing.
        """
        ...


class ProcessWatch(Protocol):
    """Reads what the kernel says of target processes while they run, such as the state of their open files."""

    def look(self, pids: Sequence[int]) -> Iterable[tuple[str, Mapping[str, Any]]]:
        """Look at the processes that are targets now, and return those facts that shall be kept at once.

        When: when the recording begins, about once a second, and before its probes are detached at the end. Nothing takes
        records out of the rings meanwhile, so be quick. A process can end at any moment: what is to be said of it at its end is
        what was read at the look before, and one that lives less than a second may never be among `pids`.

        Args:
            pids: ascending, in the initial pid namespace.

        Returns:
            Names and plain JSON values.
        """
        ...

    def end(self) -> Iterable[tuple[str, Mapping[str, Any]]]:
        """Return the facts that are left, once at the end. A recorder that is killed does not ask."""
        ...


class FindingRule(Protocol):
    """Looks at a finished report and says what a user should know."""

    @property
    def name(self) -> str:
        """Unique, ``<layer>.<noun>``."""
        ...

    def findings(self, batches: Mapping[str, Batch]) -> Iterable[Finding]:
        """Return findings; `batches` are those of the layer's kinds."""
        ...


class TableRule(Protocol):
    """Makes a table of the layer for the report's ``layers``, such as the utilisation of each ring."""

    @property
    def name(self) -> str:
        """Unique in the layer, such as ``rings``."""
        ...

    @property
    def title(self) -> str:
        """One line that says what the table shows."""
        ...

    def rows(self, view: View, requests: Sequence[Request]) -> Sequence[Mapping[str, AttributeValue | None]]:
        """Return the rows, most important first; columns of times end in ``_ns``, of sizes in ``_bytes``.

        Args:
            view: all events.
            requests: those of the report.
        """
        ...


class LayerSpecs:
    """The hooks. All are optional but :meth:`fencepath_layer`."""

    @hookspec
    def fencepath_layer(self) -> LayerInfo:
        """Say who the plugin is.

        When: once, at load. Must do no I/O. Since 1.0.
        """
        raise NotImplementedError

    @hookspec
    def fencepath_event_kinds(self) -> Sequence[type[Event]]:
        """Return the event classes of the layer's kinds.

        When: once, at load. Must do no I/O. Every kind begins with the layer's name and a dot, else the plugin is refused.
        Since 1.0.
        """
        raise NotImplementedError

    @hookspec
    def fencepath_call_tables(self) -> Sequence[CallTable]:
        """Return the tables of functions the layer probes, for ``fencepath plugins LAYER``, docs and checks.

        When: any time; must do no I/O. Since 1.0.
        """
        raise NotImplementedError

    @hookspec
    def fencepath_probes(self, system: System) -> Sequence[ProbeSet]:
        """Return what to attach. Data only: core compiles and attaches.

        When: once a recording and once a ``doctor``, in the main thread. An exception leaves the layer out; the manifest
        says so. Since 1.0.

        Args:
            system: what this machine offers (tracepoint formats, architecture, asked detail).
        """
        raise NotImplementedError

    @hookspec
    def fencepath_checks(self, system: System) -> Iterable[Check]:
        """Check what the layer needs from this machine.

        When: ``doctor``, and ``record`` before it attaches. Since 1.0.
        """
        raise NotImplementedError

    @hookspec
    def fencepath_facts(self, system: System) -> Iterable[tuple[str, Mapping[str, Any]]]:
        """Return what only this machine can say, such as which interrupt is which GPU's, for the recording.

        When: once a recording, after attaching, if something of the layer is recorded. Read with
        :meth:`fencepath.joins.Events.facts` by ``<layer>.<name>``. Since 1.0.

        Returns:
            Names and plain JSON values.
        """
        raise NotImplementedError

    @hookspec
    def fencepath_process_facts(self, system: System) -> ProcessWatch:
        """Return what looks at the target processes while they are recorded, for facts that change and end with a process.

        When: once a recording, after attaching, if something of the layer is recorded. Its facts are read as those of
        :meth:`fencepath_facts`. Since 1.0.
        """
        raise NotImplementedError

    @hookspec
    def fencepath_clocks(self, system: System) -> Sequence[ClockSource]:
        """Return further clocks to sample while recording, about once a second, in the recorder's thread. Since 1.0."""
        raise NotImplementedError

    @hookspec
    def fencepath_decoder(self, layouts: Layouts, functions: Mapping[str, Sequence[str]]) -> Decoder:
        """Return the decoder of one recording.

        When: once a recording that is read. Since 1.0.

        Args:
            layouts: layouts of the layer's kinds as they were written; fields may be fewer or more than today's.
            functions: what the ``function`` index of records means, from the manifest: under the layer's name what its call
                table was (:attr:`CallTable.recorded`), under a kind's name what its system calls were
                (:meth:`SyscallTable.recorded`).
        """
        raise NotImplementedError

    @hookspec
    def fencepath_entities(self) -> EntityTracker:
        """Return a new tracker of the layer's handles, once a run of the engine. Since 1.0."""
        raise NotImplementedError

    @hookspec
    def fencepath_requests(self) -> Sequence[RequestSource]:
        """Return new request sources, once a run of the engine. Since 1.0."""
        raise NotImplementedError

    @hookspec
    def fencepath_rules(self) -> Sequence[JoinRule | GraphRule]:
        """Return the layer's join rules. When: once a run of the engine. Must do no I/O. Since 1.0."""
        raise NotImplementedError

    @hookspec
    def fencepath_derived(self) -> Derived:
        """Return a new maker of events that follow from recorded ones, with their rules. Once a run of the engine. Since 1.0."""
        raise NotImplementedError

    @hookspec
    def fencepath_findings(self) -> Sequence[FindingRule]:
        """Return rules that look for what a user should know. When: once a report. Since 1.0."""
        raise NotImplementedError

    @hookspec
    def fencepath_tables(self) -> Sequence[TableRule]:
        """Return the layer's own tables for the report. When: once a report. Since 1.0."""
        raise NotImplementedError

    @hookspec
    def fencepath_demo(self) -> Demo:
        """Return the layer's demo. When: ``fencepath demo``; the first layer that has one is shown. Since 1.0."""
        raise NotImplementedError

    @hookspec
    def fencepath_span_attributes(self, kind: str, row: Mapping[str, AttributeValue]) -> Mapping[str, AttributeValue]:
        """Return OpenTelemetry attributes of a segment's span.

        When: once an exported segment that shows an activity of the layer. Since 1.0.

        Args:
            kind: of the activity.
            row: its columns as plain values.
        """
        raise NotImplementedError
