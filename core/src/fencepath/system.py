# SPDX-License-Identifier: Apache-2.0
"""What a machine offers to plugins: asked before anything is attached."""

from __future__ import annotations

import gzip
import os
import platform
import re
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

from fencepath.tracepoints import (
    LiveTracepoints,
    SavedTracepoints,
    TextTracepoints,
    TracepointSource,
    bundle_name,
    read_bundle,
)

if TYPE_CHECKING:
    from fencepath.plugin import Detail

__all__ = ["KernelSymbols", "LiveSymbols", "SavedSymbols", "Spans", "System"]


Spans: TypeAlias = tuple[tuple[int, int], ...]
"""Pairs (address, bytes)."""


class KernelSymbols(Protocol):
    """Names of a kernel's functions and variables, and of its modules'."""

    def has(self, name: str) -> bool:
        """Whether there is a symbol `name`."""
        ...

    def spans(self, names: Collection[str]) -> Mapping[str, Spans]:
        """Where symbols are, and parts of them that a compiler moved away (``name.cold``).

        Returns:
            By each name that is there: pairs (address, bytes up to the next symbol), ascending. Empty where addresses are not
            known or not shown.
        """
        ...


class LiveSymbols:
    """Those of the running kernel, from kallsyms; read when first asked."""

    def __init__(self, path: Path = Path("/proc/kallsyms")) -> None:
        self._path = path

    def has(self, name: str) -> bool:
        """Whether there is a symbol `name`; False for all where kallsyms cannot be read."""
        return name in self._names

    def spans(self, names: Collection[str]) -> Mapping[str, Spans]:
        """Where they are; see :meth:`KernelSymbols.spans`. The kernel shows addresses to CAP_SYSLOG, see kptr_restrict."""
        try:
            text = self._path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return {}
        wanted = "|".join(map(re.escape, names))
        places = sorted(
            (int(at, 16), name) for at, name in re.findall(rf"(?m)^(\S+) \S ({wanted})(?:\.\S+)?(?=\s|$)", text)
        )
        if not places or not places[-1][0]:
            return {}
        addresses = sorted({int(at, 16) for at in re.findall(r"(?m)^\S+", text)})
        found: dict[str, Spans] = {}
        for at, name in places:
            following = bisect_right(addresses, at)
            if following < len(addresses):
                found[name] = (*found.get(name, ()), (at, addresses[following] - at))
        return found

    @cached_property
    def _names(self) -> frozenset[str]:
        try:
            return frozenset(_symbol_names(self._path.read_text(encoding="utf-8", errors="replace")))
        except OSError:
            return frozenset()


class SavedSymbols:
    """Those of a list: names, or lines as in kallsyms or of nm, one a line. A file that ends in .gz is decompressed.

    Args:
        paths: files; none means a kernel of which no symbols are known.

    Attributes:
        names: of all files together.
    """

    def __init__(self, *paths: Path) -> None:
        names: set[str] = set()
        for path in paths:
            data = path.read_bytes()
            names.update(
                _symbol_names((gzip.decompress(data) if path.suffix == ".gz" else data).decode(errors="replace"))
            )
        self.names = frozenset(names)

    def has(self, name: str) -> bool:
        """Whether there is a symbol `name`."""
        return name in self.names

    def spans(self, names: Collection[str]) -> Mapping[str, Spans]:
        """None: addresses are another boot's."""
        del names
        return {}

    def __len__(self) -> int:
        return len(self.names)


def _symbol_names(text: str) -> Iterator[str]:
    """Names in a list: the third word of ``ffffffff81000000 T name [module]``, or the last; without a version (``name@@VERSION``)."""
    for line in text.splitlines():
        words = line.split()
        if words and not line.startswith("#"):
            yield (words[2] if len(words) > 2 else words[-1]).partition("@")[0]


class System:
    """A machine, live or saved.

    Attributes:
        tracepoints: formats of its kernel's events.
        architecture: as ``uname -m``.
        kernel: as ``uname -r``; for display only, never compared.
        detail: detail that was asked for.
        live: whether it is this machine now.
        symbols: names in its kernel.
    """

    def __init__(
        self,
        *,
        tracepoints: TracepointSource,
        architecture: str,
        kernel: str,
        detail: Detail = "launch",
        live: bool = False,
        symbols: KernelSymbols | None = None,
    ) -> None:
        self.tracepoints = tracepoints
        self.architecture = architecture
        self.kernel = kernel
        self.detail: Detail = detail
        self.live = live
        self.symbols: KernelSymbols = symbols if symbols is not None else LiveSymbols() if live else SavedSymbols()

    @classmethod
    def here(cls, detail: Detail = "launch") -> System:
        """This machine.

        Raises:
            MachineError: tracefs is not mounted or cannot be read.
        """
        return cls(
            tracepoints=LiveTracepoints(),
            architecture=platform.machine(),
            kernel=os.uname().release,
            detail=detail,
            live=True,
        )

    @classmethod
    def from_formats(cls, path: Path, architecture: str = "x86_64", detail: Detail = "launch") -> System:
        """A machine of which only tracefs formats were saved.

        Args:
            path: a folder with ``<group>/<event>.format`` files, or a bundle (:func:`fencepath.tracepoints.read_bundle`) called
                ``<kernel>.formats`` or ``<kernel>.formats.gz``. The names of the kernel's symbols, if they were saved too, are
                in ``symbols.txt`` in the folder, or ``<kernel>.symbols.txt`` beside the file; ``.gz`` behind it compresses them.
            architecture: as ``uname -m``.
            detail: that is asked for.
        """
        name = bundle_name(path) if path.is_file() else ""
        prefix = path.with_name(f"{name}.symbols.txt") if name else path / "symbols.txt"
        lists = [file for file in (prefix, prefix.with_name(f"{prefix.name}.gz")) if file.is_file()]
        return cls(
            tracepoints=TextTracepoints(read_bundle(path)) if name else SavedTracepoints(path),
            architecture=architecture,
            kernel=name or path.name,
            detail=detail,
            symbols=SavedSymbols(*lists),
        )
