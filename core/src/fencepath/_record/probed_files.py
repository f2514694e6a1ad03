# SPDX-License-Identifier: Apache-2.0
"""Library files that have probes, and whether a file is one of them.

A probe belongs to an inode, and to the real one where an overlay shows a file of a lower layer: containers of one image
have the same real inode behind different devices. Probes put there twice would record every call twice.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import msgspec

from fencepath._libraries import ElfImage, MappedLibrary

__all__ = ["AttachedImage", "ProbedFiles"]


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


class _Probed(NamedTuple):
    """A file, and what an overlay shows unchanged of it: number, size and times."""

    identity: str
    device: int
    shown: tuple[int, int, int, int]
    offset: int
    attached: AttachedImage


class ProbedFiles:
    """The files with probes, by layer."""

    def __init__(self) -> None:
        self._probed: list[_Probed] = []

    @property
    def images(self) -> tuple[AttachedImage, ...]:
        """All of them."""
        return tuple(probed.attached for probed in self._probed)

    def add(self, image: ElfImage, path: str, offset: int, attached: AttachedImage) -> None:
        """Keep a file.

        Args:
            image: its contents.
            path: that leads to it.
            offset: of one of its probes, bytes.
            attached: what was attached.
        """
        status = os.stat(path)  # noqa: PTH116 - of descriptors too
        self._probed.append(_Probed(image.identity, status.st_dev, _shown(status), offset, attached))

    def find(
        self, layer: str, image: ElfImage, path: str, library: MappedLibrary | None = None
    ) -> AttachedImage | None:
        """Return what a layer has attached to the file at `path`, None if nothing.

        Args:
            layer: whose functions.
            image: its contents.
            path: that leads to it.
            library: a mapping of it, by which it is seen whether it has the probes of the file that it looks like.
        """
        status = os.stat(path)  # noqa: PTH116 - of descriptors too
        for probed in self._probed:
            if (probed.attached.layer, probed.identity, probed.shown) != (layer, image.identity, _shown(status)):
                continue
            if probed.device == status.st_dev or (library is not None and _has_probe(image, library, probed.offset)):
                return probed.attached
        return None

    def knows(self, layer: str, library: MappedLibrary) -> bool:
        """Whether a layer has probes in a mapped file that can no longer be looked at."""
        return any(
            probed.attached.layer == layer
            and (os.major(probed.device), os.minor(probed.device), probed.shown[0]) == library.identity
            for probed in self._probed
        )


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
