# SPDX-License-Identifier: Apache-2.0
"""Formats that are at hand as texts: of a captured machine, or of another kernel in one file.

Such a file, a bundle, has for each event a line ``## group:event`` and then the text of its `format` file. Lines before the first
are comments. One whose name ends in ``.gz`` is compressed.
"""

from __future__ import annotations

import gzip
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from fencepath._tracepoints.format import TracepointFormat, parse_format

__all__ = ["TextTracepoints", "bundle_name", "read_bundle", "write_bundle"]

_HEAD = "## "
_SUFFIXES = (".formats.gz", ".formats")


class TextTracepoints:
    """The events of a kernel, from texts of their `format` files.

    Args:
        formats: by ``group:event``; an empty text means that there is no such event.
        more: names of further events of a group, of which no text is at hand: they are there, and cannot be recorded.
    """

    def __init__(self, formats: Mapping[str, str], more: Mapping[str, Sequence[str]] | None = None) -> None:
        self._formats = {name: text for name, text in formats.items() if text}
        self._parsed: dict[str, TracepointFormat] = {}
        events: dict[str, set[str]] = defaultdict(set)
        for name in self._formats:
            group, _, event = name.partition(":")
            events[group].add(event)
        for group, names in (more or {}).items():
            events[group].update(names)
        self._events = {group: tuple(sorted(names)) for group, names in events.items() if names}

    def format(self, group: str, event: str) -> TracepointFormat | None:
        """Return the event's format, or None if there is no such event."""
        name = f"{group}:{event}"
        if name in self._formats and name not in self._parsed:
            self._parsed[name] = parse_format(self._formats[name], group)
        return self._parsed.get(name)

    def groups(self) -> tuple[str, ...]:
        """Return the names of all groups, sorted."""
        return tuple(sorted(self._events))

    def events(self, group: str) -> tuple[str, ...]:
        """Return the names of a group's events, sorted; empty if the group is absent."""
        return self._events.get(group, ())


def bundle_name(path: Path) -> str:
    """Name of the kernel of a bundle: its file name without ``.formats`` or ``.formats.gz``; "" if it is called otherwise."""
    return next((path.name.removesuffix(suffix) for suffix in _SUFFIXES if path.name.endswith(suffix)), "")


def read_bundle(path: Path) -> dict[str, str]:
    """Return the texts in a bundle, by ``group:event``."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode(errors="replace")
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith(_HEAD):
            lines = found.setdefault(line.removeprefix(_HEAD).strip(), [])
        else:
            lines.append(line)
    return {name: "\n".join(texts) + "\n" for name, texts in found.items()}


def write_bundle(path: Path, formats: Mapping[str, str], comment: str = "") -> None:
    """Write texts, by ``group:event``, as a bundle. The same texts give the same file."""
    text = f"# {comment}\n" if comment else ""
    text += "".join(f"{_HEAD}{name}\n{formats[name].rstrip()}\n" for name in sorted(formats))
    data = text.encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
