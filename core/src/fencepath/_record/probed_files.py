# SPDX-License-Identifier: Apache-2.0
"""Library files that have probes, and whether a file is one of them.

A probe belongs to an inode, and to the real one where an overlay shows a file of a lower layer: containers of one image
have the same real inode behind different devices. Probes put there twice would record every call twice.
"""

from __future__ import annotations

import os
from collections.abc import Collection

import msgspec

from fencepath._libraries import ElfImage, MappedLibrary

__all__ = ["AttachedImage", "ProbedFile", "ProbedFiles"]


class AttachedImage(msgspec.Struct, frozen=True):
    """A library file with its probes.

    Attributes:
        path: by which it was found, for display.
        layer: whose functions.
        build_id: hex or "".
        functions: how many of the table are there and attached.
        emulated: how many probes lie on an instruction that the kernel emulates.
        stepped: names of the functions with one on an instruction that it steps.
        entry_only: how many functions have no return probe.
        absent: how many functions of the table the file does not have.
        attached_ns: CLOCK_MONOTONIC when the last probe was attached.
        by_offset: names of functions that have a probe where the library has no symbol of theirs, since it handed out that
            address.
    """

    path: str
    layer: str
    build_id: str
    functions: int
    emulated: int
    stepped: tuple[str, ...]
    entry_only: int
    absent: int
    attached_ns: int
    by_offset: tuple[str, ...] = ()


class ProbedFile:
    """A file with the probes of one layer.

    Attributes:
        attached: what was attached.
        functions: file offsets at which functions with a probe begin.
    """

    def __init__(
        self, image: ElfImage, status: os.stat_result, offset: int, functions: Collection[int], attached: AttachedImage
    ) -> None:
        """Keep a file; `offset` is that of one of its probes, 0 if it has none."""
        self.attached = attached
        self.functions = set(functions)
        self.device = status.st_dev
        self.offset = offset
        self._identity = image.identity
        # what an overlay shows unchanged: number, size and times
        self._shown = _shown(status)

    def looks_like(self, layer: str, image: ElfImage, status: os.stat_result) -> bool:
        """Whether this is the file, as far as can be told without its device."""
        return (self.attached.layer, self._identity, self._shown) == (layer, image.identity, _shown(status))

    def add(self, function: str, offsets: Collection[int]) -> None:
        """Take note of a function that was attached by offset."""
        self.functions.update(offsets)
        by_offset = tuple(sorted({*self.attached.by_offset, function}))
        self.attached = msgspec.structs.replace(self.attached, by_offset=by_offset)

    def is_mapped_as(self, layer: str, library: MappedLibrary) -> bool:
        """Whether a mapping, which can no longer be looked at, is of this file."""
        device = (os.major(self.device), os.minor(self.device))
        return self.attached.layer == layer and (*device, self._shown[0]) == library.identity


class ProbedFiles:
    """The files with probes, by layer."""

    def __init__(self) -> None:
        self._probed: list[ProbedFile] = []

    @property
    def images(self) -> tuple[AttachedImage, ...]:
        """What was attached to all of them."""
        return tuple(probed.attached for probed in self._probed)

    def add(self, image: ElfImage, path: str, offset: int, functions: Collection[int], attached: AttachedImage) -> None:
        """Keep a file.

        Args:
            image: its contents.
            path: that leads to it.
            offset: of one of its probes, bytes.
            functions: offsets at which functions with a probe begin; behind one may be an instruction at which a probe costs
                less.
            attached: what was attached.
        """
        self._probed.append(ProbedFile(image, os.stat(path), offset, functions, attached))  # noqa: PTH116 - of descriptors too

    def find(self, layer: str, image: ElfImage, path: str, library: MappedLibrary | None = None) -> ProbedFile | None:
        """Return the file at `path` if a layer has attached to it, None if not.

        Args:
            layer: whose functions.
            image: its contents.
            path: that leads to it.
            library: a mapping of it, by which it is seen whether it has the probes of the file that it looks like.
        """
        status = os.stat(path)  # noqa: PTH116 - of descriptors too
        for probed in self._probed:
            if not probed.looks_like(layer, image, status):
                continue
            if probed.device == status.st_dev or (library is not None and _has_probe(image, library, probed.offset)):
                return probed
        return None

    def knows(self, layer: str, library: MappedLibrary) -> bool:
        """Whether a layer has probes in a mapped file that can no longer be looked at."""
        return any(probed.is_mapped_as(layer, library) for probed in self._probed)


def _shown(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _has_probe(image: ElfImage, library: MappedLibrary, offset: int) -> bool:
    """Whether something else than the file's own byte is in memory; so it is taken to be if that cannot be looked at."""
    address = library.start + offset - library.offset
    try:
        with open(f"/proc/{library.pid}/mem", "rb", buffering=0) as memory:  # noqa: PTH123 - unbuffered
            return os.pread(memory.fileno(), 1, address) != image.read_code(offset, 1)
    except OSError:
        return True
