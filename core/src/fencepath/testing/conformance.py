# SPDX-License-Identifier: Apache-2.0
"""The requirements as a test class that a plugin's tests subclass."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import ClassVar

import pytest

from fencepath._loader import LoadedPlugin, Registry, load_plugins
from fencepath.system import System
from fencepath.testing import requirements

__all__ = ["PluginConformance"]


class PluginConformance:
    """Subclass it as ``TestConformance`` in a plugin's tests.

    Attributes:
        layer: name of the layer, which must be installed.
        readme: the plugin's README.
        rounds: how many random batches a kind's decoder is given.
    """

    layer: ClassVar[str]
    readme: ClassVar[Path]
    rounds: ClassVar[int] = 50

    @pytest.fixture(scope="class")
    def registry(self) -> Registry:
        """All installed plugins."""
        return load_plugins()

    @pytest.fixture(scope="class")
    def plugin(self, registry: Registry) -> LoadedPlugin:
        """The plugin under test."""
        problems = [str(problem) for problem in registry.problems if problem.plugin == self.layer]
        assert self.layer in registry.plugins, f"layer {self.layer} did not load: {'; '.join(problems) or 'not installed'}"
        return registry.plugins[self.layer]

    @pytest.fixture(scope="class")
    def machine(self) -> System:
        """The machine whose tracepoints the checks resolve against; by default this one. Override it for saved formats."""
        return System.here("full")

    def test_kinds_are_well_formed(self, plugin: LoadedPlugin) -> None:
        requirements.kinds_are_well_formed(plugin)

    def test_imports_without_root(self, plugin: LoadedPlugin) -> None:
        points = importlib.metadata.entry_points(group="fencepath.plugins", name=self.layer)
        modules = {point.module for point in points}
        assert modules, f"no entry point {self.layer} in the group fencepath.plugins"
        for module in modules:
            requirements.imports_without_root(module)

    def test_rules_name_known_kinds(self, plugin: LoadedPlugin, registry: Registry) -> None:
        requirements.rules_name_known_kinds(plugin, registry)

    def test_readme_has_sections(self) -> None:
        requirements.readme_has_sections(self.readme)

    @pytest.mark.bpf
    def test_probes_are_data(self, plugin: LoadedPlugin, machine: System) -> None:
        requirements.probes_are_data(plugin, machine)

    @pytest.mark.bpf
    def test_records_match_c_layout(self, plugin: LoadedPlugin, machine: System) -> None:
        requirements.records_match_c_layout(plugin, machine)

    @pytest.mark.bpf
    def test_decoder_survives_random_bytes(self, plugin: LoadedPlugin, machine: System) -> None:
        requirements.decoder_survives_random_bytes(plugin, machine, self.rounds)

    @pytest.mark.bpf
    def test_bpf_compiles_and_loads(self, plugin: LoadedPlugin, machine: System) -> None:
        requirements.bpf_compiles_and_loads(plugin, machine)
