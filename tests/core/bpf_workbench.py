# SPDX-License-Identifier: Apache-2.0
"""What the live BPF tests share: a library to probe, its offsets, and the compiled test programs."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import numpy as np
import numpy.typing as npt
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from fencepath._bpf.attach import Link, attach_tracepoint
from fencepath._bpf.compiler import BpfObject
from fencepath._bpf.losses import Stage
from fencepath._bpf.rings import RingBatch, Rings
from fencepath._bpf.shared import Shared
from fencepath._bpf.sys import ProgramType
from fencepath.records import HEADER as HEADER_FIELDS
from fencepath.records import Field, RecordLayout, Records

PROGRAMS = Path(__file__).parent / "bpf" / "records.c"
KINDS = {"test.small": 1, "test.middle": 2, "test.large": 4}
SMALL = RecordLayout("test.small", (*HEADER_FIELDS, Field("argument", "u64")))
MIDDLE = RecordLayout(
    "test.middle", (*HEADER_FIELDS, Field("cookie", "u64"), Field("argument", "u64"), Field("checksum", "u64"))
)
LARGE = RecordLayout("test.large", (*HEADER_FIELDS, Field("argument", "u64"), Field("payload", "char[4096]")))
LAYOUTS = {layout.kind: layout for layout in (SMALL, MIDDLE, LARGE)}


def build_library(folder: Path) -> Path:
    """Compile produce.c; its functions begin with ``push %rbp``, which the kernel emulates under a probe."""
    library = folder / "libproduce.so"
    flags = ["-O2", "-fPIC", "-shared", "-fno-omit-frame-pointer", "-fcf-protection=none"]
    subprocess.run(["gcc", *flags, "-o", library, PROGRAMS.parent / "produce.c"], check=True)
    return library


def file_offset(library: Path, symbol: str) -> int:
    """Offset in the file of a function's first byte."""
    with library.open("rb") as file:
        elf = ELFFile(file)
        symbols = elf.get_section_by_name(".dynsym")
        assert isinstance(symbols, SymbolTableSection)
        address = int((symbols.get_symbol_by_name(symbol) or [])[0]["st_value"])
        for segment in elf.iter_segments("PT_LOAD"):
            if segment["p_vaddr"] <= address < segment["p_vaddr"] + segment["p_filesz"]:
                return address - int(segment["p_vaddr"]) + int(segment["p_offset"])
    raise AssertionError(f"{symbol} lies in no segment of {library}")


def open_files() -> int:
    """How many file descriptors this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def load_library(library: Path) -> ctypes.CDLL:
    loaded = ctypes.CDLL(str(library))
    for name in ("first", "second", "refused"):
        getattr(loaded, name).argtypes = [ctypes.c_uint64]
        getattr(loaded, name).restype = ctypes.c_uint64
    return loaded


def start_producer(library: Path, function: str, count: int) -> subprocess.Popen[str]:
    """Start a process that waits for a line and then calls ``many_<function>(count)``."""
    code = (
        "import ctypes, sys; library = ctypes.CDLL(sys.argv[1]); print('ready', flush=True); sys.stdin.readline(); "
        "getattr(library, 'many_' + sys.argv[2])(ctypes.c_uint64(int(sys.argv[3])))"
    )
    command = [sys.executable, "-c", code, str(library), function, str(count)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def release(process: subprocess.Popen[str]) -> None:
    """Let a producer go on."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


class Workbench:
    """The test programs, with this process as the only target."""

    def __init__(self, *, rings: Rings | None = None, all_processes: bool = False, self_tgid: int = 0) -> None:
        self.shared = Shared(KINDS, rings=rings, all_processes=all_processes, self_tgid=self_tgid)
        self.object = BpfObject(PROGRAMS, defines=self.shared.defines())
        self.target(os.getpid())

    def target(self, pid: int) -> None:
        self.shared.tgids.update(pid.to_bytes(4, sys.byteorder), bytes(4))

    def uprobe_program(self, name: str, attach_type: int | None) -> int:
        return self.object.load(name, ProgramType.UPROBE, attach_type)

    @contextlib.contextmanager
    def prctl(self, name: str) -> Generator[Link]:
        """Attach a program to the system call that :func:`refused` makes."""
        program = self.object.load(name, ProgramType.TRACEPOINT)
        with attach_tracepoint(program, "syscalls", "sys_enter_prctl") as link:
            yield link

    def drain(self, layout: RecordLayout = MIDDLE) -> Records:
        """Drain the rings; nothing but records of this layout may be there."""
        return decode(self.shared.rings.drain(), layout)

    def count(self, kind: str, stage: Stage) -> int:
        """Count of one kind and stage, over all CPUs."""
        return int(self.shared.losses.snapshot()[:, KINDS[kind], stage].sum())

    def close(self) -> None:
        self.object.close()
        self.shared.close()


def decode(batches: list[RingBatch], layout: RecordLayout) -> Records:
    """Cut rows to their layout."""
    dtype = layout.dtype
    parts = [np.ascontiguousarray(batch.rows[:, : dtype.itemsize]).view(dtype)[:, 0] for batch in batches]
    records: Records = np.concatenate([np.empty(0, dtype), *parts])
    assert (records["kind"] == KINDS[layout.kind]).all()
    return records


def checksums(records: Records) -> npt.NDArray[np.uint64]:
    """The checksum each record should have."""
    identity = records["tgid"].astype(np.uint64) << np.uint64(32) | records["tid"]
    mixed = (records["time_ns"] ^ identity) * np.uint64(31) + records["cookie"] * np.uint64(7)
    return np.asarray(mixed + records["argument"], np.uint64)
