# SPDX-License-Identifier: Apache-2.0
"""Maps made by this process and shared with BPF programs by file descriptor."""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from fencepath._bpf import sys as bpf
from fencepath.errors import MachineError

__all__ = ["PERMISSION_REMEDY", "Map", "create"]

PERMISSION_REMEDY = "run as root, or with CAP_BPF and CAP_PERFMON"
"""What somebody does whom the kernel refuses BPF."""

_BATCH_ENTRIES = 1024
_REMEDIES = {
    errno.ENOMEM: "give the rings fewer bytes",
    errno.EINVAL: "use a kernel of 5.15 or later",
    errno.ENOSYS: "use a kernel built with CONFIG_BPF_SYSCALL",
}


def create(
    kind: bpf.MapType, name: str, *, key_size: int = 0, value_size: int = 0, max_entries: int, flags: int = 0
) -> int:
    """Create a map and return its file descriptor. Arguments are those of :func:`fencepath._bpf.sys.map_create`.

    Raises:
        MachineError: if this process may not, the kernel cannot, or there is no memory for it.
    """
    try:
        return bpf.map_create(
            kind, name, key_size=key_size, value_size=value_size, max_entries=max_entries, flags=flags
        )
    except OSError as error:
        if error.errno == errno.EPERM:
            raise MachineError("this process may not create bpf maps", PERMISSION_REMEDY) from error
        raise MachineError(
            f"the bpf map {name} cannot be created: {error.strerror}", _REMEDIES.get(error.errno or 0, "")
        ) from error


class Map:
    """A BPF map, owned by its file descriptor.

    A program uses it as ``(void *)bpf_pseudo_fd(1, FD)``; it lives until the last program and :meth:`close`.

    Attributes:
        name: what bpftool shows.
        fd: file descriptor; -1 when closed.
        key_size: bytes a key.
        value_size: bytes a value.
        max_entries: most entries.
    """

    def __init__(
        self, kind: bpf.MapType, name: str, *, key_size: int, value_size: int, max_entries: int, flags: int = 0
    ) -> None:
        self.name = name
        self.key_size = key_size
        self.value_size = value_size
        self.max_entries = max_entries
        self.fd = create(kind, name, key_size=key_size, value_size=value_size, max_entries=max_entries, flags=flags)
        self._batches = kind is bpf.MapType.HASH

    @classmethod
    def hash(cls, name: str, key_size: int, value_size: int, max_entries: int) -> Map:
        """Create a hash map whose entries are allocated now, so that an update never waits for memory."""
        return cls(bpf.MapType.HASH, name, key_size=key_size, value_size=value_size, max_entries=max_entries)

    @classmethod
    def array(cls, name: str, value_size: int, max_entries: int, *, mmapable: bool = False) -> Map:
        """Create an array; its keys are u32.

        Args:
            name: what bpftool shows.
            value_size: bytes a value; the kernel keeps them at a multiple of 8.
            max_entries: number of values.
            mmapable: whether :meth:`mmap` works.
        """
        flags = bpf.MapFlags.MMAPABLE if mmapable else 0
        return cls(bpf.MapType.ARRAY, name, key_size=4, value_size=value_size, max_entries=max_entries, flags=flags)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def lookup(self, key: bytes) -> bytes | None:
        """Return the value under `key`, or None."""
        return bpf.map_lookup(self.fd, self._key(key), self.value_size)

    def update(self, key: bytes, value: bytes) -> None:
        """Put `value` under `key`.

        Raises:
            ValueError: if either has the wrong length.
            OSError: E2BIG if the map is full.
        """
        if len(value) != self.value_size:
            raise ValueError(f"a value of map {self.name} has {self.value_size} bytes, not {len(value)}")
        bpf.map_update(self.fd, self._key(key), value)

    def delete(self, key: bytes) -> bool:
        """Take `key` out; return whether it was there."""
        return bpf.map_delete(self.fd, self._key(key))

    def keys(self) -> Iterator[bytes]:
        """Yield the keys, each once; one that comes or goes meanwhile may be missing."""
        return (key for key, _ in self.items())

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield (key, value), each key once; one that comes or goes meanwhile may be missing.

        A thousand entries a system call where the kernel reads hash maps in batches, else two system calls an entry.
        """
        if self._batches:
            try:
                batch = self._read_batch(None, _BATCH_ENTRIES)
            except OSError as error:
                if error.errno not in (errno.EINVAL, bpf.ENOTSUPP):
                    raise
                self._batches = False
            else:
                return self._items_by_batch(*batch)
        return self._items_by_key()

    def mmap(self) -> mmap.mmap:
        """Return the values of an mmapable array as memory; value i lies at i times its size rounded up to 8."""
        stride = (self.value_size + 7) & ~7
        pages = -(-stride * self.max_entries // mmap.PAGESIZE)
        return mmap.mmap(self.fd, pages * mmap.PAGESIZE, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)

    def close(self) -> None:
        """Close the file descriptor. Programs that use the map keep it."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def _key(self, key: bytes) -> bytes:
        if len(key) != self.key_size:
            raise ValueError(f"a key of map {self.name} has {self.key_size} bytes, not {len(key)}")
        return key

    def _read_batch(self, position: bytes | None, count: int) -> tuple[bytes, bytes, bytes | None]:
        # A bucket is read whole or not at all: ENOSPC asks for room for more entries.
        while True:
            try:
                return bpf.map_lookup_batch(self.fd, position, count, self.key_size, self.value_size)
            except OSError as error:
                if error.errno != errno.ENOSPC or count >= self.max_entries:
                    raise
                count *= 2

    def _items_by_batch(self, keys: bytes, values: bytes, position: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        while True:
            for index in range(len(keys) // self.key_size):
                key = keys[index * self.key_size : (index + 1) * self.key_size]
                yield key, values[index * self.value_size : (index + 1) * self.value_size]
            if position is None:
                return
            keys, values, position = self._read_batch(position, _BATCH_ENTRIES)

    def _items_by_key(self) -> Iterator[tuple[bytes, bytes]]:
        # A key deleted meanwhile sends the kernel back to the first one: what was seen ends the walk.
        seen: set[bytes] = set()
        key = bpf.map_next_key(self.fd, None, self.key_size)
        while key is not None and key not in seen:
            seen.add(key)
            value = self.lookup(key)
            if value is not None:
                yield key, value
            key = bpf.map_next_key(self.fd, key, self.key_size)
