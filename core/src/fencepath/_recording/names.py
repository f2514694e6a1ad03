# SPDX-License-Identifier: Apache-2.0
"""Names of the files and folders in a recording."""

from __future__ import annotations

__all__ = [
    "CLOCKS",
    "FACTS",
    "INDEX",
    "KEPT",
    "LOSS",
    "MANIFEST",
    "SEGMENTS",
    "kind_of",
    "segment_name",
    "segment_number",
    "stream_name",
]

MANIFEST = "manifest.json"
FACTS = "facts.jsonl"
LOSS = "loss.jsonl"
CLOCKS = "clocks.jsonl"
KEPT = "kept"
SEGMENTS = "segments"
INDEX = "index.json"

_SUFFIX = ".arrows"
_MOST_DIGITS = 7  # segments of 10 s for three years; a bound for what a folder of unknown origin may claim


def stream_name(kind: str) -> str:
    """Return the name of the file of `kind` in its folder."""
    return kind + _SUFFIX


def kind_of(name: str) -> str | None:
    """Return the kind whose file `name` is; None if it is none."""
    return name.removesuffix(_SUFFIX) if name.endswith(_SUFFIX) else None


def segment_name(number: int) -> str:
    """Return the name of segment `number`'s folder in :data:`SEGMENTS`, counted from 1."""
    return f"{number:06d}"


def segment_number(name: str) -> int | None:
    """Return the number of the segment whose folder `name` is; None if it is none."""
    if not (name.isascii() and name.isdigit()) or len(name) > _MOST_DIGITS:
        return None
    return int(name) if segment_name(int(name)) == name else None
