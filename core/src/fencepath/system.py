# SPDX-License-Identifier: Apache-2.0
"""What a machine offers to plugins: asked before anything is attached."""

from __future__ import annotations

import gzip
import os
import platform
import re
from bisect import bisect_right
from collections.abc import Collection, Mapping
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

    def module_of(self, name: str) -> str:
        """Module that has the symbol `name`; "" if it is the kernel's own, or there is none."""
        ...

    def has_module(self, name: str) -> bool:
        """Whether the module `name` is loaded, as in /proc/modules."""
        ...

    def traceable(self, name: str) -> bool | None:
        """Whether ftrace lists the function `name`, without which it cannot be had by fentry; None if it does not say."""
        ...

    def spans(self, names: Collection[str]) -> Mapping[str, Spans]:
        """Where symbols are, and parts of them that a compiler moved away (``name.cold``).

        Returns:
            By each name that is there: pairs (address, bytes up to the next symbol), ascending. Empty where addresses are not
            known or not shown.
        """
        ...


class LiveSymbols:
    """Those of the running kernel, from kallsyms; read when first asked.

    Args:
        path: the symbols.
        modules: a folder with one of each module.
        traceable: ftrace's list of functions.
    """

    def __init__(
        self,
        path: Path = Path("/proc/kallsyms"),
        modules: Path = Path("/sys/module"),
        traceable: Path = Path("/sys/kernel/tracing/available_filter_functions"),
    ) -> None:
        self._path = path
        self._modules = modules
        self._list = traceable

    def has(self, name: str) -> bool:
        """Whether there is a symbol `name`; False for all where kallsyms cannot be read."""
        return name in self._names

    def module_of(self, name: str) -> str:
        """Module that has the symbol; "" for the kernel itself."""
        return self._names.get(name, "")

    def has_module(self, name: str) -> bool:
        """Whether the module is loaded, or built into the kernel."""
        return (self._modules / name).is_dir()

    def traceable(self, name: str) -> bool | None:
        """Whether ftrace lists the function; None where its list cannot be read, as under lockdown."""
        return name in self._traceable if self._traceable else None

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
    def _traceable(self) -> frozenset[str]:
        try:
            return frozenset(line.split()[0] for line in self._list.read_text().splitlines() if line)
        except OSError:
            return frozenset()

    @cached_property
    def _names(self) -> dict[str, str]:
        try:
            return _symbols(self._path.read_text(encoding="utf-8", errors="replace"))
        except OSError:
            return {}


class SavedSymbols:
    """Those of a list: names, or lines as in kallsyms or of nm, one a line. A file that ends in .gz is decompressed.

    Args:
        paths: files; none means a kernel of which no symbols are known.

    Attributes:
        names: of all files together.
        modules: those of which there are symbols: ``[nvidia]`` in a line.
    """

    def __init__(self, *paths: Path) -> None:
        names: dict[str, str] = {}
        for path in paths:
            data = path.read_bytes()
            text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode(errors="replace")
            names.update(_symbols(text))
        self._modules = names
        self.names = frozenset(names)
        self.modules = frozenset(names.values()) - {""}

    def has(self, name: str) -> bool:
        """Whether there is a symbol `name`."""
        return name in self.names

    def module_of(self, name: str) -> str:
        """Module that has the symbol, where the list says so."""
        return self._modules.get(name, "")

    def has_module(self, name: str) -> bool:
        """Whether there are symbols of the module."""
        return name in self.modules

    def traceable(self, name: str) -> bool | None:
        """Not known."""
        del name
        return None

    def spans(self, names: Collection[str]) -> Mapping[str, Spans]:
        """None: addresses are another boot's."""
        del names
        return {}

    def __len__(self) -> int:
        return len(self.names)


def _symbols(text: str) -> dict[str, str]:
    """Names with their modules in a list: of ``ffffffff81000000 T name [module]`` or ``[module] T name``, or the last word alone.

    Names are without a version (``name@@VERSION``).
    """
    found: dict[str, str] = {}
    for line in text.splitlines():
        words = line.split()
        if not words or line.startswith("#"):
            continue
        name = (words[2] if len(words) > 2 else words[-1]).partition("@")[0]
        module = words[3] if len(words) > 3 else words[0] if len(words) > 2 else ""
        found[name] = module[1:-1] if module.startswith("[") else ""
    return found


class System:
    """A machine, live or saved.

    Attributes:
        tracepoints: formats of its kernel's events.
        architecture: as ``uname -m``.
        kernel: as ``uname -r``; for display only, never compared.
        detail: detail that was asked for.
        live: whether it is this machine now.
        symbols: names in its kernel.
        no_functions: why functions of its kernel cannot be probed; "" if they can, or if that is not known.
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
        no_functions: str = "",
    ) -> None:
        self.tracepoints = tracepoints
        self.architecture = architecture
        self.kernel = kernel
        self.detail: Detail = detail
        self.live = live
        self.symbols: KernelSymbols = symbols if symbols is not None else LiveSymbols() if live else SavedSymbols()
        self.no_functions = no_functions

    @classmethod
    def here(cls, detail: Detail = "launch") -> System:
        """This machine.

        Raises:
            MachineError: tracefs is not mounted or cannot be read.
        """
        from fencepath._bpf.kernel_functions import functions_refused

        return cls(
            tracepoints=LiveTracepoints(),
            architecture=platform.machine(),
            kernel=os.uname().release,
            detail=detail,
            live=True,
            no_functions=functions_refused(),
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
