# SPDX-License-Identifier: Apache-2.0
"""The requirements as a test class that a plugin's tests subclass."""

from __future__ import annotations

import importlib
import importlib.metadata
from functools import cache
from pathlib import Path
from typing import ClassVar

import pytest

from fencepath._loader import LoadedPlugin, Registry, load_plugins
from fencepath.errors import MachineError
from fencepath.plugin import ENTRY_POINT_GROUP
from fencepath.system import System
from fencepath.testing import requirements

__all__ = ["PluginConformance"]


@cache
def _installed() -> Registry:
    return load_plugins()


class PluginConformance:
    """Subclass it as ``TestConformance`` in a plugin's tests.

    Attributes:
        layer: name of the layer, which must be installed under an entry point of the same name.
        readme: the plugin's README.
        rounds: how many random batches a kind's decoder is given.
    """

    layer: ClassVar[str]
    readme: ClassVar[Path]
    rounds: ClassVar[int] = 50

    @pytest.fixture
    def module(self) -> str:
        """Name of the module behind the plugin's entry point."""
        points = importlib.metadata.entry_points(group=ENTRY_POINT_GROUP, name=self.layer)
        modules = {point.module for point in points}
        assert modules, (
            f"no entry point {self.layer} in the group {ENTRY_POINT_GROUP}; declare it in pyproject.toml and install again"
        )
        assert len(modules) == 1, f"the entry point {self.layer} leads to {', '.join(sorted(modules))}; uninstall one"
        return modules.pop()

    @pytest.fixture
    def registry(self) -> Registry:
        """All installed plugins."""
        return _installed()

    @pytest.fixture
    def plugin(self, registry: Registry) -> LoadedPlugin:
        """The plugin under test."""
        problems = [str(problem) for problem in registry.problems if problem.plugin == self.layer]
        assert self.layer in registry.plugins, (
            f"layer {self.layer} did not load: {'; '.join(problems) or 'not installed'}"
        )
        return registry.plugins[self.layer]

    @pytest.fixture
    def machine(self, tmp_path: Path) -> System:
        """The machine that probes are asked for: this one, or one without tracepoints where they may not be read.

        Override it to check against saved formats.
        """
        try:
            return System.here("full")
        except MachineError:
            return System.from_formats(tmp_path, detail="full")

    def test_hooks_are_known(self, module: str) -> None:
        requirements.hooks_are_known(importlib.import_module(module))

    def test_imports_without_root(self, module: str) -> None:
        requirements.imports_without_root(module)

    def test_readme_has_sections(self) -> None:
        requirements.readme_has_sections(self.readme)

    def test_readme_names_kinds(self, plugin: LoadedPlugin) -> None:
        requirements.readme_names_kinds(self.readme, plugin)

    def test_kinds_are_well_formed(self, plugin: LoadedPlugin) -> None:
        requirements.kinds_are_well_formed(plugin)

    def test_rules_name_known_kinds(self, plugin: LoadedPlugin, registry: Registry) -> None:
        requirements.rules_name_known_kinds(plugin, registry)

    def test_probes_are_data(self, plugin: LoadedPlugin, machine: System) -> None:
        requirements.probes_are_data(plugin, machine)

    def test_records_match_c_layout(self, plugin: LoadedPlugin, machine: System) -> None:
        requirements.records_match_c_layout(plugin, machine)

    def test_decoder_survives_random_bytes(self, plugin: LoadedPlugin, machine: System) -> None:
        requirements.decoder_survives_random_bytes(plugin, machine, self.rounds)

    def test_columns_are_given(self, plugin: LoadedPlugin, machine: System) -> None:
        requirements.columns_are_given(plugin, machine)

    def test_keys_are_filled(self, plugin: LoadedPlugin, machine: System) -> None:
        requirements.keys_are_filled(plugin, machine)

    def test_span_attributes_are_plain(self, plugin: LoadedPlugin, machine: System) -> None:
        requirements.span_attributes_are_plain(plugin, machine)

    @pytest.mark.bpf
    def test_bpf_compiles_and_loads(self, plugin: LoadedPlugin, machine: System) -> None:
        loaded = requirements.bpf_compiles_and_loads(plugin, machine)
        if not loaded:
            pytest.skip(
                f"nothing of {self.layer} is possible on kernel {machine.kernel}; override `machine` with saved formats"
            )
