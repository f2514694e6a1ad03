# SPDX-License-Identifier: Apache-2.0
"""Which libraries a process has or will load, and where in them probes go."""

from __future__ import annotations

from fencepath._libraries.cache import ImageCache
from fencepath._libraries.elf import ElfImage, NotElfError
from fencepath._libraries.instructions import InstructionClass, ProbePoint, cheapest_offset, classify
from fencepath._libraries.maps import MappedLibrary, mapped_libraries, parse_maps
from fencepath._libraries.search import FoundLibrary, find_known, interpreter_of
from fencepath._libraries.symbols import Symbol, SymbolTable

__all__ = [
    "ElfImage",
    "FoundLibrary",
    "ImageCache",
    "InstructionClass",
    "MappedLibrary",
    "NotElfError",
    "ProbePoint",
    "Symbol",
    "SymbolTable",
    "cheapest_offset",
    "classify",
    "find_known",
    "interpreter_of",
    "mapped_libraries",
    "parse_maps",
]
