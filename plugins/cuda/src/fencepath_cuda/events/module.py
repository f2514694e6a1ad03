# SPDX-License-Identifier: Apache-2.0
"""Modules, kernels by name, and functions of the driver by name."""

from __future__ import annotations

from typing import ClassVar

from fencepath.events import S32, U32, U64, Category, KindInfo, Role
from fencepath_cuda.events.base import CudaCall

__all__ = ["ModuleKernel", "ModuleLoad", "ModuleUnload", "ProcAddress"]


class ModuleLoad(CudaCall, frozen=True, kw_only=True, tag="cuda.module.load"):
    """Code was loaded, which can take milliseconds and wait for the device.

    Attributes:
        module: CUmodule made, 0 if none.
        library: CUlibrary made, 0 if none.
        kernel: of cuFuncLoad, the CUfunction.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.CALL)

    module: U64
    library: U64
    kernel: U64


class ModuleUnload(CudaCall, frozen=True, kw_only=True, tag="cuda.module.unload"):
    """Code was unloaded; the handles of its kernels mean nothing any more.

    Attributes:
        module: CUmodule, 0 if none.
        library: CUlibrary, 0 if none.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.LIFE, category=Category.API_CALL)

    module: U64
    library: U64


class ModuleKernel(CudaCall, frozen=True, kw_only=True, tag="cuda.module.kernel"):
    r"""A kernel became known: by name, by another handle of it, or as the device's side of a host function.

    Attributes:
        kernel: CUfunction or CUkernel handed out; 0 for __cudaRegisterFunction.
        of_kernel: of cuKernelGetFunction, the CUkernel that it is of.
        host_function: of __cudaRegisterFunction and cudaGetKernel, the address that launches of the runtime API name.
        module: CUmodule it was looked for in, 0 if none.
        library: CUlibrary it was looked for in, 0 if none.
        name: as the compiler mangled it, cut to 383 bytes (TRUNCATED); "" where the call has none. Bytes that are not UTF-8
            are written as ``\xff``, and what cannot be printed likewise, as ``\x1b`` or ``\n``.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.LIFE, category=Category.API_CALL, keep=True)

    kernel: U64
    of_kernel: U64
    host_function: U64
    module: U64
    library: U64
    name: str


class ProcAddress(CudaCall, frozen=True, kw_only=True, tag="cuda.proc_address"):
    """A function of the driver was looked up by name, as the runtime does for all that it calls.

    Attributes:
        name: what was asked for, without version suffix.
        cuda_version: newest version of the function that the caller knows, such as 12040.
        lookup_flags: 1 legacy, 2 per-thread default stream.
        address: what was found, 0 if nothing.
        status: CUdriverProcAddressQueryResult: 0 found, 1 not found, 2 this version is too old for it.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.CALL, keep=True)

    name: str
    cuda_version: S32
    lookup_flags: U64
    address: U64
    status: U32
