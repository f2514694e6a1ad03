# SPDX-License-Identifier: Apache-2.0
"""What NVIDIA's headers say of functions: the C compiler reads the types, the calling convention says where they go.

Headers are looked for where the wheels of PyPI and NVIDIA's installer put them, and in the folders that
``FENCEPATH_CUDA_INCLUDE`` names, separated by colons.
"""

from __future__ import annotations

import functools
import os
import re
import site
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

__all__ = ["HOW_TO_GET", "Headers", "Parameter", "found_headers", "host_defines", "slots"]

HOW_TO_GET = "needs cuda.h: pip install nvidia-cuda-runtime-cu12, or FENCEPATH_CUDA_INCLUDE=DIR with NVIDIA's headers"

# Of crt/host_defines.h, which is in another wheel, only what prototypes are written with.
_HOST_DEFINES = "\n".join(
    [
        *(
            f"#define {name}"
            for name in (
                "CUDARTAPI", "CUDARTAPI_CDECL", "__host__", "__device__", "__device_builtin__", "__cudart_builtin__",
                "__device_builtin_texture_type__", "__device_builtin_surface_type__", "__location__(where)",
            )
        ),
        "#define __builtin_align__(n) __attribute__((aligned(n)))",
        "#define __align__(n) __attribute__((aligned(n)))",
        "",
    ]
)  # fmt: skip

# crt/host_runtime.h of CUDA 13.5, which only nvcc's C++ can read.
_COMPILER_CALLS = """
extern void __cudaRegisterFunction(void **fatCubinHandle, const char *hostFun, char *deviceFun, const char *deviceName,
                                   int thread_limit, void *tid, void *bid, dim3 *bDim, dim3 *gDim, int *wSize);
extern cudaError_t __cudaGetKernel(cudaKernel_t *kernelPtr, const void *entryFuncAddr);
extern cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 gridDim, dim3 blockDim, void **args, size_t sharedMem,
                                      cudaStream_t stream);
extern cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t kernel, dim3 gridDim, dim3 blockDim, void **args,
                                           size_t sharedMem, cudaStream_t stream);
"""

_PROTOTYPE = re.compile(r"\b(?:CUresult|cudaError_t|void)\s+((?:cu|__cuda)\w+)\s*\(([^;{()]*)\)\s*;")
_PARAMETER = re.compile(r"(?P<type>.*?)(?P<name>\w+)\s*(?P<array>\[\w*\])?")

Class = str
"""What the calling convention distinguishes: ``pointer``, ``integer``, ``real`` or ``struct``."""

_CLASSES = {1: "integer", 2: "integer", 3: "integer", 4: "integer", 5: "pointer", 8: "real", 12: "struct", 13: "struct"}
"""By __builtin_classify_type (gcc's typeclass.h)."""


class Parameter(NamedTuple):
    """A parameter of a function.

    Attributes:
        name: as in the header.
        type: normalized: without const and tags, ``CUstream`` or ``CUstream *``.
        bytes: its size.
        kind: see :data:`Class`.
    """

    name: str
    type: str
    bytes: int
    kind: Class


class Headers:
    """NVIDIA's headers in one folder.

    Attributes:
        version: CUDA_VERSION, such as 12090.
        prototypes: parameters by exported symbol, of all versions of each function.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        text = self._compile("cuda_runtime_api.h", "-E", "-P") + self._compile("cuda.h", "-E", "-P")
        raw = dict(_PROTOTYPE.findall(_without_attributes(text + _COMPILER_CALLS)))
        split = {symbol: _split(parameters) for symbol, parameters in raw.items()}
        known = self._measure(sorted({type_ for parameters in split.values() for _, type_ in parameters}))
        self.version = int(self._print('"%d\\n", CUDA_VERSION')[0])
        self.prototypes: Mapping[str, tuple[Parameter, ...]] = {
            symbol: tuple(Parameter(name, _plain(type_), *known[type_]) for name, type_ in parameters)
            for symbol, parameters in split.items()
        }

    def offsets(self, members: Sequence[tuple[str, str]]) -> dict[tuple[str, str], tuple[int, int]]:
        """Return offset and size in bytes of each (struct, member)."""
        lines = [f'"%zu %zu\\n", offsetof({of}, {member}), sizeof((({of} *)0)->{member})' for of, member in members]
        found = [line.split() for line in self._print(*lines)]
        return {member: (int(offset), int(size)) for member, (offset, size) in zip(members, found, strict=True)}

    def _measure(self, types: Sequence[str]) -> dict[str, tuple[int, Class]]:
        lines = [f'"%zu %d\\n", sizeof({type_}), (int)__builtin_classify_type(*({type_} *)0)' for type_ in types]
        found = [line.split() for line in self._print(*lines)]
        return {type_: (int(size), _CLASSES[int(what)]) for type_, (size, what) in zip(types, found, strict=True)}

    def _print(self, *lines: str) -> list[str]:
        """Return what a program prints that has these arguments of printf."""
        body = "".join(f"    printf({line});\n" for line in lines)
        source = f"#include <stdio.h>\n#include <stddef.h>\nint main(void) {{\n{body}    return 0;\n}}\n"
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "program"
            self._compile("cuda.h", "-include", "cuda_runtime_api.h", "-o", str(program), source=source)
            return subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines()

    def _compile(self, header: str, *options: str, source: str = "") -> str:
        # Old versions of functions, and those for per-thread streams, under the names by which they are exported.
        command = ["gcc", "-w", "-D__CUDA_API_VERSION_INTERNAL", "-DCUDA_ENABLE_DEPRECATED", f"-I{self._folder}"]
        with tempfile.TemporaryDirectory() as stubs:
            host_defines(Path(stubs))
            command += ["-idirafter", stubs, *options, "-xc", "-"]
            text = f"#include <{header}>\n{source}"
            return subprocess.run(command, input=text, check=True, capture_output=True, text=True).stdout


def host_defines(folder: Path) -> None:
    """Write what the headers need of another wheel to a folder for ``-idirafter``."""
    path = folder / "crt" / "host_defines.h"
    path.parent.mkdir(exist_ok=True)
    path.write_text(_HOST_DEFINES)


def _without_attributes(text: str) -> str:
    return re.sub(r"__attribute__\s*\(\(.*?\)\)(?!\))", "", text)


def _split(parameters: str) -> list[tuple[str, str]]:
    """Return name and type of each parameter."""
    found: list[tuple[str, str]] = []
    for part in " ".join(parameters.split()).split(","):
        if part.strip() in ("", "void"):
            continue
        match = _PARAMETER.fullmatch(part.strip())
        assert match is not None, part
        found.append((match["name"], match["type"].strip() + (" *" if match["array"] else "")))
    return found


def _plain(type_: str) -> str:
    words = re.sub(r"\b(?:const|struct|enum)\b", " ", type_.replace("*", " * "))
    return " ".join(words.split())


def slots(parameters: Iterable[Parameter], registers: int = 6, largest_by_value: int = 1 << 16) -> dict[int, Parameter]:
    """Return by machine word which parameter has it, in the order of :class:`fencepath.calls.Arg`.

    Args:
        parameters: in order.
        registers: 6 by x86-64's convention, 8 by arm64's.
        largest_by_value: bytes of the largest struct that is not replaced by a pointer to it: 16 by arm64's.
    """
    found: dict[int, Parameter] = {}
    used, on_stack = 0, registers
    for parameter in parameters:
        size = parameter.bytes
        if parameter.kind == "struct" and size > largest_by_value:
            size = 8
        words = -(-size // 8)
        if parameter.kind == "real":
            continue
        if used + words <= registers and size <= 16:
            places = range(used, used + words)
            used += words
        else:
            places = range(on_stack, on_stack + words)
            on_stack += words
            if largest_by_value == 16:
                used = registers
        found.update(dict.fromkeys(places, parameter))
    return found


@functools.cache
def found_headers() -> tuple[Path, ...]:
    """Return the folders with NVIDIA's headers on this machine."""
    named = [Path(name) for name in os.environ.get("FENCEPATH_CUDA_INCLUDE", "").split(":") if name]
    wheels = [
        Path(base) / "nvidia" / name / "include" for base in site.getsitepackages() for name in ("cuda_runtime", "cu13")
    ]
    installed = sorted(Path("/usr/local").glob("cuda-*/include"))
    every = [folder for folder in (*named, *wheels, *installed) if (folder / "cuda_runtime_api.h").is_file()]
    return tuple(dict.fromkeys(folder.resolve() for folder in every))
