# SPDX-License-Identifier: Apache-2.0
"""What a machine offers to plugins: asked before anything is attached."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING

from fencepath.tracepoints import LiveTracepoints, SavedTracepoints, TracepointSource

if TYPE_CHECKING:
    from fencepath.plugin import Detail

__all__ = ["System"]


class System:
    """A machine, live or saved.

    Attributes:
        tracepoints: formats of its kernel's events.
        architecture: as ``uname -m``.
        kernel: as ``uname -r``; for display only, never compared.
        detail: detail that was asked for.
        live: whether it is this machine now.
    """

    def __init__(
        self,
        *,
        tracepoints: TracepointSource,
        architecture: str,
        kernel: str,
        detail: Detail = "launch",
        live: bool = False,
    ) -> None:
        self.tracepoints = tracepoints
        self.architecture = architecture
        self.kernel = kernel
        self.detail: Detail = detail
        self.live = live

    @classmethod
    def here(cls, detail: Detail = "launch") -> System:
        """This machine.

        Raises:
            MachineError: tracefs is not mounted or cannot be read.
        """
        return cls(
            tracepoints=LiveTracepoints(),
            architecture=platform.machine(),
            kernel=os.uname().release,
            detail=detail,
            live=True,
        )

    @classmethod
    def from_formats(cls, folder: Path, architecture: str = "x86_64", detail: Detail = "launch") -> System:
        """A machine of which only tracefs formats were saved, as ``FOLDER/<group>/<event>.format``."""
        return cls(tracepoints=SavedTracepoints(folder), architecture=architecture, kernel=folder.name, detail=detail)
