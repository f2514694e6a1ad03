# SPDX-License-Identifier: Apache-2.0
"""Reads one folder of streams, a segment or what is kept outside of segments, and accounts for what is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property

import msgspec

from fencepath._recording.columns import BatchCodec
from fencepath._recording.names import INDEX, kind_of, stream_name
from fencepath._recording.rows import Damage
from fencepath._recording.segments import KindIndex, SegmentIndex, index_of
from fencepath._recording.streams import StreamReader
from fencepath._recording.tree import Tree
from fencepath.records import Records

__all__ = ["StreamFolder"]


class StreamFolder:
    """One folder of streams.

    Args:
        tree: the recording's files.
        path: of the folder inside the recording.
        codecs: gives the codec of a kind, or None if the manifest does not declare it.
        note: called with each damage that is found.
        closed: whether its index should be there.
    """

    def __init__(
        self,
        tree: Tree,
        path: str,
        codecs: Callable[[str], BatchCodec | None],
        note: Callable[[Damage], None],
        *,
        closed: bool,
    ) -> None:
        self.path = path
        self._tree = tree
        self._codecs = codecs
        self._note = note
        self._closed = closed

    @cached_property
    def stored_index(self) -> SegmentIndex | None:
        """The index as it is on disk; None if there is none that can be read."""
        file = f"{self.path}/{INDEX}"
        if self._tree.size_bytes(file) < 0:
            if self._closed:
                self._note(Damage(file, "missing; made anew from the data"))
            return None
        try:
            return msgspec.json.decode(self._tree.read(file), type=SegmentIndex)
        except (OSError, msgspec.MsgspecError, ValueError, RecursionError) as error:
            self._note(Damage(file, f"cannot be read, made anew from the data: {error}"))
            return None

    @cached_property
    def index(self) -> SegmentIndex:
        """The index on disk if it agrees with the files, else one made by reading them."""
        stored = self.stored_index
        sizes = {kind: self._tree.size_bytes(self._file(kind)) for kind in self.kinds}
        if stored is not None and sizes == {kind: held.bytes for kind, held in stored.kinds.items()}:
            return stored
        held = stored.kinds if stored else {}
        readers = {kind: self.scan(kind) for kind in sorted({*sizes, *held})}
        found = {kind: reader.index for kind, reader in readers.items() if reader}
        return index_of(found, stored.loss if stored else {})

    @property
    def kinds(self) -> list[str]:
        """Kinds that have a file."""
        return [kind for name in self._tree.files(self.path) if (kind := kind_of(name)) is not None]

    def _open(self, kind: str) -> StreamReader | None:
        """Return a reader of the file of `kind`; None if there is no file that can be read, which is noted."""
        file = self._file(kind)
        codec = self._codecs(kind)
        held = self._held(kind)
        size_bytes = self._tree.size_bytes(file)
        lost_bytes, lost_rows = (held.bytes, held.rows) if held else (max(size_bytes, 0), None)
        if size_bytes < 0:
            if held:
                self._note(Damage(file, "missing", lost_bytes, lost_rows))
            return None
        if codec is None:
            self._note(Damage(file, "its kind is not in the manifest", lost_bytes, lost_rows))
            return None
        try:
            return StreamReader(self._tree.read(file), codec)
        except OSError as error:
            self._note(Damage(file, f"cannot be read: {error.strerror or error}", lost_bytes, lost_rows))
            return None

    def read(self, kind: str) -> Iterator[Records]:
        """Yield the batches of `kind`."""
        reader = self._open(kind)
        if reader is not None:
            yield from reader
            self._account(kind, reader)

    def scan(self, kind: str) -> StreamReader | None:
        """Read all of `kind` for what its reader then knows; None if there is no file that can be read."""
        reader = self._open(kind)
        if reader is not None:
            for _ in reader:
                pass
            self._account(kind, reader)
        return reader

    def _account(self, kind: str, reader: StreamReader) -> None:
        """Compare what was read with what the index says was written."""
        held = self._held(kind)
        lost_rows = max(held.rows - reader.rows, 0) if held else None
        short_bytes = max(held.bytes - len(reader.data), 0) if held else 0
        if reader.problem:
            what = reader.problem
        elif short_bytes:
            what = "the file ends early"
        elif held and held.crc32 != reader.index.crc32:
            what = "its checksum is not that of the index; values may be wrong"
        else:
            return
        self._note(Damage(self._file(kind), what, reader.lost_bytes + short_bytes, lost_rows))

    def _held(self, kind: str) -> KindIndex | None:
        return self.stored_index.kinds.get(kind) if self.stored_index else None

    def _file(self, kind: str) -> str:
        return f"{self.path}/{stream_name(kind)}"
