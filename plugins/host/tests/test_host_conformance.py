# SPDX-License-Identifier: Apache-2.0
"""What every plugin must pass."""

from __future__ import annotations

from pathlib import Path

from fencepath.testing import PluginConformance


class TestConformance(PluginConformance):
    layer = "host"
    readme = Path(__file__).parent.parent / "README.md"
