# SPDX-License-Identifier: Apache-2.0
"""What every plugin must pass. The tests are fencepath's; this says of which plugin."""

from __future__ import annotations

from pathlib import Path

from fencepath.testing import PluginConformance


class TestConformance(PluginConformance):
    layer = "acme"
    readme = Path(__file__).parent.parent / "README.md"
