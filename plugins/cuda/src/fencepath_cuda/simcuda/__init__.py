# SPDX-License-Identifier: Apache-2.0
"""A simulated CUDA library, compiled on the spot: for the demo, for tests, for benchmarks without a GPU.

:func:`build` compiles a ``libcuda.so.1`` and a ``libcudart.so.13`` whose exported functions have the names, signatures
and prologues of NVIDIA's, over devices that run each stream's operations in order on a thread of its own. Nothing is
computed: a simulated kernel takes the time its first parameter asks for. What it does is written down by the simulated
device itself (:mod:`fencepath_cuda.simcuda.truth`), so that a recording can be compared with what happened.
:mod:`fencepath_cuda.simcuda.programs` writes and runs programs of CUDA calls.

Environment of a program that uses it:
    SIMCUDA_TRUTH: file that the truth is appended to; ``%p`` in it is the process id.
    SIMCUDA_WAIT: ``block``, ``spin`` or ``yield``; overrides what contexts and CUDA events ask for.
    SIMCUDA_FAIL: ``FUNCTION:RESULT:N[+]``, comma-separated: the Nth call (and all later) fails with RESULT.
    SIMCUDA_COPY_GBPS: bandwidth of the simulated bus, 16 if unset.
    SIMCUDA_DEVICES: number of simulated devices, 2 if unset.
    SIMCUDA_BACKEND: ``mockgpu`` makes each operation a job of the mock GPU driver of ``tests/kernel``, which must be loaded, and
        each blocking wait a wait in the kernel.

Instructions at the functions' first byte, which set what a uprobe costs (x86-64): ``push %rbp`` nearly everywhere, as in
NVIDIA's; ``endbr64`` and then the push in ``cuEvent*`` and ``cuStreamWaitEvent*``; ``nop`` in ``cuMemHostAlloc``; and,
which the kernel has to single-step, ``sub`` in ``cuStreamQuery`` and ``endbr64`` and then ``sub`` in ``cuEventQuery``.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Literal

from fencepath.errors import MachineError

__all__ = ["SimCuda", "build"]

_DEVICE = ("truth", "line", "handles", "op", "wait", "value", "stream", "event", "copy", "launch", "mockgpu")
_DRIVER = (*_DEVICE, "driver", "context", "module", "memory", "pool", "capture", "graph", "node", "unroll", "exec")
_RUNTIME = ("runtime", "runtime_kernel", "runtime_memory", "runtime_stream", "runtime_graph")
_PROGRAM = ("program", "program_text", "program_run", "program_steps")
_ENDBR64 = frozenset({"event"})
_PER_THREAD = "program_steps.per_thread"


@dataclass(frozen=True, kw_only=True)
class SimCuda:
    """A compiled simulated CUDA library.

    Attributes:
        folder: what all of it lies in.
        libcuda: the simulated driver library, ``libcuda.so.1``.
        libcudart: the simulated runtime library, ``libcudart.so.13``; finds the driver beside it.
        workload: the C program that launches an exact number of kernels, linked with both; ``--help`` says how.
        program: the C program that runs programs of CUDA calls; see ``program.h``.
        batching_server: the C program that acts as an LLM inference server with a scheduler and a launching thread.
        server: the Python program that acts as an LLM inference server on the driver library.
    """

    folder: Path
    libcuda: Path
    libcudart: Path
    workload: Path
    program: Path
    batching_server: Path
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
        devices: int | None = None,
        backend: Literal["mockgpu"] | None = None,
        base: Mapping[str, str] | None = None,
    ) -> dict[str, str]:
        """Return the environment for a program that is to find this library and no other.

        Args:
            truth: SIMCUDA_TRUTH.
            wait: SIMCUDA_WAIT.
            fail: SIMCUDA_FAIL.
            devices: SIMCUDA_DEVICES.
            backend: SIMCUDA_BACKEND.
            base: what to start from, this process's environment if None. Its own SIMCUDA variables are dropped.
        """
        own = os.environ if base is None else base
        result = {name: value for name, value in own.items() if not name.startswith("SIMCUDA_")}
        paths = [str(self.folder), *filter(None, [result.get("LD_LIBRARY_PATH")])]
        result["LD_LIBRARY_PATH"] = ":".join(paths)
        asked = {"TRUTH": truth, "WAIT": wait, "FAIL": fail, "DEVICES": devices, "BACKEND": backend}
        return result | {f"SIMCUDA_{name}": str(value) for name, value in asked.items() if value is not None}


def build(folder: Path, *, flags: Sequence[str] = ()) -> SimCuda:
    """Compile the simulated CUDA library into a folder; takes a few seconds.

    Args:
        folder: where to; made if it is not there.
        flags: more compiler flags, such as ``-Werror``.

    Raises:
        MachineError: there is no C compiler (``CC``, else ``cc``), or it refused the source.
    """
    compiler = _compiler()
    folder.mkdir(parents=True, exist_ok=True)
    source = Path(str(resources.files(__name__)))
    objects = _compile([*compiler, *_common_flags(source), *flags], source, folder)
    built = SimCuda(
        folder=folder,
        libcuda=folder / "libcuda.so.1",
        libcudart=folder / "libcudart.so.13",
        workload=folder / "simcuda-workload",
        program=folder / "simcuda-program",
        batching_server=folder / "simcuda-server",
        server=source / "workload.py",
    )
    _link([*compiler, *flags], objects, built, source)
    for path in objects.values():
        Path(path).unlink()
    return built


def _compile(command: list[str], source: Path, folder: Path) -> dict[str, str]:
    """Compile every file, several at a time; return the objects by name."""
    names = (*_DRIVER, *_RUNTIME, *_PROGRAM, _PER_THREAD, "workload", "server")
    objects = {name: str(folder / f"{name}.o") for name in names}

    def compile_one(name: str) -> None:
        variant = ["-DCUDA_API_PER_THREAD_DEFAULT_STREAM"] if name == _PER_THREAD else []
        file = source / f"{name.partition('.')[0]}.c"
        _run([*command, *variant, *_entry_flags(endbr64=name in _ENDBR64), "-c", str(file), "-o", objects[name]])

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compile_one, names))
    return objects


def _link(command: list[str], objects: Mapping[str, str], built: SimCuda, source: Path) -> None:
    def link(target: Path, names: Iterable[str], *more: str) -> None:
        _run([*command, "-pthread", *(objects[name] for name in names), *more, "-o", str(target)])

    shared = ("-shared", "-Wl,-z,defs")
    versions = f"-Wl,--version-script={source / 'libcudart.map'}"
    beside = "-Wl,-rpath,$ORIGIN"
    link(built.libcuda, _DRIVER, *shared, "-Wl,-soname,libcuda.so.1")
    link(built.libcudart, _RUNTIME, *shared, "-Wl,-soname,libcudart.so.13", versions, beside, "-ldl")
    link(built.workload, ["workload"], str(built.libcuda), str(built.libcudart), beside)
    link(built.program, [*_PROGRAM, _PER_THREAD], str(built.libcuda), beside)
    link(built.batching_server, ["server"], str(built.libcuda), beside)


def _compiler() -> list[str]:
    compiler = shlex.split(os.environ.get("CC", "")) or ["cc"]
    if not shutil.which(compiler[0]):
        raise MachineError(
            f"the simulated CUDA library needs a C compiler, and there is no {compiler[0]}",
            "install gcc or clang (apt-get install gcc libc6-dev), or set CC",
        )
    return compiler


def _common_flags(source: Path) -> list[str]:
    # Every prologue is a plain push of the frame pointer, as NVIDIA's is, and every call a call, not a jump.
    frames = ["-fno-omit-frame-pointer", "-fno-optimize-sibling-calls"]
    include = [source, source / "include", Path(str(resources.files("fencepath"))) / "include"]
    flags = ["-std=gnu11", "-O2", "-g", "-fPIC", "-pthread", "-fvisibility=hidden", "-Wall", "-Wextra", *frames]
    return [*flags, *(f"-I{folder}" for folder in include)]


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
