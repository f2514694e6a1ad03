# SPDX-License-Identifier: Apache-2.0
"""ELF files as probes need them: symbol to file offset, build-id, what is needed at run time.

pyelftools reads headers and notes; symbol tables, which can hold a million entries, are read in one piece as numpy
columns. A file is never read whole (libcuda has 100 MB): only its headers and the tables named in them.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping
from io import BufferedReader
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from fencepath._libraries.notes import NOTE_LIMIT_BYTES, build_id_in
from fencepath._libraries.symbols import Symbol, SymbolTable
from fencepath.errors import FencepathError

__all__ = ["TABLE_LIMIT_BYTES", "ElfImage", "NotElfError"]

TABLE_LIMIT_BYTES = 1 << 30
"""Largest table that is read. A libtorch_cuda with symbols has about 100 MB of names."""

_MOST_OFFSET = 1 << 62
"""What a damaged file says can be more than the system takes."""
_DYNAMIC_TEXT = {1: "needed", 14: "soname", 15: "rpath", 29: "runpath"}
_DT_STRTAB, _DT_STRSZ = 5, 10


class NotElfError(FencepathError):
    """The file is no ELF file that can be read.

    Attributes:
        path: which.
    """

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path} cannot be read as an ELF file: {why}")
        self.path = path


class Segment:
    """One loaded segment."""

    __slots__ = ("address", "executable", "file_size", "offset")

    def __init__(self, address: int, offset: int, file_size: int, executable: bool) -> None:
        self.address = address
        self.offset = offset
        self.file_size = file_size
        self.executable = executable


class ElfImage:
    """One ELF file.

    Symbol tables are read at first use. Close it, or use it as a context manager; what was read stays usable.
    """

    def __init__(self, path: str | os.PathLike[str] | int, name: str = "") -> None:
        """Open the file and read its headers.

        Args:
            path: file, ``/proc/PID/map_files/...``, or an open descriptor, which this object then owns.
            name: for messages; by default the path.

        Raises:
            NotElfError: if it is no 64-bit little-endian ELF file, or cut.
            OSError: if it cannot be opened.
        """
        self.name = name or str(path)
        self._tags: tuple[tuple[int, int], ...] = ()
        self._file: BufferedReader = open(path, "rb")  # noqa: SIM115, PTH123  # closed by close(); may be a descriptor
        try:
            self._elf: Any = ELFFile(self._file)
            self._check()
            self._segments = tuple(self._read_segments())
            self._dynamic = self._read_dynamic()
            self._build_id = self._read_build_id()
        except (ELFError, ValueError, KeyError, UnicodeError, AttributeError, TypeError, OSError) as error:
            # pyelftools fails in many ways on a damaged file.
            self._file.close()
            raise NotElfError(self.name, str(error) or type(error).__name__) from error
        self._tables: dict[str, SymbolTable] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @property
    def identity(self) -> str:
        """Equal for files whose code lies at the same offsets: build-id, size and program headers.

        The build-id alone is not enough: wheels are made with patchelf, which moves segments and keeps the build-id.
        """
        header = self._elf.header
        segments = self._read(header.e_phoff, header.e_phentsize * header.e_phnum)
        size = os.fstat(self._file.fileno()).st_size
        return f"{self._build_id or '-'}:{size}:{hashlib.blake2b(segments, digest_size=8).hexdigest()}"

    @property
    def machine(self) -> str:
        """``EM_X86_64``, ``EM_AARCH64`` or another of the ELF names."""
        return str(self._elf.header.e_machine)

    @property
    def is_executable(self) -> bool:
        """Whether it can be started: it is no shared object, or it names an interpreter (position independent)."""
        return self._elf.header.e_type == "ET_EXEC" or self.interpreter is not None

    @property
    def interpreter(self) -> str | None:
        """Path of the dynamic loader it asks for."""
        for segment in self._elf.iter_segments("PT_INTERP"):
            return str(segment.get_interp_name())
        return None

    @property
    def build_id(self) -> str | None:
        """GNU build-id in hex, or None if it has none."""
        return self._build_id

    @property
    def soname(self) -> str | None:
        """DT_SONAME."""
        return next(iter(self._dynamic.get("soname", ())), None)

    @property
    def needed(self) -> tuple[str, ...]:
        """DT_NEEDED, in order."""
        return tuple(self._dynamic.get("needed", ()))

    @property
    def search_path(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Folders of DT_RPATH and of DT_RUNPATH, ``$ORIGIN`` not replaced. An RPATH counts only without a RUNPATH."""
        split = [
            tuple(p for text in self._dynamic.get(key, ()) for p in text.split(":") if p)
            for key in ("rpath", "runpath")
        ]
        return (() if split[1] else split[0], split[1])

    def file_offset(self, address: int) -> int | None:
        """Return the file offset of a virtual address in an executable segment, or None if it lies in none."""
        for segment in self._segments:
            if segment.executable and segment.address <= address < segment.address + segment.file_size:
                return address - segment.address + segment.offset
        return None

    def address_at(self, offset: int) -> int | None:
        """Return the virtual address of a file offset in an executable segment, or None if it lies in none."""
        for segment in self.executable_segments:
            if segment.offset <= offset < segment.offset + segment.file_size:
                return offset - segment.offset + segment.address
        return None

    def data_offset(self, address: int) -> int | None:
        """Return the file offset of a virtual address in any segment (older linkers put constants beside code), or None."""
        try:
            return self._any_offset(address)
        except ValueError:
            return None

    @property
    def executable_segments(self) -> tuple[Segment, ...]:
        """Segments with code."""
        return tuple(segment for segment in self._segments if segment.executable)

    def dynamic_values(self, tags: Collection[int]) -> dict[int, int]:
        """Return those of the dynamic section's entries that have one of these tags and are there."""
        return {tag: value for tag, value in self._tags if tag in tags}

    def read_table(self, address: int, size: int) -> bytes:
        """Return what the file has for a virtual address.

        Raises:
            NotElfError: it is not there.
        """
        try:
            return self._read(self._any_offset(address), size)
        except ValueError as error:
            raise NotElfError(self.name, str(error)) from error

    def sections(self, prefix: str) -> Iterator[tuple[int, bytes]]:
        """Yield address and contents of each section whose name begins so; nothing in a file without section headers."""
        try:
            for section in self._elf.iter_sections():
                if section.name.startswith(prefix):
                    yield int(section.header.sh_addr), self._read(section.header.sh_offset, section.header.sh_size)
        except (ELFError, ValueError, KeyError, UnicodeError, AttributeError, TypeError) as error:
            raise NotElfError(self.name, f"{prefix}: {error}") from error

    def read_code(self, offset: int, size: int) -> bytes:
        """Return up to `size` bytes at file offset `offset`."""
        return os.pread(self._file.fileno(), size, offset) if 0 <= offset < _MOST_OFFSET else b""

    @property
    def tables(self) -> Mapping[str, SymbolTable]:
        """Symbol tables there are: ``.dynsym``, ``.symtab``."""
        if self._tables is None:
            self._tables = dict(self._read_tables())
        return self._tables

    def functions(self) -> Iterator[Symbol]:
        """Yield every function defined here; the dynamic table first, what the other repeats left out."""
        seen: set[tuple[str, int]] = set()
        for table in self.tables.values():
            for symbol in table.functions():
                if (symbol.name, symbol.offset) not in seen:
                    seen.add((symbol.name, symbol.offset))
                    yield symbol

    def find(self, name: str, version: str | None = None) -> Symbol | None:
        """Return the function `name`, or None.

        Args:
            name: symbol, without its version.
            version: such as ``GLIBC_2.17``; by default the default version (``name@@VERSION``), else the first one.
        """
        versions = self.versions(name)
        if version is not None:
            return next((symbol for symbol in versions if symbol.version == version), None)
        default = next((symbol for symbol in versions if symbol.is_default), None)
        # A program linked today would get the IFUNC, not the old version beside it (memcpy in glibc).
        return default or (versions[0] if versions and not self.is_ifunc(name) else None)

    def versions(self, name: str) -> tuple[Symbol, ...]:
        """Return every version of the function `name`; from .symtab only if .dynsym has none."""
        for table in self.tables.values():
            if found := table.named(name):
                return found
        return ()

    def defined(self, names: Iterable[str]) -> tuple[Symbol, ...]:
        """Return those of `names` that this file defines itself.

        For an executable this tells a statically linked library: one that defines ``cudaLaunchKernel`` holds a
        libcudart that no mapping shows.
        """
        return tuple(symbol for name in names if (symbol := self.find(name)) is not None)

    def is_ifunc(self, name: str) -> bool:
        """Whether `name` is chosen at load time (GNU_IFUNC): its address is a resolver's, never probed."""
        return any(name in table.ifuncs for table in self.tables.values())

    def _check(self) -> None:
        if self._elf.elfclass != 64 or not self._elf.little_endian:
            raise ValueError(f"{self._elf.elfclass}-bit, {'little' if self._elf.little_endian else 'big'}-endian")

    def _read_segments(self) -> Iterator[Segment]:
        for segment in self._elf.iter_segments("PT_LOAD"):
            header = segment.header
            if max(header.p_vaddr, header.p_offset, header.p_filesz) >= _MOST_OFFSET:
                raise ValueError(f"a segment of {header.p_filesz} bytes at {header.p_vaddr:#x} cannot be")
            yield Segment(header.p_vaddr, header.p_offset, header.p_filesz, bool(header.p_flags & 1))

    def _read_dynamic(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        segment = next(iter(self._elf.iter_segments("PT_DYNAMIC")), None)
        if segment is None:
            return found
        # Tags are read here as numbers: the names of a section's string table may be stripped, segments never are.
        raw = self._read(segment.header.p_offset, segment.header.p_filesz)
        tags: list[tuple[int, int]] = list(struct.iter_unpack("<QQ", raw[: len(raw) // 16 * 16]))
        self._tags = tuple(itertools.takewhile(lambda pair: pair[0] != 0, tags))
        values = self.dynamic_values((_DT_STRTAB, _DT_STRSZ))
        if _DT_STRTAB not in values:
            return found
        strings = self._read(self._any_offset(values[_DT_STRTAB]), values.get(_DT_STRSZ, 0))
        for tag, value in self._tags:
            if key := _DYNAMIC_TEXT.get(tag):
                found.setdefault(key, []).append(_text_at(strings, value))
        return found

    def _any_offset(self, address: int) -> int:
        for segment in self._segments:
            if segment.address <= address < segment.address + segment.file_size:
                return address - segment.address + segment.offset
        raise ValueError(f"address {address:#x} is in no segment")

    def _read_build_id(self) -> str | None:
        for segment in self._elf.iter_segments("PT_NOTE"):
            raw = self._read(segment.header.p_offset, min(segment.header.p_filesz, NOTE_LIMIT_BYTES))
            if (found := build_id_in(raw, segment.header.p_align)) is not None:
                return found
        return None

    def _read_tables(self) -> Iterator[tuple[str, SymbolTable]]:
        for name in (".dynsym", ".symtab"):
            try:
                section = self._elf.get_section_by_name(name)
                if section is not None and section.header.sh_type in ("SHT_DYNSYM", "SHT_SYMTAB"):
                    yield name, self._read_table(section)
            except (ELFError, ValueError, KeyError, UnicodeError, AttributeError, TypeError) as error:
                raise NotElfError(self.name, f"{name}: {error}") from error

    def _read_table(self, section: Any) -> SymbolTable:
        strings = self._elf.get_section(section.header.sh_link).header
        versions: npt.NDArray[np.uint16] | None = None
        names: dict[int, str] = {}
        if section.header.sh_type == "SHT_DYNSYM":
            versions, names = self._read_versions()
        return SymbolTable(
            self._read(section.header.sh_offset, section.header.sh_size),
            self._read(strings.sh_offset, strings.sh_size),
            tuple((s.address, s.address + s.file_size, s.offset - s.address) for s in self._segments if s.executable),
            versions,
            names,
        )

    def _read_versions(self) -> tuple[npt.NDArray[np.uint16] | None, dict[int, str]]:
        indices = self._elf.get_section_by_name(".gnu.version")
        definitions = self._elf.get_section_by_name(".gnu.version_d")
        if indices is None:
            return None, {}
        names: dict[int, str] = {}
        if definitions is not None:
            for definition, auxiliaries in definitions.iter_versions():
                names[int(definition["vd_ndx"])] = str(next(iter(auxiliaries)).name)
        return np.frombuffer(self._read(indices.header.sh_offset, indices.header.sh_size), dtype="<u2"), names

    def _read(self, offset: int, size: int) -> bytes:
        if size > TABLE_LIMIT_BYTES or offset >= _MOST_OFFSET:
            raise ValueError(f"a table of {size} bytes at {offset} is too large")
        data = os.pread(self._file.fileno(), size, offset)
        while len(data) < size and (more := os.pread(self._file.fileno(), size - len(data), offset + len(data))):
            data += more
        if len(data) < size:
            raise ValueError("the file is cut")
        return data


def _text_at(strings: bytes, at: int) -> str:
    end = strings.find(b"\0", at)
    return strings[at : end if end >= 0 else len(strings)].decode("utf-8", "surrogateescape")
