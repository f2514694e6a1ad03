# SPDX-License-Identifier: Apache-2.0
"""What every plugin must pass, on each kernel of which formats were saved: nothing of them is loaded here."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.core.kernel_formats import saved_kernel

from fencepath.system import System
from fencepath.testing import PluginConformance

KERNELS = sorted(Path(__file__).with_name("data").glob("*.formats"))


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda path: path.stem)
class TestConformance(PluginConformance):
    layer = "xe"
    readme = Path(__file__).parent.parent / "README.md"
    rounds = 8

    @pytest.fixture
    def machine(self, kernel: Path, tmp_path: Path) -> System:
        return saved_kernel(tmp_path, kernel)

    @pytest.fixture(autouse=True)
    def _takes_the_kernel(self, kernel: Path) -> None:
        """Requirements that ask for no machine hold for all of them."""
