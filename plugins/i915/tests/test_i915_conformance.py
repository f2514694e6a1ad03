# SPDX-License-Identifier: Apache-2.0
"""What every plugin must pass, on each kernel of which formats were saved, and on one with the low-level tracepoints."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.core.kernel_formats import saved_kernel

from fencepath.system import System
from fencepath.testing import PluginConformance

DATA = Path(__file__).with_name("data")
KERNELS = sorted(path for path in DATA.glob("*.formats") if path.name[0].isdigit())


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda path: path.stem)
@pytest.mark.parametrize("low_level", [False, True])
class TestConformance(PluginConformance):
    layer = "i915"
    readme = Path(__file__).parent.parent / "README.md"
    rounds = 8

    @pytest.fixture
    def machine(self, kernel: Path, low_level: bool, tmp_path: Path) -> System:
        further = (DATA / "low-level.formats",) if low_level else ()
        return saved_kernel(tmp_path, kernel, DATA / "core-6.18.formats", *further)

    @pytest.fixture(autouse=True)
    def _takes_the_kernel(self, kernel: Path, low_level: bool) -> None:
        """Requirements that ask for no machine hold for all of them."""
