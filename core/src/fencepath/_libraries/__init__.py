# SPDX-License-Identifier: Apache-2.0
"""Which libraries a process has or will load, and where in them probes go."""

from __future__ import annotations

from fencepath._libraries.cache import ImageCache
from fencepath._libraries.elf import ElfImage, NotElfError
from fencepath._libraries.heads import FileHead, read_head
from fencepath._libraries.instructions import (
    JUMP_BYTES,
    InstructionClass,
    ProbePoint,
    cheapest_offset,
    classify,
    jump_target,
)
from fencepath._libraries.maps import MappedLibrary, executable_mappings, first_of_each, mapped_libraries, parse_maps
from fencepath._libraries.names import FoundName, Registering, find_names
from fencepath._libraries.search import FoundLibrary, find_known, interpreter_of
from fencepath._libraries.symbols import Symbol, SymbolTable

__all__ = [
    "JUMP_BYTES",
    "ElfImage",
    "FileHead",
    "FoundLibrary",
    "FoundName",
    "ImageCache",
    "InstructionClass",
    "MappedLibrary",
    "NotElfError",
    "ProbePoint",
    "Registering",
    "Symbol",
    "SymbolTable",
    "cheapest_offset",
    "classify",
    "executable_mappings",
    "find_known",
    "find_names",
    "first_of_each",
    "interpreter_of",
    "jump_target",
    "mapped_libraries",
    "parse_maps",
    "read_head",
]
