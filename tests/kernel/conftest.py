# SPDX-License-Identifier: Apache-2.0
"""Tests marked ``kernel`` run in the VM of ``make test-kernel``; elsewhere they are skipped with that reason."""

from __future__ import annotations

import os

import pytest


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip where there is no mock driver for the running kernel."""
    if item.get_closest_marker("kernel") is not None and "FENCEPATH_VM_MOCKGPU" not in os.environ:
        pytest.skip("needs the mock GPU driver in a VM; `make test-kernel` runs it there and fails if it cannot")
