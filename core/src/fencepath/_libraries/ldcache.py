# SPDX-License-Identifier: Apache-2.0
"""The loader's cache, ``/etc/ld.so.cache``: what ``ldconfig -p`` prints, without running it.

Layout: ``struct cache_file_new`` in glibc's sysdeps/generic/dl-cache.h.
"""

from __future__ import annotations

import platform
import struct
from collections.abc import Iterator
from pathlib import Path

__all__ = ["LD_SO_CACHE", "cached_libraries", "parse_cache"]

LD_SO_CACHE = Path("/etc/ld.so.cache")

_MAGIC = b"glibc-ld.so.cache1.1"
_HEADER = struct.Struct("<20sII4s4I")
_ENTRY = struct.Struct("<iIIIQ")
# FLAG_ELF_LIBC6 with the machine's bits; entries of other machines (i386, x32) stand in the same file.
_FLAGS = {"x86_64": 0x0303, "aarch64": 0x0A03}


def cached_libraries(cache: Path = LD_SO_CACHE) -> tuple[tuple[str, str], ...]:
    """Return (soname, path) for each library of this machine's kind in the cache; empty if there is none."""
    try:
        data = cache.read_bytes()
    except OSError:
        return ()
    return tuple(parse_cache(data, _FLAGS.get(platform.machine(), 0x0303)))


def parse_cache(data: bytes, flags: int) -> Iterator[tuple[str, str]]:
    """Yield (soname, path) for each entry of a cache that has exactly `flags`; nothing if it is no such cache."""
    # An old-format cache may come first; offsets count from the new one's start.
    start = data.find(_MAGIC)
    if start < 0 or len(data) < start + _HEADER.size:
        return
    count = _HEADER.unpack_from(data, start)[1]
    for index in range(count):
        at = start + _HEADER.size + index * _ENTRY.size
        if at + _ENTRY.size > len(data):
            return
        entry_flags, key, value, _, _ = _ENTRY.unpack_from(data, at)
        if entry_flags == flags:
            yield _text(data, start + key), _text(data, start + value)


def _text(data: bytes, at: int) -> str:
    end = data.find(b"\0", at)
    return data[at : end if end >= 0 else len(data)].decode("utf-8", "surrogateescape")
