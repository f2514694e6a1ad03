# SPDX-License-Identifier: Apache-2.0
"""What every plugin must pass, here and on a machine that has the driver's tracepoints."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepath.system import System
from fencepath.testing import PluginConformance

README = Path(__file__).parent.parent / "README.md"
FORMATS = Path(__file__).with_name("formats")


class TestConformance(PluginConformance):
    layer = "nvidia"
    readme = README


class TestConformanceWithTheDriver(PluginConformance):
    """On a machine whose driver has its tracepoints: their fields are those of driver 580, their numbers are made up."""

    layer = "nvidia"
    readme = README
    rounds = 10

    @pytest.fixture
    def machine(self, tmp_path: Path) -> System:
        del tmp_path
        return System.from_formats(FORMATS / "driver-580", detail="full")
