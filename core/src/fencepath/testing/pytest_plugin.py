# SPDX-License-Identifier: Apache-2.0
"""Pytest plugin: the marker ``bpf`` for tests that need root and BPF, and the fixtures of :mod:`fencepath.testing`.

Such a test is skipped with the reason where it cannot run. With ``FENCEPATH_REQUIRE_BPF=1`` it fails instead, so that a
machine that should be able to run it cannot hide that it was not.

Every pytest run of an environment that has fencepath loads this module, so it imports nothing heavy.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from fencepath.testing.fixtures import LiveRecording, RecordingFrom, SystemFrom

__all__ = ["live_recording", "recording_from", "system_from"]

REQUIRE = "FENCEPATH_REQUIRE_BPF"


@cache
def bpf_unusable() -> str:
    """Return why BPF cannot be used here, "" if it can."""
    if os.geteuid() != 0:
        return "needs root"
    from fencepath._bpf.bcc import import_bcc
    from fencepath.errors import MachineError
    from fencepath.system import System

    try:
        import_bcc()
        System.here()
    except MachineError as error:
        return str(error)
    return ""


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker, so that plugins' authors need not."""
    config.addinivalue_line(
        "markers", f"bpf: needs root and BPF; skipped where it cannot run, fails there with {REQUIRE}=1"
    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip or fail live tests where BPF cannot be used."""
    if item.get_closest_marker("bpf") is None:
        return
    reason = bpf_unusable()
    if reason and os.environ.get(REQUIRE) == "1":
        pytest.fail(f"{REQUIRE}=1 but {reason}")
    if reason:
        pytest.skip(f"{reason}; {REQUIRE}=1 turns this skip into a failure")


@pytest.fixture
def live_recording(tmp_path: Path) -> LiveRecording:
    """Record a command with live eBPF and open the recording; put the marker ``bpf`` on the test."""
    from fencepath.testing.fixtures import live_recording_in

    return live_recording_in(tmp_path)


@pytest.fixture
def recording_from(tmp_path: Path) -> RecordingFrom:
    """Make a recording from records, with no machine involved."""
    from fencepath.testing.fixtures import recording_from_in

    return recording_from_in(tmp_path)


@pytest.fixture
def system_from() -> SystemFrom:
    """Make a machine from a folder of saved tracefs formats."""
    from fencepath.system import System

    return lambda folder: System.from_formats(folder, detail="full")
