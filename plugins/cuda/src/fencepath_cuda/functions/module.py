# SPDX-License-Identifier: Apache-2.0
"""Modules, kernels by name, and the driver's functions by name."""

from __future__ import annotations

from fencepath.calls import Arg, Function, Out, Text
from fencepath_cuda.functions.base import driver, placed

__all__ = ["MODULES"]

_MODULE, _LIBRARY, _KERNEL = (Out("module", 0),), (Out("library", 0),), (Out("kernel", 0),)

_LOADS = driver(
    "module",
    "sync",
    Function("cuModuleLoad", "cuda.module.load", out=_MODULE),
    Function("cuModuleLoadData", "cuda.module.load", out=_MODULE),
    Function("cuModuleLoadDataEx", "cuda.module.load", out=_MODULE),
    Function("cuModuleLoadFatBinary", "cuda.module.load", out=_MODULE),
    Function("cuLibraryLoadData", "cuda.module.load", out=_LIBRARY),
    Function("cuLibraryLoadFromFile", "cuda.module.load", out=_LIBRARY),
    Function("cuLibraryGetModule", "cuda.module.load", (Arg("library", 1),), out=_MODULE),
    Function("cuFuncLoad", "cuda.module.load", (Arg("kernel", 0),)),
    Function("cuModuleUnload", "cuda.module.unload", (Arg("module", 0),)),
    Function("cuLibraryUnload", "cuda.module.unload", (Arg("library", 0),)),
)

_KERNELS = driver(
    "module",
    "launch",
    Function("cuModuleGetFunction", "cuda.module.kernel", (Arg("module", 1),), out=_KERNEL, text=Text("name", 2)),
    Function("cuLibraryGetKernel", "cuda.module.kernel", (Arg("library", 1),), out=_KERNEL, text=Text("name", 2)),
    Function("cuKernelGetFunction", "cuda.module.kernel", (Arg("of_kernel", 1),), out=_KERNEL),
)

_HOST_FUNCTION = (Arg("host_function", 1),)

# crt/host_runtime.h has the prototypes of those that begin with an underscore, which compiled programs call.
_HOST_FUNCTIONS = tuple(
    placed(function, "module", "full", "runtime")
    for function in (
        Function("__cudaRegisterFunction", "cuda.module.kernel", _HOST_FUNCTION, result="", text=Text("name", 2)),
        Function("__cudaGetKernel", "cuda.module.kernel", _HOST_FUNCTION, out=_KERNEL),
        Function("cudaGetKernel", "cuda.module.kernel", _HOST_FUNCTION, out=_KERNEL),
        Function("cudaGetFuncBySymbol", "cuda.module.kernel", _HOST_FUNCTION, out=_KERNEL),
    )
)

_LOOKUP = (Arg("cuda_version", 2, "s32"), Arg("lookup_flags", 3))

_LOOKUPS = driver(
    "module",
    "launch",
    Function(
        "cuGetProcAddress_v2",
        "cuda.proc_address",
        _LOOKUP,
        out=(Out("address", 1), Out("status", 4, 0, 4)),
        text=Text("name", 0),
    ),
    Function("cuGetProcAddress", "cuda.proc_address", _LOOKUP, out=(Out("address", 1),), text=Text("name", 0)),
)

MODULES = (*_LOADS, *_KERNELS, *_LOOKUPS, *_HOST_FUNCTIONS)
