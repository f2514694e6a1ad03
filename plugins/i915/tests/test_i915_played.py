# SPDX-License-Identifier: Apache-2.0
"""The BPF programs of the layer ``i915``, run in this kernel by events that a process makes up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.core.kernel_formats import saved_kernel
from tests.core.played import Theatre, played

from fencepath.records import Flags
from fencepath.system import System
from fencepath_i915.kinds import (
    ADD,
    BIND,
    EVICT,
    OBJECT_CREATE,
    OBJECT_DESTROY,
    QUEUE,
    RETIRE,
    RUN,
    SHRINK,
    UNBIND,
    WAIT,
)

pytestmark = pytest.mark.bpf

DATA = Path(__file__).with_name("data")
TASK = int(Flags.TASK)
FENCE = {"ctx": 71, "seqno": 5}
REQUEST = ("ctx", "class", "instance", "seqno")


def kernel(folder: Path) -> System:
    return saved_kernel(
        folder, DATA / "7.3.4+deb13-amd64.formats", DATA / "core-6.18.formats", DATA / "low-level.formats"
    )


def request(name: str) -> str:
    return f"i915:i915_request_{name}"


@pytest.fixture
def requests(tmp_path: Path) -> Iterator[Theatre]:
    further = {
        "queue": ("flags",), "add": ("tail",), "retire": ("tail",), "wait_begin": ("flags",), "wait_end": (),
        "submit": ("tail",), "execute": ("tail",), "guc_submit": ("tail",), "in": ("port", "prio"), "out": ("completed",),
    }  # fmt: skip
    events = {request(name): ("dev", *REQUEST, *fields) for name, fields in further.items()}
    with played("i915", "requests", kernel(tmp_path), events) as theatre:
        yield theatre


def test_a_request_from_submission_to_its_end(requests: Theatre) -> None:
    """The other process plays interrupts and workers, and a stranger with requests of its own."""
    target, other = requests.target, requests.other
    where = {"dev": 1, "class": 4, "instance": 2}
    target.play(request("queue"), **FENCE, **where, flags=0x80)
    target.play(request("add"), **FENCE, **where, tail=64)
    other.play(request("add"), ctx=73, seqno=5, tail=64)
    for context in (71, 73):
        for name in ("submit", "execute", "guc_submit"):
            other.play(request(name), ctx=context, seqno=5, tail=64)
        other.play(request("in"), ctx=context, seqno=5, **where, port=1, prio=-3)
        other.play(request("out"), ctx=context, seqno=5, **where, completed=1)
        other.play(request("retire"), ctx=context, seqno=5, **where, tail=64)
    columns = ("context", "seqno", "device", "engine_class", "engine_instance", "tgid", "flags")
    by_target = (71, 5, 1, 4, 2, target.pid, TASK)
    by_nobody = (71, 5, 1, 4, 2, other.pid, 0)
    assert requests.rows(QUEUE, *columns, "request_flags") == [(*by_target, 0x80)]
    assert requests.rows(ADD, *columns, "tail") == [(*by_target, 64)]
    assert requests.rows(RUN, *columns, "port", "priority", "completed") == [(*by_nobody, 1, -3, 1)]
    assert requests.rows(RETIRE, *columns, "tail") == [(*by_nobody, 64)]
    for name in ("submit", "execute", "guc_submit"):
        assert requests.rows(f"i915.request.{name}", "context", "seqno", "tail", "flags") == [(71, 5, 64, 0)]


def test_a_request_that_is_preempted_runs_twice(requests: Theatre) -> None:
    requests.target.play(request("add"), **FENCE)
    for completed in (0, 1):
        requests.other.play(request("in"), **FENCE)
        requests.other.play(request("out"), **FENCE, completed=completed)
    # an out without an in
    requests.other.play(request("out"), **FENCE, completed=1)
    runs = requests.rows(RUN, "completed", "begin_ns", "time_ns")
    assert [completed for completed, *_ in runs] == [0, 1]
    times = [time for _, *pair in runs for time in pair]
    assert times == sorted(times)
    assert requests.lost(RUN) == {"NO_ENTRY": 1}


def test_waits_of_targets_last(requests: Theatre) -> None:
    target, other = requests.target, requests.other
    target.play(request("wait_begin"), **FENCE, flags=1)
    # one thread's begin is not another's
    other.play(request("wait_begin"), ctx=71, seqno=6)
    other.play(request("wait_end"), ctx=71, seqno=6)
    target.play(request("wait_end"), **FENCE)
    target.play(request("wait_end"), **FENCE)
    ((context, seqno, flags, wait_flags, begin, end),) = requests.rows(
        WAIT, "context", "seqno", "flags", "wait_flags", "begin_ns", "time_ns"
    )
    assert (context, seqno, flags, wait_flags) == (71, 5, TASK, 1)
    assert begin < end
    assert requests.lost(WAIT) == {"NO_ENTRY": 1}


@pytest.fixture
def objects(tmp_path: Path) -> Iterator[Theatre]:
    vma = ("obj", "vm", "offset", "size")
    events = {
        "i915:i915_gem_object_create": ("obj", "size"),
        "i915:i915_gem_object_destroy": ("obj",),
        "i915:i915_gem_object_pread": ("obj", "offset", "len"),
        "i915:i915_gem_object_pwrite": ("obj", "offset", "len"),
        "i915:i915_gem_object_clflush": ("obj",),
        "i915:i915_gem_object_fault": ("obj", "index", "gtt", "write"),
        "i915:i915_vma_bind": (*vma, "flags"),
        "i915:i915_vma_unbind": vma,
    }
    with played("i915", "objects", kernel(tmp_path), events) as theatre:
        yield theatre


def test_an_object_is_followed_whoever_touches_it(objects: Theatre) -> None:
    target, other = objects.target, objects.other
    target.play("i915:i915_gem_object_create", obj=0xA0, size=8192)
    other.play("i915:i915_gem_object_create", obj=0xA1, size=4096)
    target.play("i915:i915_vma_bind", obj=0xA0, vm=0xF0, offset=1 << 40, size=8192, flags=9)
    for obj in (0xA0, 0xA1):
        other.play("i915:i915_gem_object_clflush", obj=obj)
        other.play("i915:i915_vma_unbind", obj=obj, vm=0xF0, offset=1 << 40, size=8192)
        other.play("i915:i915_gem_object_destroy", obj=obj)
    # the address is a stranger's now, and a target ends what was there before
    other.play("i915:i915_gem_object_destroy", obj=0xA0)
    target.play("i915:i915_gem_object_destroy", obj=0xA7)
    assert objects.rows(OBJECT_CREATE, "object", "size_bytes", "flags") == [(0xA0, 8192, TASK)]
    assert objects.rows(OBJECT_DESTROY, "object", "size_bytes", "owner_tgid", "tgid", "flags") == [
        (0xA0, 8192, target.pid, other.pid, 0),
        (0xA7, 0, 0, target.pid, TASK),
    ]
    columns = ("object", "vm", "address", "size_bytes", "bind_flags", "owner_tgid", "flags")
    assert objects.rows(BIND, *columns) == [(0xA0, 0xF0, 1 << 40, 8192, 9, target.pid, TASK)]
    assert objects.rows(UNBIND, *columns) == [(0xA0, 0xF0, 1 << 40, 8192, 0, target.pid, 0)]
    assert objects.rows("i915.object.clflush", "object", "flags") == [(0xA0, 0)]


def test_what_threads_do_with_objects(objects: Theatre) -> None:
    for actor in (objects.target, objects.other):
        actor.play("i915:i915_gem_object_pread", obj=0xA0, offset=16, len=100)
        actor.play("i915:i915_gem_object_pwrite", obj=0xA0, offset=32, len=200)
        actor.play("i915:i915_gem_object_fault", obj=0xA0, index=3, gtt=1, write=1)
    columns = ("object", "offset_bytes", "size_bytes", "flags")
    assert objects.rows("i915.object.pread", *columns) == [(0xA0, 16, 100, TASK)]
    assert objects.rows("i915.object.pwrite", *columns) == [(0xA0, 32, 200, TASK)]
    assert objects.rows("i915.object.fault", "page", "through_gtt", "is_write") == [(3, 1, 1)]


def test_evictions_from_address_spaces_of_targets(tmp_path: Path) -> None:
    events = {
        "i915:i915_ppgtt_create": ("vm", "dev"),
        "i915:i915_ppgtt_release": ("vm", "dev"),
        "i915:i915_context_create": ("ctx", "vm", "dev"),
        "i915:i915_context_free": ("ctx", "vm", "dev"),
        "i915:i915_gem_evict": ("dev", "vm", "size", "align", "flags"),
        "i915:i915_gem_evict_node": ("dev", "vm", "start", "size", "color", "flags"),
        "i915:i915_gem_evict_vm": ("dev", "vm"),
    }
    with played("i915", "pressure", kernel(tmp_path), events) as theatre:
        target, other = theatre.target, theatre.other
        target.play("i915:i915_ppgtt_create", vm=0xF0, dev=1)
        other.play("i915:i915_ppgtt_create", vm=0xF1, dev=1)
        target.play("i915:i915_context_create", ctx=0xC0, vm=0xF0, dev=1)
        for vm in (0xF0, 0xF1):
            other.play("i915:i915_gem_evict", dev=1, vm=vm, size=4096, align=65536, flags=3)
        target.play("i915:i915_gem_evict_node", dev=1, vm=0xF1, start=1 << 32, size=8192, color=(1 << 64) - 1)
        other.play("i915:i915_context_free", ctx=0xC0, vm=0xF0, dev=1)
        other.play("i915:i915_ppgtt_release", vm=0xF0, dev=1)
        other.play("i915:i915_gem_evict_vm", dev=1, vm=0xF0)
        target.play("i915:i915_gem_evict_vm", dev=1, vm=0xF1)
        columns = ("action", "vm", "address", "size_bytes", "alignment_bytes", "color", "evict_flags", "flags")
        assert theatre.rows(EVICT, *columns) == [
            ("evict", 0xF0, 0, 4096, 65536, 0, 3, 0),
            ("evict_node", 0xF1, 1 << 32, 8192, 0, (1 << 64) - 1, 0, TASK),
            ("evict_vm", 0xF1, 0, 0, 0, 0, 0, TASK),
        ]
        assert theatre.rows("i915.vm.create", "vm", "device", "flags") == [(0xF0, 1, TASK)]
        assert theatre.rows("i915.vm.release", "vm", "flags") == [(0xF0, 0)]
        assert theatre.rows("i915.context.create", "context_pointer", "vm", "flags") == [(0xC0, 0xF0, TASK)]
        assert theatre.rows("i915.context.free", "context_pointer", "flags") == [(0xC0, 0)]


SHRINKS = {
    "i915:i915_gem_shrink": ("dev", "target", "flags"),
    "vmscan:mm_shrink_slab_start": ("shr",),
    "vmscan:mm_shrink_slab_end": ("shr", "retval"),
}
SHRUNK = ("target_pages", "freed_pages", "calls", "shrink_flags", "flags")


def test_reclaim_says_what_was_given_back(tmp_path: Path) -> None:
    with played("i915", "shrinks", kernel(tmp_path), SHRINKS) as theatre:
        for actor in (theatre.other, theatre.target):
            # reclaim that does not come to the driver
            actor.play("vmscan:mm_shrink_slab_start", shr=1)
            actor.play("vmscan:mm_shrink_slab_end", shr=1, retval=999)
            actor.play("vmscan:mm_shrink_slab_start", shr=2)
            actor.play("i915:i915_gem_shrink", target=128, flags=1)
            actor.play("i915:i915_gem_shrink", target=64, flags=5)
            actor.play("vmscan:mm_shrink_slab_end", shr=2, retval=131)
        # the driver on its own behalf
        theatre.target.play("i915:i915_gem_shrink", target=16)
        assert theatre.rows(SHRINK, *SHRUNK) == [
            (192, 131, 2, 5, 0),
            (192, 131, 2, 5, TASK),
            (16, -1, 1, 0, TASK),
        ]
        times = theatre.rows(SHRINK, "begin_ns", "time_ns")
        assert [begin == end for begin, end in times] == [False, False, True]


def test_without_events_of_reclaim_only_the_wish_is_known(tmp_path: Path) -> None:
    events = {"i915:i915_gem_shrink": SHRINKS["i915:i915_gem_shrink"]}
    with played("i915", "shrinks", kernel(tmp_path), events, alternative=1) as theatre:
        theatre.other.play("i915:i915_gem_shrink", target=128, flags=1)
        assert theatre.rows(SHRINK, *SHRUNK) == [(128, -1, 1, 1, 0)]


def test_contexts_at_the_guc_are_of_the_whole_machine(tmp_path: Path) -> None:
    fields = ("guc_id", "pin_count", "sched_state", "guc_prio")
    events = {f"i915:intel_context_{name}": fields for name in ("register", "ban", "create")}
    with played("i915", "contexts at the GuC", kernel(tmp_path), events) as theatre:
        theatre.other.play("i915:intel_context_create", guc_id=7)
        theatre.other.play("i915:intel_context_register", guc_id=7, pin_count=-1, sched_state=3, guc_prio=2)
        theatre.target.play("i915:intel_context_ban", guc_id=9)
        columns = ("action", "guc_id", "pin_count", "sched_state", "guc_priority", "flags")
        assert theatre.rows("i915.guc_context", *columns) == [
            ("create", 7, 0, 0, 0, 0),
            ("register", 7, -1, 3, 2, 0),
            ("ban", 9, 0, 0, 0, 0),
        ]
