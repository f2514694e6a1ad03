# SPDX-License-Identifier: Apache-2.0
"""Compile BPF C by BCC, without kernel headers, and load its programs by bpf(2)."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import errno
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Self

from fencepath._bpf import sys as bpf
from fencepath._bpf.bcc import bcc_version, import_bcc
from fencepath._bpf.cache import ProgramCache, cache_folder, is_descriptor
from fencepath._bpf.maps import PERMISSION_REMEDY
from fencepath._bpf.private_stacks import on_own_stack
from fencepath.errors import LoadError, MachineError

if TYPE_CHECKING:
    from bcc import BPF  # pyright: ignore[reportMissingModuleSource] - only the stubs in typings are at hand

__all__ = ["INCLUDE_FOLDER", "BpfObject"]

INCLUDE_FOLDER = Path(__file__).parent.parent / "bpf"
"""Where ``fencepath.h`` is."""

_SHIM = INCLUDE_FOLDER / "shim"
_KERNEL_SOURCE = "BCC_KERNEL_SOURCE"
_LOG_BYTES = (1 << 18, 1 << 24)
_TEMPORARY_REMEDY = "free some space for temporary files, or set TMPDIR to another folder"
_IF_NOT_DONE = """
read -r _ || { echo "fencepath: the compiler of BPF programs ended fencepath. It said:"; cat "$1"; } >&2
"""
_STATISTICS = ("processed ", "verification time ", "stack depth ", "mark_precise:")

# BCC reads the environment, changes the working directory and writes to standard error while it compiles.
_compiling = threading.Lock()


class BpfObject:
    """One compiled BPF source and the programs loaded from it.

    A program is a C function in the source itself, not in a header, unless a macro makes it: BCC gives only those a
    section. It is `int NAME(struct pt_regs *ctx)` for a uprobe, `int NAME(void *ctx)` for a tracepoint, and returns 0.

    Args:
        source: the C text, or the file that holds it; files beside it can be included.
        defines: macros.
        headers: generated files, made available to ``#include "NAME"``.
        include_dirs: further folders to look in; that of ``fencepath.h`` is always there.

    Attributes:
        warnings: what clang said though it compiled, or "".

    Raises:
        LoadError: if it does not compile; `log` has what clang said.
        MachineError: if BCC is missing.
    """

    def __init__(
        self,
        source: str | Path,
        *,
        defines: Mapping[str, str | int] | None = None,
        headers: Mapping[str, str] | None = None,
        include_dirs: Sequence[str | Path] = (),
    ) -> None:
        folders = [Path(folder).resolve() for folder in include_dirs]
        if isinstance(source, Path):
            folders.insert(0, source.resolve().parent)
            text = f'#line 1 "{source}"\n{source.read_text()}'
        else:
            text = source
        macros = dict(defines or {})
        self._programs: dict[tuple[str, int, int, bpf.BtfFunction | None], int] = {}
        self._code: dict[str, bytes] | None
        self._compiled: BPF | None = None
        cache = _cache(text, macros, headers or {}, folders)
        kept = cache.get()
        if kept is None:
            self._compiled, self.warnings = _compile(text, macros, headers or {}, folders)
            self._code = _programs(self._compiled)
            if not cache.put(self._code, self.warnings):
                return  # it may have maps of its own, which go with it
            _release(self._compiled)
            self._compiled = None
        else:
            self._code, self.warnings = kept

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def load(
        self,
        function: str,
        program_type: bpf.ProgramType,
        attach_type: int | None = None,
        traced: bpf.BtfFunction | None = None,
    ) -> int:
        """Load one program, once, and return its file descriptor, which :meth:`close` closes.

        Args:
            function: name of the C function.
            program_type: what it will be attached to.
            attach_type: 48 for a uprobe_multi link (:attr:`UprobeMethod.attach_type`), 24 and 25 for fentry and fexit, else None.
            traced: of a program of type TRACING: the function that it is for.

        Raises:
            LoadError: if there is no such function, or the verifier refuses it; `log` has what it said.
            MachineError: if this process may not load programs.
        """
        key = (function, program_type, attach_type or 0, traced)
        if key not in self._programs:
            self._programs[key] = _load(function, program_type, self.instructions(function), attach_type, traced)
        return self._programs[key]

    def recursion_misses(self) -> dict[str, int]:
        """Return, by function, how often the kernel skipped a loaded program because another one ran on that CPU."""
        misses: dict[str, int] = {}
        for (function, *_), fd in self._programs.items():
            misses[function] = misses.get(function, 0) + bpf.prog_recursion_misses(fd)
        return misses

    def close(self) -> None:
        """Close the programs and maps of this object. Links keep what they need."""
        while self._programs:
            os.close(self._programs.popitem()[1])
        self._code = None
        if self._compiled is not None:
            _release(self._compiled)
            self._compiled = None

    def instructions(self, function: str) -> bytes:
        """Return a program's instructions, 8 bytes each, with the file descriptors of maps in them.

        Raises:
            LoadError: there is no such function, or the object is closed.
        """
        if self._code is None:
            raise LoadError(function, "its object is closed")
        if function not in self._code:
            raise LoadError(function, "no such function in the source")
        return self._code[function]


def _cache(text: str, macros: Mapping[str, str | int], headers: Mapping[str, str], folders: list[Path]) -> ProgramCache:
    """What is kept of a source. It depends on every file that could be included, and on the compiler."""
    included = sorted({file for folder in folders for file in folder.glob("*.[ch]")} | set(INCLUDE_FOLDER.rglob("*.h")))
    fixed = [f"{name}={value}" for name, value in macros.items() if not is_descriptor(name)]
    files = [part for file in included for part in (str(file), file.read_text(errors="surrogateescape"))]
    given = [part for name, content in headers.items() for part in (name, content)]
    descriptors = {name: int(value) for name, value in macros.items() if is_descriptor(name)}
    return ProgramCache(cache_folder(), [bcc_version(), text, *fixed, *given, *files], descriptors)


def _compile(
    text: str, macros: Mapping[str, str | int], headers: Mapping[str, str], folders: list[Path]
) -> tuple[BPF, str]:
    compiler: type[BPF] = import_bcc().BPF
    flags = [f"-D{name}={value}" for name, value in macros.items()]
    try:
        return _compile_by(compiler, text, flags, headers, folders)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise MachineError(f"bpf programs cannot be compiled: {why}", _TEMPORARY_REMEDY) from error


def _programs(compiled: BPF) -> dict[str, bytes]:
    """Instructions of every function, by name."""
    library = import_bcc().lib
    names = [library.bpf_function_name(compiled.module, i) for i in range(library.bpf_num_functions(compiled.module))]
    return {name.decode(): compiled.dump_func(name) for name in names}


def _compile_by(
    compiler: type[BPF], text: str, macros: list[str], headers: Mapping[str, str], folders: list[Path]
) -> tuple[BPF, str]:
    with _compiling, tempfile.TemporaryDirectory(prefix="fencepath-") as generated, _kernel_source():
        for name, content in headers.items():
            Path(generated, name).write_text(content)
        includes = [f"-I{folder}" for folder in (generated, *folders, INCLUDE_FOLDER)]
        with _captured_stderr() as captured:
            try:
                compiled = compiler(text=text.encode(), cflags=[*includes, *macros])
            except Exception as error:  # BCC raises nothing more specific
                raise LoadError("", _with_reason(_text(captured) or str(error))) from error
            return compiled, _text(captured)


def _release(compiled: BPF) -> None:
    compiled.cleanup()
    # BCC registers this for every object and so keeps them all alive.
    atexit.unregister(compiled.cleanup)


@contextlib.contextmanager
def _kernel_source() -> Generator[None]:
    before = os.environ.get(_KERNEL_SOURCE)
    os.environ[_KERNEL_SOURCE] = str(_SHIM)
    try:
        yield
    finally:
        if before is None:
            del os.environ[_KERNEL_SOURCE]
        else:
            os.environ[_KERNEL_SOURCE] = before


@contextlib.contextmanager
def _captured_stderr() -> Generator[IO[bytes]]:
    """Send file descriptor 2 to a file: clang writes there and BCC offers no other way.

    Of some faults, such as too much on a program's stack, LLVM writes there and ends this process. So somebody outside it
    passes on what was written if nothing tells them that it went well.
    """
    sys.stderr.flush()
    with tempfile.TemporaryFile() as captured:
        kept = os.dup(2)
        command = ["sh", "-c", _IF_NOT_DONE, "sh", f"/proc/self/fd/{captured.fileno()}"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[captured.fileno()]) as watcher:
            os.dup2(captured.fileno(), 2)
            try:
                yield captured
            finally:
                os.dup2(kept, 2)
                os.close(kept)
                watcher.communicate(b"done\n")


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace").strip()


def _with_reason(log: str) -> str:
    """Return the log with the line that says why at its end, where a reader of the last line finds it."""
    lines = [line for line in log.splitlines() if line.strip() and not line.startswith(_STATISTICS)]
    errors = [line for line in lines if "error: " in line]
    reason = errors[0] if errors else lines[-1] if lines else "no message"
    return f"{log}\n{reason}"


def _load(
    function: str,
    kind: bpf.ProgramType,
    instructions: bytes,
    attach_type: int | None,
    traced: bpf.BtfFunction | None,
) -> int:
    try:
        # a uprobe's program can be preempted by another run of itself; the kernel keeps other types from that
        with on_own_stack(instructions, guarded=kind is bpf.ProgramType.UPROBE) as guarded:
            return bpf.prog_load(kind, function, guarded, attach_type=attach_type, function=traced)
    except OSError as error:
        log = _verifier_log(function, kind, instructions, attach_type, traced)
        if not log and error.errno in (errno.EPERM, errno.EACCES):
            raise MachineError("this process may not load bpf programs", PERMISSION_REMEDY) from error
        reason = f"{function}: {error.strerror}"
        raise LoadError(function, _with_reason(log) if log else reason) from error


def _verifier_log(
    function: str,
    kind: bpf.ProgramType,
    instructions: bytes,
    attach_type: int | None,
    traced: bpf.BtfFunction | None,
) -> str:
    log = ctypes.create_string_buffer(1)
    for size in _LOG_BYTES:
        log = ctypes.create_string_buffer(size)
        try:
            os.close(bpf.prog_load(kind, function, instructions, attach_type=attach_type, function=traced, log=log))
        except OSError as error:
            if error.errno == errno.ENOSPC:
                continue
        break
    return log.value.decode(errors="replace").strip()
