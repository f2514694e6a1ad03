# SPDX-License-Identifier: Apache-2.0
"""The CUDA driver API through ctypes, for the programs that test_simcuda.py runs; argument types are NVIDIA's."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

HANDLE, OUT = c_void_p, POINTER(c_void_p)
NOT_READY = 600
LEGACY, PER_THREAD = c_void_p(1), c_void_p(2)

SIGNATURES: dict[str, list[Any]] = {
    "cuInit": [c_uint],
    "cuDeviceGetName": [c_char_p, c_int, c_int],
    "cuCtxCreate_v2": [OUT, c_uint, c_int],
    "cuCtxSetCurrent": [HANDLE],
    "cuCtxSynchronize": [],
    "cuModuleLoadData": [OUT, c_char_p],
    "cuModuleGetFunction": [OUT, HANDLE, c_char_p],
    "cuStreamCreate": [OUT, c_uint],
    "cuStreamDestroy_v2": [HANDLE],
    "cuStreamSynchronize": [HANDLE],
    "cuStreamQuery": [HANDLE],
    "cuStreamWaitEvent": [HANDLE, HANDLE, c_uint],
    "cuEventCreate": [OUT, c_uint],
    "cuEventRecord": [HANDLE, HANDLE],
    "cuEventSynchronize": [HANDLE],
    "cuEventQuery": [HANDLE],
    "cuEventElapsedTime": [POINTER(ctypes.c_float), HANDLE, HANDLE],
    "cuEventDestroy_v2": [HANDLE],
    "cuMemAlloc_v2": [POINTER(c_uint64), c_size_t],
    "cuMemFree_v2": [c_uint64],
    "cuMemHostAlloc": [OUT, c_size_t, c_uint],
    "cuMemcpyHtoD_v2": [c_uint64, c_void_p, c_size_t],
    "cuMemcpyDtoH_v2": [c_void_p, c_uint64, c_size_t],
    "cuMemcpyHtoDAsync_v2": [c_uint64, c_void_p, c_size_t, HANDLE],
    "cuMemcpyDtoHAsync_v2": [c_void_p, c_uint64, c_size_t, HANDLE],
    "cuMemsetD8Async": [c_uint64, ctypes.c_ubyte, c_size_t, HANDLE],
    "cuLaunchKernel": [HANDLE, *[c_uint] * 7, HANDLE, c_void_p, c_void_p],
    "cuLaunchKernelEx": [c_void_p, HANDLE, c_void_p, c_void_p],
    "cuLaunchHostFunc": [HANDLE, c_void_p, c_void_p],
    "cuStreamBeginCapture_v2": [HANDLE, c_int],
    "cuStreamEndCapture": [HANDLE, OUT],
    "cuGraphInstantiateWithFlags": [OUT, HANDLE, c_uint64],
    "cuGraphLaunch": [HANDLE, HANDLE],
    "cuGraphDestroy": [HANDLE],
    "cuGraphExecDestroy": [HANDLE],
}

library = ctypes.CDLL("libcuda.so.1")
for _name, _types in SIGNATURES.items():
    getattr(library, _name).argtypes = _types


def result(name: str, *args: Any) -> int:
    """Call a function and return its CUresult."""
    value: int = getattr(library, name)(*args)
    return value


def call(name: str, *args: Any) -> None:
    """Call a function that has to succeed."""
    assert result(name, *args) == 0, name


def new(name: str, *args: Any) -> c_void_p:
    """Call a function that makes a handle."""
    handle = c_void_p()
    call(name, ctypes.byref(handle), *args)
    return handle


def start(flags: int = 0) -> c_void_p:
    """Start the driver and return a new context, current here."""
    call("cuInit", 0)
    return new("cuCtxCreate_v2", flags, 0)


_kernels: dict[str, c_void_p] = {}


def kernel(name: str) -> c_void_p:
    """Return the kernel of a name."""
    if name not in _kernels:
        _kernels[name] = new("cuModuleGetFunction", new("cuModuleLoadData", b""), name.encode())
    return _kernels[name]


def params(duration_ns: int) -> Any:
    """Return kernelParams that ask for a duration; good as long as the object lives."""
    duration = c_uint64(duration_ns)
    array = (c_void_p * 1)(ctypes.addressof(duration))
    array.duration = duration  # type: ignore[attr-defined]  # keeps it alive
    return array


def launch(name: str, duration_ns: int, stream: c_void_p | None = None) -> None:
    """Launch a kernel that takes a time."""
    call("cuLaunchKernel", kernel(name), 1, 1, 1, 1, 1, 1, 0, stream, params(duration_ns), None)


def stream(flags: int = 0) -> c_void_p:
    """Return a new stream: blocking with 0, non-blocking with 1."""
    return new("cuStreamCreate", flags)
