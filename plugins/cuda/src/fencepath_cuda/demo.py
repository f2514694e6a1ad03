# SPDX-License-Identifier: Apache-2.0
"""The demo: a simulated LLM inference server on simulated CUDA, recorded with real probes."""

from __future__ import annotations

from pathlib import Path

from fencepath.plugin import DemoCommand
from fencepath_cuda import simcuda

__all__ = ["SimulatedServer"]


class SimulatedServer:
    """Implements :class:`fencepath.plugin.Demo`."""

    @property
    def title(self) -> str:
        """What it is."""
        return "a small LLM inference server; its GPU is simulated, its threads, probes and times are real"

    @property
    def packaged(self) -> Path:
        """A recording of a real GPU; tests/golden says how it was made."""
        return Path(__file__).parent / "data" / "h200-llm.fencepath.zip"

    @property
    def packaged_title(self) -> str:
        """What that is."""
        return "a small LLM with random weights on a real NVIDIA H200, recorded before"

    def build(self, folder: Path, requests: int) -> DemoCommand:
        """Compile the simulated library."""
        built = simcuda.build(folder)
        command = built.server_command("--requests", str(requests))
        return DemoCommand(argv=tuple(command), environ={"LD_LIBRARY_PATH": str(built.folder)})
