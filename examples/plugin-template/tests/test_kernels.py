# SPDX-License-Identifier: Apache-2.0
"""What the layer takes on which kernel, without being there: from formats saved there."""

from __future__ import annotations

from pathlib import Path

import pytest
from fencepath.testing import SystemFrom, without_events
from fencepath.tracepoints import Missing, Resolved

from fencepath_acme import plugin

FORMATS = Path(__file__).parent / "formats"


def doorbells(system_from: SystemFrom, kernel: str, *lacking: str) -> Resolved | Missing:
    return plugin.RING.resolve(without_events(system_from(FORMATS / kernel), *lacking).tracepoints)


@pytest.mark.parametrize("kernel", sorted(folder.name for folder in FORMATS.iterdir()))
def test_doorbells_come_from_signals(system_from: SystemFrom, kernel: str) -> None:
    found = doorbells(system_from, kernel)
    assert isinstance(found, Resolved)
    assert (found.name, found.absent) == ("signal:signal_generate", ())


def test_without_signal_events_they_come_from_the_system_call(system_from: SystemFrom) -> None:
    found = doorbells(system_from, "6.18", "signal:signal_generate")
    assert isinstance(found, Resolved)
    assert found.name == "syscalls:sys_enter_tgkill"
    assert set(found.absent) == {"code", "delivery"}


def test_without_either_the_check_says_what_is_lost(system_from: SystemFrom) -> None:
    machine = without_events(system_from(FORMATS / "6.18"), "signal:signal_generate", "syscalls:sys_enter_tgkill")
    (check,) = plugin.fencepath_checks(machine)
    assert check.verdict == "degrade"
    assert check.cost
    assert "sys_enter_tgkill" in check.evidence
