# SPDX-License-Identifier: Apache-2.0
"""Names of functions at offsets of a file: by its symbol tables, else by how the file registers them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from fencepath._libraries.elf import ElfImage
from fencepath._libraries.registrations import registered_names

__all__ = ["FoundName", "Registering", "find_names"]


class Registering(NamedTuple):
    """A function that registers others, and the arguments with their address and name."""

    symbol: str
    address: int
    name: int


class FoundName(NamedTuple):
    """A function's name, and where it is from: ``symbol``, ``registration`` or ``like_registration``."""

    name: str
    how: str


def find_names(
    image: ElfImage, offsets: Collection[int], registering: Iterable[Registering], within: Callable[[], bool]
) -> dict[int, FoundName]:
    """Return the names of the functions at file offsets; those without a name are absent.

    Args:
        image: the file.
        offsets: where the functions begin, or addresses in them.
        registering: functions by which they may be registered.
        within: asked again and again; when it says no, no more is looked at.

    Raises:
        NotElfError: the file is damaged.
    """
    found: dict[int, FoundName] = {}
    for offset in offsets:
        symbol = next((symbol for table in image.tables.values() if (symbol := table.at(offset)) is not None), None)
        if symbol is not None:
            found[offset] = FoundName(symbol.name, "symbol")
    for function in registering:
        nameless = [offset for offset in offsets if offset not in found]
        if nameless:
            named = registered_names(image, function.symbol, function.address, function.name, nameless, within)
            for offset, registered in named.items():
                found[offset] = FoundName(registered.name, "registration" if registered.sure else "like_registration")
    return found
