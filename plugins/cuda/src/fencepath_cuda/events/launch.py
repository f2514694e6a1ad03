# SPDX-License-Identifier: Apache-2.0
"""Kernels and host functions put on streams."""

from __future__ import annotations

from typing import ClassVar

from fencepath.events import U32, U64, KindInfo, Role
from fencepath_cuda.events.base import CONTEXT, STREAM, OnStream

__all__ = ["HostFunc", "Launch"]


class Launch(OnStream, frozen=True, kw_only=True, tag="cuda.launch"):
    """A kernel launch. It returns when the launch is queued, not when the kernel has run.

    Attributes:
        kernel: CUfunction or CUkernel handle.
        grid_x, grid_y, grid_z: blocks.
        block_x, block_y, block_z: threads of a block; 0 for cuLaunch and cuLaunchGrid, which take them from the kernel.
        shared_bytes: dynamic shared memory of a block.
        attributes: launch attributes given (cuLaunchKernelEx). One of them can let the kernel begin before the one
            before it on the stream has ended (programmatic stream serialization).
        cooperative: launched by a cooperative function.
        devices: of a launch on several devices, how many; all else is that of the first. 0 for any other launch.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.CALL, keys=(STREAM, CONTEXT))

    kernel: U64
    grid_x: U32
    grid_y: U32
    grid_z: U32
    block_x: U32
    block_y: U32
    block_z: U32
    shared_bytes: U32
    attributes: U32
    cooperative: bool
    devices: U32


class HostFunc(OnStream, frozen=True, kw_only=True, tag="cuda.host_func"):
    """A host function put on a stream; a thread of the driver calls it later.

    Attributes:
        callback: its address.
        user_data: the pointer it gets.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.CALL, keys=(STREAM, CONTEXT))

    callback: U64
    user_data: U64
