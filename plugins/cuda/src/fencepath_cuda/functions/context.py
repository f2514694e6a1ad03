# SPDX-License-Identifier: Apache-2.0
"""Contexts: creation, destruction, and which one a thread has."""

from __future__ import annotations

from fencepath.calls import Arg, Function, Out
from fencepath_cuda.events import ContextChange
from fencepath_cuda.functions.base import driver

__all__ = ["CONTEXTS"]

_NEW = (Out("context_handle", 0),)


def _create(name: str, flags: int, aliases: tuple[str, ...] = ()) -> Function:
    args = (Arg("context_flags", flags, "u32"), Arg("device", flags + 1, "s32"))
    return Function(name, "cuda.context.create", args, out=_NEW, aliases=aliases)


def _primary(name: str, kind: str, device: int, out: tuple[Out, ...] = (), aliases: tuple[str, ...] = ()) -> Function:
    return Function(name, kind, (Arg("device", device, "s32"),), out=out, aliases=aliases, constants={"primary": 1})


def _set(name: str, change: ContextChange, aliases: tuple[str, ...] = ()) -> Function:
    constants = {"how": int(change)}
    if change is ContextChange.POP:
        return Function(name, "cuda.context.set", out=_NEW, aliases=aliases, constants=constants)
    return Function(name, "cuda.context.set", (Arg("context_handle", 0),), aliases=aliases, constants=constants)


_CREATED = driver(
    "context",
    "sync",
    _create("cuCtxCreate_v2", 1, ("cuCtxCreate",)),
    _create("cuCtxCreate_v3", 3),
    _create("cuCtxCreate_v4", 2),
    _primary("cuDevicePrimaryCtxRetain", "cuda.context.create", 1, _NEW),
    Function("cuCtxFromGreenCtx", "cuda.context.create", (Arg("green_context", 1),), out=_NEW),
    Function("cuCtxDestroy_v2", "cuda.context.destroy", (Arg("context_handle", 0),), aliases=("cuCtxDestroy",)),
    _primary("cuDevicePrimaryCtxRelease_v2", "cuda.context.destroy", 0, aliases=("cuDevicePrimaryCtxRelease",)),
    _primary("cuDevicePrimaryCtxReset_v2", "cuda.context.destroy", 0, aliases=("cuDevicePrimaryCtxReset",)),
    Function("cuGreenCtxDestroy", "cuda.context.destroy", (Arg("green_context", 0),)),
)

# cuCtxGetCurrent and cuCtxGetDevice, which PyTorch calls thousands of times a token, say nothing that these do not.
_CURRENT = driver(
    "context",
    "sync",
    _set("cuCtxSetCurrent", ContextChange.SET),
    _set("cuCtxPushCurrent_v2", ContextChange.PUSH, ("cuCtxPushCurrent",)),
    _set("cuCtxPopCurrent_v2", ContextChange.POP, ("cuCtxPopCurrent",)),
)

CONTEXTS = (*_CREATED, *_CURRENT)
