# SPDX-License-Identifier: Apache-2.0
"""Kernel tracepoints by what is there: declare what to take, resolve it against a kernel, get C that reads by offset.

A plugin declares a :class:`TracepointRecord` with every event and name it may come from. Resolving it against the
running kernel (:class:`LiveTracepoints`) or saved `format` files (:class:`SavedTracepoints`) gives :class:`Resolved` or
:class:`Missing`, which says why. From a resolved record come accessors for a BPF source of the plugin's own
(:func:`accessors`) or a complete program (:func:`generate_program`).
"""

from __future__ import annotations

from fencepath._tracepoints.accessors import accessor_name, accessors, accessors_header
from fencepath._tracepoints.declare import TracepointRecord
from fencepath._tracepoints.format import TracepointField, TracepointFormat, TracepointFormatError, parse_format
from fencepath._tracepoints.program import generate_program, program_name
from fencepath._tracepoints.resolve import Binding, Missing, Resolved
from fencepath._tracepoints.sources import TRACEFS_PATHS, LiveTracepoints, SavedTracepoints, TracepointSource
from fencepath._tracepoints.texts import TextTracepoints, bundle_name, read_bundle, write_bundle
from fencepath._tracepoints.types import Always, CurrentIsTarget, FieldIsTarget, Filter, From, Take

__all__ = [
    "TRACEFS_PATHS",
    "Always",
    "Binding",
    "CurrentIsTarget",
    "FieldIsTarget",
    "Filter",
    "From",
    "LiveTracepoints",
    "Missing",
    "Resolved",
    "SavedTracepoints",
    "Take",
    "TextTracepoints",
    "TracepointField",
    "TracepointFormat",
    "TracepointFormatError",
    "TracepointRecord",
    "TracepointSource",
    "accessor_name",
    "accessors",
    "accessors_header",
    "bundle_name",
    "generate_program",
    "parse_format",
    "program_name",
    "read_bundle",
    "write_bundle",
]
