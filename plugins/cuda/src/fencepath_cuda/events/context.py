# SPDX-License-Identifier: Apache-2.0
"""Contexts: their life, which one a thread has, and waits for all that is in one."""

from __future__ import annotations

import enum
from typing import ClassVar

from fencepath.events import S32, U8, U32, U64, Category, KindInfo, Role
from fencepath_cuda.events.base import CONTEXT, CudaCall

__all__ = ["ContextChange", "ContextCreate", "ContextDestroy", "ContextSet", "ContextSynchronize"]


class ContextChange(enum.IntEnum):
    """How a thread's current context changed."""

    SET = 0
    """The top of the thread's stack of contexts was replaced."""
    PUSH = 1
    """A context was put on top."""
    POP = 2
    """The top was taken off."""


class ContextCreate(CudaCall, frozen=True, kw_only=True, tag="cuda.context.create"):
    """A context was created, or a device's primary context was asked for, which creates it the first time.

    cuCtxCreate also makes the new context the thread's current one; the others do not.

    Attributes:
        context_handle: CUcontext handed out.
        device: CUdevice, -1 where the arguments do not name it.
        context_flags: as asked for; 0 for a primary context.
        primary: by cuDevicePrimaryCtxRetain; every call for one device hands out the same handle.
        green_context: CUgreenCtx that the context was made of (cuCtxFromGreenCtx), else 0.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.LIFE, category=Category.API_CALL, keys=(CONTEXT,), keep=True)

    context_handle: U64
    device: S32
    context_flags: U32
    primary: bool
    green_context: U64


class ContextDestroy(CudaCall, frozen=True, kw_only=True, tag="cuda.context.destroy"):
    """A context was destroyed, or a device's primary context was released or reset.

    Attributes:
        context_handle: CUcontext; 0 where the arguments name a device or a green context.
        device: CUdevice of a primary context, else -1.
        primary: released (which destroys it the last time) or reset.
        green_context: CUgreenCtx destroyed, with the context made of it, else 0.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.LIFE, category=Category.API_CALL, keys=(CONTEXT,), keep=True)

    context_handle: U64
    device: S32
    primary: bool
    green_context: U64


class ContextSet(CudaCall, frozen=True, kw_only=True, tag="cuda.context.set"):
    """The thread's current context changed.

    Attributes:
        context_handle: CUcontext set, pushed or popped; 0 set means none.
        how: see :class:`ContextChange`.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.LIFE, category=Category.API_CALL, keys=(CONTEXT,))

    context_handle: U64
    how: U8


class ContextSynchronize(CudaCall, frozen=True, kw_only=True, tag="cuda.context.synchronize"):
    """The thread waits for everything in a context.

    Attributes:
        context_handle: CUcontext, 0 for the thread's current one.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.WAIT, keys=(CONTEXT,))

    context_handle: U64
