# SPDX-License-Identifier: Apache-2.0
"""Names of errors: well-known ones by heart, all by NVIDIA's headers."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from plugins.cuda.tests.prototypes import HOW_TO_GET, found_headers

from fencepath_cuda.error_names import DRIVER, RUNTIME
from fencepath_cuda.errors import error_name

TOOL = Path(__file__).parents[3] / "tools" / "make-cuda-error-names.py"


@pytest.mark.parametrize(
    ("code", "driver", "runtime"),
    [
        (0, "CUDA_SUCCESS", "cudaSuccess"),
        (1, "CUDA_ERROR_INVALID_VALUE", "cudaErrorInvalidValue"),
        (2, "CUDA_ERROR_OUT_OF_MEMORY", "cudaErrorMemoryAllocation"),
        (100, "CUDA_ERROR_NO_DEVICE", "cudaErrorNoDevice"),
        (209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "cudaErrorNoKernelImageForDevice"),
        (600, "CUDA_ERROR_NOT_READY", "cudaErrorNotReady"),
        (700, "CUDA_ERROR_ILLEGAL_ADDRESS", "cudaErrorIllegalAddress"),
        (719, "CUDA_ERROR_LAUNCH_FAILED", "cudaErrorLaunchFailure"),
        (900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "cudaErrorStreamCaptureUnsupported"),
        (901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "cudaErrorStreamCaptureInvalidated"),
        (906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "cudaErrorStreamCaptureImplicit"),
        (910, "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE", "cudaErrorGraphExecUpdateFailure"),
        (999, "CUDA_ERROR_UNKNOWN", "cudaErrorUnknown"),
        (1234, "unknown (1234)", "unknown (1234)"),
        (-1, "unknown (-1)", "unknown (-1)"),
    ],
)
def test_a_code_has_its_name(code: int, driver: str, runtime: str) -> None:
    assert (error_name("driver", code), error_name("runtime", code)) == (driver, runtime)


def test_most_codes_are_in_both() -> None:
    assert len(set(DRIVER) & set(RUNTIME)) > 90


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_cuda_error_names", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("api", "names"), [("DRIVER", DRIVER), ("RUNTIME", RUNTIME)])
def test_the_headers_here_say_the_same(tool: ModuleType, api: str, names: dict[int, str]) -> None:
    if not found_headers():
        pytest.skip(HOW_TO_GET)
    header, enum, _ = tool.ENUMS[api]
    for folder in found_headers():
        if tuple(map(int, tool.version(folder).split("."))) <= (13, 5):
            assert tool.codes(folder, header, enum).items() <= names.items(), folder
