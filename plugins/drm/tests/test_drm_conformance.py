# SPDX-License-Identifier: Apache-2.0
"""What every plugin must pass: on this machine, and as if it had the events of another kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepath.system import System
from fencepath.testing import PluginConformance

FORMATS = Path(__file__).with_name("formats")


class TestConformance(PluginConformance):
    layer = "drm"
    readme = Path(__file__).parent.parent / "README.md"


class TestConformanceOldNames(TestConformance):
    rounds = 5

    @pytest.fixture
    def machine(self) -> System:
        return System.from_formats(FORMATS / "6.1", detail="full")


class TestConformanceNewNames(TestConformance):
    rounds = 5

    @pytest.fixture
    def machine(self) -> System:
        return System.from_formats(FORMATS / "7.3", detail="full")
