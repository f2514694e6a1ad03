# SPDX-License-Identifier: Apache-2.0
"""Runs BPF programs for events of drivers that are not there, on the events of system calls that are.

A program reads its event by the offsets of a format. Here the format says that the fields lie in the arguments of a system
call, so that the real program runs in this kernel when a process makes that call, and what the process passes is what the
driver would have said. Only system calls that refuse such arguments at once are used.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Generator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from fencepath._bpf.attach import attach_tracepoint, close_links
from fencepath._bpf.losses import Stage
from fencepath._bpf.rings import Rings
from fencepath._bpf.shared import Shared
from fencepath._bpf.sys import ProgramType
from fencepath._loader import LoadedPlugin, load_plugins
from fencepath._record.plan import PlannedSet, resolve_alternative
from fencepath._record.programs import load_set
from fencepath._record.rows import RowSplitter
from fencepath._record.targets import Targets
from fencepath.events import Batch
from fencepath.records import Layouts, Records
from fencepath.system import System
from fencepath.tracepoints import TracepointField, TracepointFormat, TracepointSource

__all__ = ["Actor", "Stage", "Theatre", "played"]

PLAIN = (0, 1)
"""A secret by which small numbers stand for themselves: what is played is what is compared with."""

_CALLS = {
    "process_vm_readv": 310, "process_vm_writev": 311, "move_pages": 279, "mbind": 237, "io_pgetevents": 333,
    "epoll_pwait2": 441, "preadv2": 327, "pwritev2": 328, "copy_file_range": 326, "splice": 275, "io_uring_enter": 426,
}  # fmt: skip
"""Numbers on x86-64 of system calls with six arguments that refuse nonsense."""

_FIRST, _WORDS = 16, 6
"""Where the arguments of a ``sys_enter`` event begin, and how many there are."""

_CHILD = """
import ctypes, sys
call = ctypes.CDLL(None).syscall
call.argtypes = [ctypes.c_long] + [ctypes.c_ulong] * 6
print(flush=True)
for line in sys.stdin:
    number, *words = line.split()
    texts = [ctypes.create_string_buffer(bytes.fromhex(word[1:])) if word[0] == "t" else None for word in words]
    call(int(number), *(ctypes.addressof(text) if text else int(word) for text, word in zip(texts, words)))
    print(flush=True)
"""


class _Role(msgspec.Struct, frozen=True):
    """An event and the system call that plays it."""

    call: str
    fields: tuple[TracepointField, ...]


def _placed(fields: Sequence[TracepointField]) -> tuple[TracepointField, ...]:
    """Fields in the words of the arguments; text is behind a pointer, of an array its first element is there."""
    at = _FIRST
    placed: list[TracepointField] = []
    for field in fields:
        text = field.dynamic or (field.is_text and (field.is_array or field.is_pointer))
        size = 8 if text else field.element_size if field.is_array else field.size
        at += -at % size
        if text:
            placed.append(TracepointField(field.name, "char *", at, 8, False))
        else:
            array = "[1]" if field.is_array else ""
            placed.append(TracepointField(field.name, field.type, at, size, field.signed, "", array))
        at += size
    assert at <= _FIRST + 8 * _WORDS, f"{[field.name for field in fields]} do not fit into six arguments"
    return tuple(placed)


class _Kernel:
    """Formats in which some events are those of system calls; implements TracepointSource."""

    def __init__(self, kernel: TracepointSource, events: Mapping[str, Sequence[str]]) -> None:
        self._kernel = kernel
        self.roles: dict[str, _Role] = {}
        for (event, names), call in zip(events.items(), _CALLS, strict=False):
            group, _, name = event.partition(":")
            found = kernel.format(group, name)
            assert found is not None, f"the saved kernel has no {event}"
            # of two fields of one name the text
            by_name = {
                field.name: field
                for field in sorted(found.own_fields, key=lambda field: field.is_text or bool(field.dynamic))
            }
            self.roles[event] = _Role(call, _placed([by_name[name] for name in names]))
        assert len(self.roles) == len(events), f"at most {len(_CALLS)} events can be played at once"

    def format(self, group: str, event: str) -> TracepointFormat | None:
        role = self.roles.get(f"{group}:{event}")
        if role is None:
            return self._kernel.format(group, event)
        return TracepointFormat("syscalls", f"sys_enter_{role.call}", 1, role.fields)

    def groups(self) -> tuple[str, ...]:
        return self._kernel.groups()

    def events(self, group: str) -> tuple[str, ...]:
        return self._kernel.events(group)


class Actor:
    """A process that makes events happen.

    Attributes:
        pid: its pid.
    """

    def __init__(self, process: subprocess.Popen[str], roles: Mapping[str, _Role]) -> None:
        self._process = process
        self._roles = roles
        self.pid = process.pid
        self._wait()

    def play(self, event: str, **values: int | str) -> None:
        """Make one event happen in this process; fields that are not named are 0."""
        role = self._roles[event]
        unknown = set(values) - {field.name for field in role.fields}
        assert not unknown, f"{event} is played without {unknown}"
        words: list[int | str] = [0] * _WORDS
        for field in role.fields:
            index, shift = divmod(field.offset - _FIRST, 8)
            value = values.get(field.name, "" if field.is_text else 0)
            if isinstance(value, str):
                words[index] = f"t{value.encode().hex()}"
            else:
                word = words[index]
                assert isinstance(word, int)
                words[index] = word | (value & ((1 << 8 * field.size) - 1)) << 8 * shift
        assert self._process.stdin is not None
        print(_CALLS[role.call], *words, file=self._process.stdin, flush=True)
        self._wait()

    def _wait(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "\n"


class Theatre:
    """Attached programs of one probe set.

    Attributes:
        target: a process that is recorded.
        other: one that is not.
    """

    def __init__(self, plugin: LoadedPlugin, planned: PlannedSet, shared: Shared, layouts: Layouts) -> None:
        self._plugin = plugin
        self._planned = planned
        self._shared = shared
        self._layouts = layouts
        self._splitter = RowSplitter(layouts)
        self._records: dict[str, list[Records]] = defaultdict(list)
        self.target: Actor
        self.other: Actor

    def records(self, kind: str) -> Records:
        """Return all records of a kind so far, in order."""
        for batch in self._shared.rings.drain():
            for found, records in self._splitter.split(batch):
                self._records[found].append(records.copy())
        return np.concatenate([np.empty(0, self._layouts[kind].dtype), *self._records[kind]])

    def batch(self, kind: str) -> Batch:
        """Return the same, decoded by the plugin."""
        decoder = self._plugin.call("fencepath_decoder", layouts=self._layouts, functions={})
        batch: Batch = decoder.decode(kind, self.records(kind))
        return batch

    def rows(self, kind: str, *columns: str) -> list[tuple[Any, ...]]:
        """Return columns of the decoded records, a tuple a record."""
        batch = self.batch(kind)
        return list(zip(*(batch[column].tolist() for column in columns), strict=True))

    def lost(self, kind: str) -> dict[str, int]:
        """Return what was counted as lost of a kind, by stage."""
        counts = self._shared.losses.snapshot().sum(axis=0)[self._layouts.number(kind)]
        seen = np.flatnonzero(counts).tolist()
        return {Stage(stage).name: int(counts[stage]) for stage in seen if stage != Stage.RECORDED}


@contextlib.contextmanager
def played(
    layer: str, probe_set: str, kernel: System, events: Mapping[str, Sequence[str]], alternative: int = 0
) -> Generator[Theatre]:
    """Attach programs of a probe set to system calls.

    Args:
        layer: name of the plugin.
        probe_set: name of the set.
        kernel: of the saved formats.
        events: ``group:event`` of what will be played, with the fields that the program needs, in any order.
        alternative: which of the set's.
    """
    plugin = load_plugins().plugins[layer]
    stage = _Kernel(kernel.tracepoints, events)
    system = System(tracepoints=stage, architecture="x86_64", kernel=kernel.kernel, detail="full")
    (wanted,) = (each for each in plugin.call("fencepath_probes", system=system) if each.name == probe_set)
    planned = resolve_alternative(plugin, wanted, wanted.alternatives[alternative], system)
    assert isinstance(planned, PlannedSet), planned
    layouts = Layouts(
        {layout.kind: layout for layout in planned.layouts},
        {layout.kind: number for number, layout in enumerate(planned.layouts, 1)},
    )
    numbers = {kind: layouts.number(kind) for kind in layouts}
    with contextlib.ExitStack() as undo:
        shared = undo.enter_context(Shared(numbers, rings=Rings(4 << 20), self_tgid=os.getpid(), secret=PLAIN))
        theatre = Theatre(plugin, planned, shared, layouts)
        theatre.target, theatre.other = (undo.enter_context(_actor(stage.roles)) for _ in range(2))
        Targets(shared.tgids, shared.tids).add(theatre.target.pid)
        loaded = load_set(planned, shared.defines(), "full")
        undo.callback(loaded.close)
        for program in planned.programs:
            if program.resolved.format.group == "syscalls":
                fd = loaded.bpf.load(program.program, ProgramType.TRACEPOINT)
                links = [attach_tracepoint(fd, "syscalls", program.resolved.format.event)]
                undo.callback(close_links, links)
        yield theatre


@contextlib.contextmanager
def _actor(roles: Mapping[str, _Role]) -> Generator[Actor]:
    process = subprocess.Popen(
        [sys.executable, "-I", "-c", _CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield Actor(process, roles)
    finally:
        process.kill()
        process.communicate()
