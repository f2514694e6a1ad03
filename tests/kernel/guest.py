# SPDX-License-Identifier: Apache-2.0
"""Pytest plugin of the runs in the VM: leaves out the tests that are too slow there, and notes each test's time at once.

Whatever happens to the guest, the tests that ended before are in the folder it shares with the host.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.kernel.selection import LEFT_OUT

__all__ = ["TIMES_FILE"]

TIMES_FILE = "times"
"""Name of the file with a line `<seconds> <outcome> <test>` for each test that ended."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what is listed as left out, and uprobes attached in another way than the one this kernel is for.

    A name in the list that no collected file has is a fault of the list.
    """
    other_method = {"perf": "multi", "multi": "perf"}[os.environ["FENCEPATH_VM_UPROBES"]]
    listed = LEFT_OUT.keys() if os.environ.get("FENCEPATH_VM_ALL") != "1" else set()
    left_out = [item for item in items if _names(item) & listed or item.nodeid.endswith(f"[{other_method}]")]
    known = {name for item in items for name in _names(item)}
    files = {item.nodeid.partition("::")[0] for item in items}
    if unknown := [name for name in LEFT_OUT if name.partition("::")[0] in files and name not in known]:
        raise pytest.UsageError(f"tests/kernel/selection.py leaves out what is not there: {', '.join(unknown)}")
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note how long each phase of a test took."""
    seconds[report.nodeid] = seconds.get(report.nodeid, 0.0) + report.duration
    worst[report.nodeid] = max(worst.get(report.nodeid, "passed"), report.outcome, key=_OUTCOMES.index)
    if report.when == "teardown":
        with Path(os.environ["FENCEPATH_VM_OUT"], TIMES_FILE).open("a") as file:
            file.write(f"{seconds[report.nodeid]:.2f} {worst[report.nodeid]} {report.nodeid}\n")


seconds: dict[str, float] = {}
worst: dict[str, str] = {}
_OUTCOMES: Sequence[str] = ("passed", "skipped", "failed")


def _names(item: pytest.Item) -> set[str]:
    """Return the test's names in the list: with and without its parameters, and its file's."""
    return {item.nodeid, item.nodeid.partition("[")[0], item.nodeid.partition("::")[0]}
