# SPDX-License-Identifier: Apache-2.0
"""A small simulated CUDA library, compiled on the spot: for the demo, for tests, for benchmarks without a GPU.

:func:`build` compiles a ``libcuda.so.1`` and a ``libcudart.so.12`` whose exported functions have the names, signatures
and prologues of NVIDIA's, over a device that runs each stream's operations in order on a thread of its own. Nothing is
computed: a simulated kernel takes the time its first parameter asks for. What it does is written down by the simulated
device itself (:mod:`fencepath_cuda.simcuda.truth`), so that a recording can be compared with what happened.

Environment of a program that uses it:
    SIMCUDA_TRUTH: file that the truth is appended to.
    SIMCUDA_WAIT: ``block``, ``spin`` or ``yield``; overrides what contexts and CUDA events ask for.
    SIMCUDA_FAIL: ``FUNCTION:RESULT:N[+]``, comma-separated: the Nth call (and all later) fails with RESULT.
    SIMCUDA_COPY_GBPS: bandwidth of the simulated bus, 16 if unset.

Instructions at the functions' first byte, which set what a uprobe costs (x86-64): ``endbr64`` in ``cuEvent*`` and
``cuStreamWaitEvent``, ``push %rbp`` everywhere else but in ``cuGetErrorString``.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Literal

from fencepath.errors import MachineError

__all__ = ["SimCuda", "build"]

_DRIVER = ("truth", "device", "context", "stream", "event", "memory", "launch", "graph")
_ENDBR64 = frozenset({"event"})


@dataclass(frozen=True, kw_only=True)
class SimCuda:
    """A compiled simulated CUDA library.

    Attributes:
        folder: what all of it lies in.
        libcuda: the simulated driver library, ``libcuda.so.1``.
        libcudart: the simulated runtime library, ``libcudart.so.12``; finds the driver beside it.
        workload: the C program that launches an exact number of kernels, linked with both; ``--help`` says how.
        server: the Python program that acts as an LLM inference server on the driver library.
    """

    folder: Path
    libcuda: Path
    libcudart: Path
    workload: Path
    server: Path

    def server_command(self, *arguments: str) -> list[str]:
        """Return the command that runs the simulated server with this Python and these libraries."""
        mark = resources.files("fencepath") / "mark.py"
        return [sys.executable, str(self.server), "--libcuda", str(self.libcuda), "--mark", str(mark), *arguments]

    def environment(
        self,
        *,
        truth: Path | None = None,
        wait: Literal["block", "spin", "yield"] | None = None,
        fail: str | None = None,
        base: Mapping[str, str] | None = None,
    ) -> dict[str, str]:
        """Return the environment for a program that is to find this library and no other.

        Args:
            truth: SIMCUDA_TRUTH.
            wait: SIMCUDA_WAIT.
            fail: SIMCUDA_FAIL.
            base: what to start from, this process's environment if None. Its own SIMCUDA variables are dropped.
        """
        own = os.environ if base is None else base
        result = {name: value for name, value in own.items() if not name.startswith("SIMCUDA_")}
        paths = [str(self.folder), *filter(None, [result.get("LD_LIBRARY_PATH")])]
        result["LD_LIBRARY_PATH"] = ":".join(paths)
        asked = {"SIMCUDA_TRUTH": truth, "SIMCUDA_WAIT": wait, "SIMCUDA_FAIL": fail}
        return result | {name: str(value) for name, value in asked.items() if value is not None}


def build(folder: Path, *, flags: Sequence[str] = ()) -> SimCuda:
    """Compile the simulated CUDA library into a folder; takes about two seconds.

    Args:
        folder: where to; made if it is not there.
        flags: more compiler flags, such as ``-Werror``.

    Raises:
        MachineError: there is no C compiler (``CC``, else ``cc``), or it refused the source.
    """
    compiler = _compiler()
    folder.mkdir(parents=True, exist_ok=True)
    source = Path(str(resources.files(__name__)))
    include = Path(str(resources.files("fencepath"))) / "include"
    compile_all = [*compiler, *_common_flags(), f"-I{source}", f"-I{include}", *flags]
    objects = [str(folder / f"{name}.o") for name in _DRIVER]
    for name, target in zip(_DRIVER, objects, strict=True):
        _run([*compile_all, *_entry_flags(endbr64=name in _ENDBR64), "-c", str(source / f"{name}.c"), "-o", target])
    libcuda, libcudart, workload = folder / "libcuda.so.1", folder / "libcudart.so.12", folder / "simcuda-workload"
    link = ["-shared", "-pthread", "-Wl,-z,defs"]
    _run([*compiler, *link, "-Wl,-soname,libcuda.so.1", *objects, "-o", str(libcuda)])
    runtime = ["-Wl,-soname,libcudart.so.12", f"-Wl,--version-script={source / 'libcudart.map'}", "-Wl,-rpath,$ORIGIN"]
    shared = [*link, *runtime, "-ldl", "-o", str(libcudart)]
    _run([*compile_all, *_entry_flags(endbr64=False), str(source / "runtime.c"), *shared])
    libraries = [str(libcuda), str(libcudart), "-Wl,-rpath,$ORIGIN", "-o", str(workload)]
    _run([*compile_all, str(source / "workload.c"), *libraries])
    for name in objects:
        Path(name).unlink()
    server = source / "workload.py"
    return SimCuda(folder=folder, libcuda=libcuda, libcudart=libcudart, workload=workload, server=server)


def _compiler() -> list[str]:
    compiler = shlex.split(os.environ.get("CC", "")) or ["cc"]
    if not shutil.which(compiler[0]):
        raise MachineError(
            f"the simulated CUDA library needs a C compiler, and there is no {compiler[0]}",
            "install gcc or clang (apt-get install gcc libc6-dev), or set CC",
        )
    return compiler


def _common_flags() -> list[str]:
    # Every prologue is a plain push of the frame pointer, as NVIDIA's is, and every call a call, not a jump.
    frames = ["-fno-omit-frame-pointer", "-fno-optimize-sibling-calls"]
    return ["-std=gnu11", "-O2", "-g", "-fPIC", "-pthread", "-fvisibility=hidden", "-Wall", "-Wextra", *frames]


def _entry_flags(*, endbr64: bool) -> list[str]:
    if platform.machine() != "x86_64":
        return []
    return ["-fcf-protection=branch" if endbr64 else "-fcf-protection=none"]


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MachineError(
            f"the compiler refused the simulated CUDA library: {done.stderr.strip() or command}",
            "compile it with another compiler by setting CC",
        )
