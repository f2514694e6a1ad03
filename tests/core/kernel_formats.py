# SPDX-License-Identifier: Apache-2.0
"""Formats of tracepoints saved from many kernels, a file a kernel, for tests of the layers of drivers.

A file holds, for each event, a line ``== group/event`` and the lines of its format that say its name and fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from fencepath.system import System

__all__ = ["pack", "saved_kernel", "unpack"]

_HEAD = "== "


def pack(formats: Path, events: Iterable[str]) -> str:
    """Return the file for a kernel whose formats are saved as ``formats/<group>/<event>.format``.

    Args:
        formats: the folder.
        events: patterns of ``<group>/<event>``.
    """
    paths = sorted({path for pattern in events for path in formats.glob(f"{pattern}.format")})
    return "".join(f"{_HEAD}{path.parent.name}/{path.stem}\n{_without_print(path.read_text())}" for path in paths)


def _without_print(text: str) -> str:
    """The texts for people are most of a format, and nothing is read from them."""
    return "".join(f"{line}\n" for line in text.splitlines() if not line.startswith("print fmt"))


def unpack(*files: Path) -> Iterator[tuple[str, str, str]]:
    """Yield group, event and format of everything in some packed files."""
    for file in files:
        for block in file.read_text().split(_HEAD)[1:]:
            name, _, text = block.partition("\n")
            group, _, event = name.partition("/")
            yield group, event, text


def saved_kernel(folder: Path, *files: Path) -> System:
    """Return a machine with the events of some packed files, asked for all detail.

    Args:
        folder: where to unpack.
        files: packed formats; the first one names the kernel.
    """
    root = folder / files[0].stem
    for group, event, text in unpack(*files):
        path = root / group / f"{event}.format"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return System.from_formats(root, detail="full")


def layout(event: str, fields: str) -> str:
    """Return the format of an event as the kernel would lay its fields out, for kernels of which none was saved.

    Args:
        event: name.
        fields: such as ``u32 dev; u64 ctx; __data_loc char[] ring; unsigned src_data[4]``, in order.
    """
    at = 8
    lines = [f"name: {event}", "ID: 1", "format:"]
    for field in (part.strip() for part in fields.split(";")):
        size, align = _extent(field)
        at += -at % align
        signed = int(field.startswith(("int ", "s32 ", "s64 ", "long ")))
        lines.append(f"\tfield:{field};\toffset:{at};\tsize:{size};\tsigned:{signed};")
        at += size
    return "\n".join([*lines, ""])


_SIZES = {"u8": 1, "bool": 1, "u16": 2, "u32": 4, "s32": 4, "int": 4, "unsigned": 4, "u64": 8, "s64": 8, "long": 8}


def _extent(field: str) -> tuple[int, int]:
    """Bytes that a field takes, and what they are aligned to."""
    if field.startswith("__data_loc"):
        return 4, 4
    if "*" in field:
        return 8, 8
    type_, _, name = field.rpartition(" ")
    size = 4 if type_.startswith("enum ") else _SIZES[type_]
    count = int(name.partition("[")[2].rstrip("]") or 1)
    return size * count, size


def changed(text: str, **fields: str | None) -> str:
    """Return a format with fields laid out anew: each as declared, or left out where it is None.

    Those that are not named stay, behind the others, so that every offset is another one.
    """
    declared = {_name(line): line.split("field:")[1].split(";")[0] for line in text.splitlines() if "field:" in line}
    own = {name: what for name, what in declared.items() if not name.startswith("common_") and name not in fields}
    wanted = [what for what in (*fields.values(), *own.values()) if what is not None]
    event = text.split("name: ")[1].split("\n", maxsplit=1)[0]
    return layout(event, ";".join(wanted))


def _name(line: str) -> str:
    return line.split("field:")[1].split(";", maxsplit=1)[0].rpartition(" ")[2].partition("[")[0]
