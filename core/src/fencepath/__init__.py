# SPDX-License-Identifier: Apache-2.0
"""fencepath shows why an LLM request was slow.

It follows the request through CUDA calls, GPU-driver jobs and fences and thread wake-ups with eBPF, prints the one chain
that set its latency, and says how sure each link is and what it could not see.

Names are imported when they are used: ``import fencepath`` itself loads nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fencepath._version import __version__ as __version__
    from fencepath.analysis import Analysis as Analysis
    from fencepath.analysis import Path as Path
    from fencepath.errors import FencepathError as FencepathError
    from fencepath.recording import Recording as Recording
    from fencepath.recording import open_recording as open_recording

__all__ = ["Analysis", "FencepathError", "Path", "Recording", "__version__", "open_recording"]

_HOMES = {
    "Analysis": "fencepath.analysis",
    "FencepathError": "fencepath.errors",
    "Path": "fencepath.analysis",
    "Recording": "fencepath.recording",
    "__version__": "fencepath._version",
    "open_recording": "fencepath.recording",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'fencepath' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
