# SPDX-License-Identifier: Apache-2.0
"""Calls that fail, of every group of functions, in one marked request; with the libraries as arguments.

What each fails with is asked of the simulated library by SIMCUDA_FAIL; with handles and memory that are as they should be.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from plugins.cuda.tests.faults.programs.library import LaunchConfig, Library, Out

from fencepath import mark

__all__ = ["FAILURES", "GROUPS"]

GROUPS = {
    "memory": {
        "cuMemAlloc_v2": 2,
        "cuMemAllocManaged": 801,
        "cuMemFree_v2": 719,
        "cuMemHostAlloc": 304,
        "cuMemAllocAsync": 46,
        "cuMemFreeAsync": 1,
        "cuMemPoolTrimTo": 999,
    },
    "transfer": {
        "cuMemcpyHtoD_v2": 700,
        "cuMemcpyDtoH_v2": 214,
        "cuMemcpyHtoDAsync_v2": 719,
        "cuMemcpyDtoHAsync_v2": 717,
        "cuMemcpyDtoDAsync_v2": 716,
        "cuMemsetD8Async": 1,
    },
    "launch": {
        "cuLaunchKernel": 701,
        "cuLaunchKernelEx": 719,
        "cuLaunchCooperativeKernel": 720,
        "cuLaunchHostFunc": 801,
    },
    "stream": {
        "cuStreamCreate": 2,
        "cuStreamCreateWithPriority": 31_337,
        "cuStreamWaitEvent": 400,
        "cuStreamSynchronize": 702,
        "cuStreamQuery": 600,
        "cuStreamDestroy_v2": 709,
    },
    "event": {
        "cuEventCreate": 2,
        "cuEventRecord": 400,
        "cuEventSynchronize": 710,
        "cuEventQuery": 700,
        "cuEventElapsedTime_v2": 600,
        "cuEventDestroy_v2": 201,
    },
    "context": {
        "cuCtxCreate_v4": 2,
        "cuDevicePrimaryCtxRetain": 101,
        "cuCtxSetCurrent": 201,
        "cuCtxPushCurrent_v2": 201,
        "cuCtxSynchronize": 718,
        "cuCtxDestroy_v2": 709,
    },
    "graph": {
        "cuStreamBeginCapture_v2": 900,
        "cuStreamEndCapture": 901,
        "cuGraphCreate": 2,
        "cuGraphAddEmptyNode": 1,
        "cuGraphInstantiateWithFlags": 801,
        "cuGraphExecUpdate_v2": 910,
        "cuGraphLaunch": 700,
        "cuGraphDestroy": 4,
    },
    "module": {
        "cuModuleLoadData": 209,
        "cuModuleGetFunction": 500,
        "cuLibraryLoadData": 218,
        "cuLibraryGetKernel": 500,
        "cuKernelGetFunction": 400,
        "cuModuleUnload": 401,
    },
    "runtime": {"cudaMalloc": 2, "cudaStreamSynchronize": 719, "cudaEventQuery": 600, "cudaGraphLaunch": 98},
}
"""What each function fails with, by group."""

_AT = 2
"""Each function fails the second time, or at once if it is not needed to prepare."""
_PREPARING = (
    *("cuCtxCreate_v4", "cuMemAlloc_v2", "cuMemHostAlloc", "cuStreamCreate", "cuEventCreate", "cuModuleLoadData"),
    *("cuModuleGetFunction", "cuLaunchKernel", "cuStreamSynchronize", "cuGraphCreate", "cuGraphInstantiateWithFlags"),
)

FAILURES = ",".join(
    f"{name}:{code}:{_AT if name in _PREPARING else 1}" for group in GROUPS.values() for name, code in group.items()
)
"""SIMCUDA_FAIL."""

_SHAPE = (7, 5, 3, 64, 1, 1, 0)


def calls(driver: Library) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Prepare, and yield the calls that are to fail."""
    driver.call("cuInit", 0)
    context = driver.make("cuCtxCreate_v4", 0, 0, 0)
    memory, host = driver.make("cuMemAlloc_v2", 4096), driver.make("cuMemHostAlloc", 4096, 0)
    stream, event = driver.make("cuStreamCreate", 0), driver.make("cuEventCreate", 0)
    module = driver.make("cuModuleLoadData", b"")
    kernel = driver.make("cuModuleGetFunction", module, b"kernel")
    graph = driver.make("cuGraphCreate", 0)
    exec_ = driver.make("cuGraphInstantiateWithFlags", graph, 0)
    launch = (kernel, *_SHAPE, stream, 0)
    driver.call("cuLaunchKernel", *launch, 0)
    driver.call("cuStreamSynchronize", stream)
    config = LaunchConfig((7, 5, 3), (64, 1, 1), 0, stream, 0, 0)
    arguments: dict[str, tuple[Any, ...]] = {
        "cuMemAlloc_v2": (Out(), 1 << 40),
        "cuMemAllocManaged": (Out(), 4096, 1),
        "cuMemFree_v2": (memory,),
        "cuMemHostAlloc": (Out(), 4096, 0),
        "cuMemAllocAsync": (Out(), 4096, stream),
        "cuMemFreeAsync": (memory, stream),
        "cuMemPoolTrimTo": (0, 0),
        "cuMemcpyHtoD_v2": (memory, host, 512),
        "cuMemcpyDtoH_v2": (host, memory, 512),
        "cuMemcpyHtoDAsync_v2": (memory, host, 512, stream),
        "cuMemcpyDtoHAsync_v2": (host, memory, 512, stream),
        "cuMemcpyDtoDAsync_v2": (memory, memory + 1024, 512, stream),
        "cuMemsetD8Async": (memory, 1, 512, stream),
        "cuLaunchKernel": (*launch, 0),
        "cuLaunchKernelEx": (config, kernel, 0, 0),
        "cuLaunchCooperativeKernel": launch,
        "cuLaunchHostFunc": (stream, 0, 0),
        "cuStreamCreate": (Out(), 0),
        "cuStreamCreateWithPriority": (Out(), 0, 0),
        "cuStreamWaitEvent": (stream, event, 0),
        "cuEventCreate": (Out(), 0),
        "cuEventRecord": (event, stream),
        "cuEventSynchronize": (event,),
        "cuEventQuery": (event,),
        "cuEventElapsedTime_v2": (Out(), event, event),
        "cuEventDestroy_v2": (event,),
        "cuCtxCreate_v4": (Out(), 0, 0, 0),
        "cuDevicePrimaryCtxRetain": (Out(), 0),
        "cuCtxSetCurrent": (context,),
        "cuCtxPushCurrent_v2": (context,),
        "cuCtxSynchronize": (),
        "cuCtxDestroy_v2": (context,),
        "cuStreamBeginCapture_v2": (stream, 0),
        "cuStreamEndCapture": (stream, Out()),
        "cuGraphCreate": (Out(), 0),
        "cuGraphAddEmptyNode": (Out(), graph, 0, 0),
        "cuGraphInstantiateWithFlags": (Out(), graph, 0),
        "cuGraphExecUpdate_v2": (exec_, graph, Out()),
        "cuGraphLaunch": (exec_, stream),
        "cuGraphDestroy": (graph,),
        "cuModuleLoadData": (Out(), b""),
        "cuModuleGetFunction": (Out(), module, b"kernel"),
        "cuLibraryLoadData": (Out(), b"", 0, 0, 0, 0, 0, 0),
        "cuLibraryGetKernel": (Out(), kernel, b"kernel"),
        "cuKernelGetFunction": (Out(), kernel),
        "cuModuleUnload": (module,),
        "cudaMalloc": (Out(), 4096),
        "cudaGraphLaunch": (exec_, stream),
        "cudaEventQuery": (event,),
    }
    for group in GROUPS.values():
        for name in group:
            yield name, arguments.get(name, (stream,))


def main(driver_path: str, runtime_path: str) -> None:
    """Make the calls; each has to fail as asked."""
    driver, runtime = Library(driver_path), Library(runtime_path)
    wanted = {name: code for group in GROUPS.values() for name, code in group.items()}
    with mark.request("failing"):
        for name, arguments in calls(driver):
            result = (runtime if name.startswith("cuda") else driver).call(name, *arguments)
            assert result == wanted[name], (name, result)


if __name__ == "__main__":
    main(*sys.argv[1:])
