# SPDX-License-Identifier: Apache-2.0
"""What the codes mean that CUDA's functions return."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from fencepath_cuda.error_names import DRIVER, RUNTIME

__all__ = ["NOT_READY", "Api", "error_name"]

Api: TypeAlias = Literal["driver", "runtime"]

NOT_READY = 600
"""CUDA_ERROR_NOT_READY and cudaErrorNotReady: the answer of a query, not an error."""

_NAMES: Mapping[str, Mapping[int, str]] = {"driver": DRIVER, "runtime": RUNTIME}


def error_name(api: Api, code: int) -> str:
    """Return the name of a code as NVIDIA's headers have it, ``CUDA_ERROR_ILLEGAL_ADDRESS`` or ``cudaErrorIllegalAddress``.

    Args:
        api: whose function returned it. Most codes mean the same in both, and have two names.
        code: CUresult or cudaError_t.

    Returns:
        ``unknown (1234)`` for a code that these headers do not have.
    """
    return _NAMES[api].get(code, f"unknown ({code})")
