# SPDX-License-Identifier: Apache-2.0
"""Arguments out of registers and stack, as a compiler put them there, on x86-64 and arm64.

The registers were recorded from calls that gcc 12 compiled with NVIDIA's headers of CUDA 13.5 (aarch64-linux-gnu-gcc and
qemu-aarch64 for arm64), where functions of these names saved what they were entered with. What copies them is calls.h.
"""

from __future__ import annotations

import ctypes
import subprocess
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from fencepath.records import Flags
from fencepath_cuda.decoder import CudaDecoder
from fencepath_cuda.events import Direction
from fencepath_cuda.functions import TABLE

SOURCE = Path(__file__).with_name("words.c")

X86_REGISTERS = ("r15", "r14", "r13", "r12", "bp", "bx", "r11", "r10", "r9", "r8", "ax", "cx", "dx", "si", "di")
CALLER = 0xCA11


class Call(NamedTuple):
    """A call: the function's words, and what its columns must be.

    Attributes:
        x86: rdi, rsi, rdx, rcx, r8, r9, then the stack above the return address.
        arm64: x0 to x7, then the stack.
    """

    function: str
    x86: tuple[int, ...]
    arm64: tuple[int, ...]
    columns: dict[str, int]


SHAPE = {"grid_x": 7, "grid_y": 65535, "grid_z": 3, "block_x": 128, "block_y": 2, "block_z": 64}
DIM3 = (0xF00, 0xFFFF00000007, 0x3, 0x200000080, 0x40, 0xA0, 0xC000, 0xABC0)
LAUNCH = (0xF, 7, 0xFFFF, 3, 0x80, 2, 0x40, 0x1000, 0xABC0, 0xA0, 0xA1)

CALLS = (
    # dim3 of 12 bytes by value: two words each, the second with z alone.
    Call(
        "cudaLaunchKernel",
        DIM3,
        DIM3,
        {**SHAPE, "host_function": 0xF00, "shared_bytes": 49152, "stream_handle": 0xABC0},
    ),
    Call("cuLaunchKernel", LAUNCH, LAUNCH, {**SHAPE, "kernel": 0xF, "shared_bytes": 4096, "stream_handle": 0xABC0}),
    # The ninth argument: the third on the stack of x86-64, the first on that of arm64.
    Call(
        "cuMemcpyBatchAsync",
        (1, 2, 3, 4, 5, 6, 7, 8, 0xABC0, 0x4010E3),
        (1, 2, 3, 4, 5, 6, 7, 8, 0xABC0, 0xA0),
        {"stream_handle": 0xABC0},
    ),
    Call(
        "cudaMemcpy2DFromArrayAsync",
        (1, 2, 3, 4, 5, 100, 7, 2, 0xABC0, 0x401160),
        (1, 2, 3, 4, 5, 100, 7, 2, 0xABC0, 0xA0),
        {"bytes": 700, "direction": Direction.DEVICE_TO_HOST, "stream_handle": 0xABC0},
    ),
    # An int on the stack.
    Call(
        "cudaMemcpy2DArrayToArray",
        (1, 2, 3, 4, 5, 6, 100, 7, 3, 0x401123),
        (1, 2, 3, 4, 5, 6, 100, 7, 3, 0xA0),
        {"bytes": 700, "direction": Direction.DEVICE_TO_DEVICE},
    ),
    Call(
        "cuStreamBeginCaptureToGraph",
        (0xABC0, 0x6A, 1, 2, 3, 2),
        (0xABC0, 0x6A, 1, 2, 3, 2, 0x40, 0),
        {"stream_handle": 0xABC0, "graph": 0x6A, "mode": 2},
    ),
    # CUmemLocation of 8 bytes by value: one word.
    Call(
        "cuMemPrefetchAsync_v2",
        (0xD0, 512, 0x300000001, 0, 0xABC0, 0x78),
        (0xD0, 512, 0x300000001, 0, 0xABC0, 0x4102E0, 0x40, 0),
        {"address": 0xD0, "bytes": 512, "stream_handle": 0xABC0},
    ),
)


@pytest.fixture(scope="module", params=["x86", "arm64"])
def architecture(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ctypes.CDLL]:
    """The name, and words.c compiled for it."""
    name: str = request.param
    library = tmp_path_factory.mktemp(name) / "words.so"
    other = {"x86": ["-D__x86_64__"], "arm64": ["-U__x86_64__", "-D__TARGET_ARCH_arm64"]}[name]
    bpf = Path(str(resources.files("fencepath"))) / "bpf"
    flags = ["-w", "-O1", "-shared", "-fPIC", "-nostdinc", f"-I{bpf}", f"-I{bpf / 'shim' / 'include'}"]
    subprocess.run(["gcc", *flags, *other, str(SOURCE), "-o", str(library)], check=True)
    return name, ctypes.CDLL(str(library))


def copied(architecture: tuple[str, ctypes.CDLL], call: Call, words: int) -> tuple[list[int], int]:
    """Return the record's words and caller of a call."""
    name, library = architecture
    given = call.x86 if name == "x86" else call.arm64
    in_registers = 6 if name == "x86" else 8
    on_stack = [*([CALLER] if name == "x86" else []), *given[in_registers:], *[0xDEAD] * 14]
    stack = (ctypes.c_uint64 * len(on_stack))(*on_stack)
    pointer = ctypes.addressof(stack)
    if name == "x86":
        values: dict[str, int] = dict(zip(("di", "si", "dx", "cx", "r8", "r9"), given, strict=False))
        # after those come orig_ax, ip, cs, flags, sp and ss
        registers = [*(values.get(register, 0xBAD) for register in X86_REGISTERS), 0, 0, 0, 0, pointer, 0]
    else:
        registers = [*given[:8], *[0xBAD] * 22, CALLER, pointer, 0, 0]
    args, caller = (ctypes.c_uint64 * 14)(), ctypes.c_uint64()
    assert library.copy_words((ctypes.c_uint64 * len(registers))(*registers), args, words, ctypes.byref(caller)) == 0
    return list(args), caller.value


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.function)
def test_arguments_are_taken_from_where_a_compiler_puts_them(architecture: tuple[str, ctypes.CDLL], call: Call) -> None:
    function = TABLE.functions[TABLE.index(call.function)]
    words, caller = copied(architecture, call, function.words)
    (layout,) = (layout for layout in TABLE.layouts() if layout.kind == function.kind)
    record = np.zeros(1, layout.dtype)
    record["function"], record["flags"], record["caller_ip"] = TABLE.index(call.function), int(Flags.TASK), caller
    record["args"][0] = words[: layout.dtype["args"].shape[0]]
    batch = CudaDecoder(TABLE.recorded).decode(function.kind, record)
    assert {name: int(batch[name][0]) for name in call.columns} == call.columns
    assert int(batch["caller_ip"][0]) == CALLER
    assert words[function.words :] == [0] * (14 - function.words)
