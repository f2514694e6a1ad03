# SPDX-License-Identifier: Apache-2.0
"""What the layer ``i915`` takes on which kernel: on saved ones, with the low-level tracepoints, where something is missing.

Debian's kernels are built without CONFIG_DRM_I915_LOW_LEVEL_TRACEPOINTS. ``low-level.formats`` was made from the fields in
drivers/gpu/drm/i915/i915_trace.h of 6.12, laid out as the kernel does.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.core.kernel_formats import changed, layout, saved_kernel, unpack

from fencepath.plugin import Alternative, TracepointProbe
from fencepath.system import System
from fencepath.testing import without_events
from fencepath.tracepoints import Missing, Resolved, parse_format
from fencepath_i915 import plugin
from fencepath_i915.events import EVENTS
from fencepath_i915.tracepoints import LOW_LEVEL, OBJECTS, PRESSURE, REQUESTS, SHRINKS

DATA = Path(__file__).with_name("data")
CORE, LOW = DATA / "core-6.18.formats", DATA / "low-level.formats"
KERNELS = sorted(path for path in DATA.glob("*.formats") if path not in (CORE, LOW))
NEWEST = KERNELS[-1]
ALL_SETS = {"requests", "objects", "pressure", "shrinks", "contexts at the GuC"}


def possible(system: System) -> dict[str, Alternative]:
    """For each probe set the first alternative that the machine has in full."""
    found: dict[str, Alternative] = {}
    for probe_set in plugin.fencepath_probes(system):
        for alternative in probe_set.alternatives:
            probes = [probe for probe in alternative.probes if isinstance(probe, TracepointProbe)]
            if all(isinstance(probe.record.resolve(system.tracepoints), Resolved) for probe in probes):
                found.setdefault(probe_set.name, alternative)
    return found


@pytest.mark.parametrize("kernel", [*KERNELS, LOW], ids=lambda path: path.stem)
def test_every_saved_format_is_read(kernel: Path) -> None:
    events = list(unpack(kernel))
    assert len(events) >= 20
    for group, event, text in events:
        parsed = parse_format(text, group)
        assert parsed.name == f"{group}:{event}"
        assert len(parsed.fields) == text.count("field:")


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda path: path.stem)
def test_saved_kernels_give_all_but_the_low_level(kernel: Path, tmp_path: Path) -> None:
    system = saved_kernel(tmp_path, kernel, CORE)
    found = possible(system)
    assert set(found) == ALL_SETS - {"contexts at the GuC"}
    assert "LOW_LEVEL_TRACEPOINTS" in found["requests"].loses
    assert not found["shrinks"].loses
    for records in (REQUESTS, OBJECTS, PRESSURE, SHRINKS):
        for record in records.values():
            resolved = record.resolve(system.tracepoints)
            assert isinstance(resolved, Resolved)
            # ``wait_end`` fills what ``wait_begin`` gives too
            assert resolved.absent == ()


def test_low_level_tracepoints_give_everything(tmp_path: Path) -> None:
    system = saved_kernel(tmp_path, NEWEST, CORE, LOW)
    found = possible(system)
    assert set(found) == ALL_SETS
    assert not [alternative.loses for alternative in found.values() if alternative.loses]
    assert {kind for alternative in found.values() for kind in alternative.gives} == {
        str(event.__struct_config__.tag) for event in EVENTS
    }
    checks = {check.name: check.verdict for check in plugin.fencepath_checks(system)}
    assert checks == {"tracepoints of i915": "ok", "low-level tracepoints of i915": "ok"}


def test_without_the_guc_the_rest_of_the_low_level_is_there(tmp_path: Path) -> None:
    names = [f"{group}:{event}" for group, event, _ in unpack(LOW) if "guc_submit" in event or "context" in event]
    found = possible(without_events(saved_kernel(tmp_path, NEWEST, CORE, LOW), *names))
    assert found["requests"].loses == "submission to the GuC"
    assert "i915.request.run" in found["requests"].gives


def test_some_contexts_at_the_guc_are_better_than_none(tmp_path: Path) -> None:
    system = without_events(
        saved_kernel(tmp_path, NEWEST, CORE, LOW), "i915:intel_context_ban", "i915:intel_context_reset"
    )
    alternative = possible(system)["contexts at the GuC"]
    assert len(alternative.probes) == 13
    assert alternative.loses == "intel_context_reset, intel_context_ban"


def test_without_events_of_reclaim_what_was_freed_is_not_known(tmp_path: Path) -> None:
    found = possible(saved_kernel(tmp_path, NEWEST))
    assert found["shrinks"].loses == "how much memory was given back"


def test_without_the_module_nothing_is_missed(tmp_path: Path) -> None:
    """With xe alone a kernel of 6.12 has a group i915, of display events."""
    event = "i915_reg_rw"
    path = tmp_path / "display" / "i915" / f"{event}.format"
    path.parent.mkdir(parents=True)
    path.write_text(layout(event, "u64 val; u32 reg; u16 write; u16 len"))
    system = System.from_formats(tmp_path / "display")
    assert possible(system) == {}
    (check,) = plugin.fencepath_checks(system)
    assert (check.verdict, check.evidence) == ("ok", "the module i915 is not loaded")


def replaced(folder: Path, event: str, **fields: str | None) -> System:
    """The newest kernel with fields of one event laid out anew."""
    system = saved_kernel(folder, NEWEST, CORE, LOW)
    path = folder / NEWEST.stem / "i915" / f"{event}.format"
    path.write_text(changed(path.read_text(), **fields))
    return System.from_formats(folder / NEWEST.stem, detail=system.detail)


def test_fields_that_lie_elsewhere_are_found(tmp_path: Path) -> None:
    system = replaced(tmp_path, "i915_request_add", fresh="u64 fresh", seqno="u32 seqno", ctx="u64 ctx")
    found = REQUESTS["on_add"].resolve(system.tracepoints)
    assert isinstance(found, Resolved)
    places = {binding.take.target: binding.field and binding.field.offset for binding in found.bindings}
    assert (places["seqno"], places["context"]) == (16, 24)


def test_a_kernel_without_tail_is_read(tmp_path: Path) -> None:
    """5.10 has none."""
    system = replaced(tmp_path, "i915_request_add", tail=None)
    found = REQUESTS["on_add"].resolve(system.tracepoints)
    assert isinstance(found, Resolved)
    assert found.absent == ("tail",)


def test_a_field_that_is_wider_or_missing_costs_its_set_and_is_said(tmp_path: Path) -> None:
    wide = replaced(tmp_path / "wide", "i915_request_add", seqno="u64 seqno")
    assert set(possible(wide)) == ALL_SETS - {"requests"}
    assert "seqno has 8 bytes" in next(iter(plugin.fencepath_checks(wide))).evidence
    less = replaced(tmp_path / "less", "i915_vma_bind", size=None)
    assert set(possible(less)) == ALL_SETS - {"objects"}
    assert "no field size" in next(iter(plugin.fencepath_checks(less))).evidence


def test_names_of_before_5_0(tmp_path: Path) -> None:
    folder = tmp_path / "4.20" / "i915"
    folder.mkdir(parents=True)
    event = "i915_gem_request_in"
    (folder / f"{event}.format").write_text(
        layout(event, "u32 dev; u64 ctx; u16 class; u16 instance; u32 seqno; u32 port; u32 prio")
    )
    found = LOW_LEVEL["on_in"].resolve(System.from_formats(folder.parent).tracepoints)
    assert isinstance(found, Resolved)
    assert found.name == "i915:i915_gem_request_in"
    assert isinstance(LOW_LEVEL["on_out"].resolve(System.from_formats(folder.parent).tracepoints), Missing)
