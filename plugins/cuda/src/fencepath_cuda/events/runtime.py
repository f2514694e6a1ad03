# SPDX-License-Identifier: Apache-2.0
"""Calls of the runtime API."""

from __future__ import annotations

from typing import ClassVar

from fencepath.events import S32, U8, U32, U64, KindInfo, Role
from fencepath_cuda.events.base import CONTEXT, EVENT, STREAM, OnStream

__all__ = ["RuntimeCall"]


class RuntimeCall(OnStream, frozen=True, kw_only=True, tag="cuda.runtime.call"):
    """A call of the runtime API, around the driver calls it makes, which are events of their own.

    A kind apart from theirs, so that nothing is counted twice: this one puts nothing on a stream.

    Attributes:
        host_function: of a launch, the address of the host's stub for the kernel, which has its name as symbol.
        kernel: of a launch that code compiled by CUDA 13 makes, cudaKernel_t instead.
        grid_x, grid_y, grid_z: of a launch, blocks.
        block_x, block_y, block_z: of a launch, threads of a block.
        shared_bytes: of a launch, dynamic shared memory of a block.
        bytes: of copies, sets and allocations.
        direction: of copies, as the caller stated it; UNKNOWN for all else.
        event_handle: cudaEvent_t of the calls that take one.
        device: of the calls that take one, -1 for all else.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.CALL, keys=(STREAM, EVENT, CONTEXT))

    host_function: U64
    kernel: U64
    grid_x: U32
    grid_y: U32
    grid_z: U32
    block_x: U32
    block_y: U32
    block_z: U32
    shared_bytes: U32
    bytes: U64
    direction: U8
    event_handle: U64
    device: S32
