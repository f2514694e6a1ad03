# SPDX-License-Identifier: Apache-2.0
"""Images that stay open, so that a library mapped by many processes is read once."""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from fencepath._libraries.elf import ElfImage
from fencepath._libraries.maps import MappedLibrary

__all__ = ["ImageCache"]


class ImageCache:
    """ELF images by what is in them. The least recently used is closed when there are too many.

    Not safe for use by several threads at once.
    """

    def __init__(self, limit: int = 64) -> None:
        """Make an empty cache that holds at most `limit` images, each with one open file."""
        self._limit = limit
        self._images: OrderedDict[str, ElfImage] = OrderedDict()

    def __len__(self) -> int:
        return len(self._images)

    def image(self, library: MappedLibrary) -> ElfImage:
        """Return the image of a mapped file; equal files, by whatever path, give the same object.

        Files without a build-id are told apart by size and program headers only within one inode.

        Raises:
            NotElfError: if it is no ELF file.
            MachineError: if it cannot be opened.
        """
        opened = ElfImage(library.open(), library.shown)
        key = opened.identity if opened.build_id else f"{opened.identity}:{library.identity}"
        kept = self._images.get(key)
        if kept is not None:
            opened.close()
            self._images.move_to_end(key)
            return kept
        self._images[key] = opened
        if len(self._images) > self._limit:
            self._images.popitem(last=False)[1].close()
        return opened

    def identify(self, library: MappedLibrary) -> MappedLibrary:
        """Return the same mapping with its build-id. Raises as :meth:`image` does."""
        return msgspec.structs.replace(library, build_id=self.image(library).build_id)

    def close(self) -> None:
        """Close every image."""
        while self._images:
            self._images.popitem()[1].close()
