# SPDX-License-Identifier: Apache-2.0
"""Launches of kernels and host functions."""

from __future__ import annotations

from fencepath.calls import Arg, Function, Read
from fencepath_cuda.functions.base import driver, per_thread, stream

__all__ = ["LAUNCHES", "shape_words"]

_SHAPE = tuple(
    Arg(name, slot, "u32")
    for slot, name in enumerate(("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "shared_bytes"), 1)
)
_LAUNCH = (Arg("kernel", 0), *_SHAPE, stream(8))


def shape_words(first: int, second: int, third: int) -> tuple[Arg, ...]:
    """Return grid and block where their six u32 follow one another in three words of these slots."""
    return (
        Arg("grid_x", first, "u32"),
        Arg("grid_y", first, "u32", 32),
        Arg("grid_z", second, "u32"),
        Arg("block_x", second, "u32", 32),
        Arg("block_y", third, "u32"),
        Arg("block_z", third, "u32", 32),
    )


# CUlaunchConfig: u32 grid[3], block[3], shared; then at 32 the stream, at 40 the attributes and at 48 their u32 count.
_CONFIG = (
    Arg("kernel", 1),
    *shape_words(2, 3, 4),
    Arg("shared_bytes", 5, "u32"),
    stream(6),
    Arg("attributes", 7, "u32"),
)
_CONFIG_READS = (Read(0, 0, 5, 2), Read(0, 48, 1, 7))

# CUDA_LAUNCH_PARAMS: the kernel; u32 grid[3], block[3], shared; then at 40 the stream.
_SEVERAL = (
    Arg("devices", 1, "u32"),
    Arg("kernel", 3),
    *shape_words(4, 5, 6),
    Arg("shared_bytes", 7, "u32"),
    stream(8),
)

# The kernel has the shape of its blocks, set by cuFuncSetBlockShape before.
_GRID = (Arg("kernel", 0), Arg("grid_x", 1, "u32"), Arg("grid_y", 2, "u32"))
_CALLBACK = (stream(0), Arg("callback", 1), Arg("user_data", 2))

LAUNCHES = driver(
    "launch",
    "launch",
    *per_thread(
        "_ptsz",
        Function("cuLaunchKernel", "cuda.launch", _LAUNCH, hot=True),
        Function("cuLaunchKernelEx", "cuda.launch", _CONFIG, _CONFIG_READS, hot=True),
        Function("cuLaunchCooperativeKernel", "cuda.launch", _LAUNCH, hot=True, constants={"cooperative": 1}),
        Function("cuLaunchHostFunc", "cuda.host_func", _CALLBACK, aliases=("cuLaunchHostFunc_v2",)),
        Function("cuStreamAddCallback", "cuda.host_func", _CALLBACK),
        Function("cuGraphLaunch", "cuda.graph.launch", (Arg("graph_exec", 0), stream(1))),
    ),
    Function(
        "cuLaunchCooperativeKernelMultiDevice",
        "cuda.launch",
        _SEVERAL,
        (Read(0, 0, 6, 3),),
        hot=True,
        constants={"cooperative": 1},
    ),
    # Of CUDA before 4.0; libcuda has them still.
    Function(
        "cuLaunch",
        "cuda.launch",
        (Arg("kernel", 0),),
        hot=True,
        constants={"grid_x": 1, "grid_y": 1, "grid_z": 1, "stream_handle": 0},
    ),
    Function("cuLaunchGrid", "cuda.launch", _GRID, hot=True, constants={"grid_z": 1, "stream_handle": 0}),
    Function("cuLaunchGridAsync", "cuda.launch", (*_GRID, stream(3)), hot=True, constants={"grid_z": 1}),
)
