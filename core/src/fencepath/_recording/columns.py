# SPDX-License-Identifier: Apache-2.0
"""Records as columns: structured arrays to Arrow record batches and back, zstd-compressed, one column per field.

The only module of the recording that knows pyarrow. Columns are the fields as C has them, never null: ``char[N]`` is
``fixed_size_binary[N]``, an array is a ``fixed_size_list``. Padding of the struct is not stored and reads as zero.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from fencepath.records import RecordLayout, Records

__all__ = ["END", "BatchCodec", "BrokenStreamError", "Message", "messages"]

# pyarrow ships no type information; it is used as Any in this module and nowhere else.
_pa: Any = importlib.import_module("pyarrow")
_ipc: Any = importlib.import_module("pyarrow.ipc")

END = b"\xff\xff\xff\xff\x00\x00\x00\x00"
"""End-of-stream marker of the Arrow IPC stream format."""

_ZSTD_LEVEL = 1  # higher levels save no bytes on such columns, the faster negative ones cost up to 80 % more

# Below this zstd saves nothing and costs four times the CPU, as it sets up a context for each column.
_PLAIN_BYTES = 1024

# What pyarrow raises on bytes that are not what they should be.
_DECODE_ERRORS: tuple[type[Exception], ...] = (
    _pa.ArrowException,
    OSError,
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    EOFError,
    MemoryError,
)


class BrokenStreamError(Exception):
    """Bytes that are not what an Arrow stream of this layout should hold.

    Attributes:
        offset: where the part begins that cannot be read.
    """

    def __init__(self, why: str, offset: int = 0) -> None:
        super().__init__(why)
        self.offset = offset


class Message(msgspec.Struct, frozen=True):
    """One message of a stream: its byte range in the file, whether it is the schema, and pyarrow's own object."""

    begin: int
    end: int
    is_schema: bool
    content: Any


class BatchCodec:
    """Turns records of one layout into messages of an Arrow stream and back.

    Attributes:
        layout: the layout.
        dtype: its structured dtype.
        head: the schema message, with which a stream begins.
    """

    def __init__(self, layout: RecordLayout) -> None:
        self.layout = layout
        self.dtype = layout.dtype
        metadata = {"fencepath.kind": layout.kind, "fencepath.fields": msgspec.json.encode(layout.fields)}
        self._schema = _pa.schema(
            [_pa.field(f.name, _arrow_type(self.dtype[f.name]), nullable=False) for f in layout.fields],
            metadata=metadata,
        )
        self.head: bytes = self._schema.serialize().to_pybytes()
        # One thread: compression must not spread over the CPUs of the process that is being recorded.
        codec = _pa.Codec("zstd", compression_level=_ZSTD_LEVEL)
        self._options = _ipc.IpcWriteOptions(compression=codec, use_threads=False)
        self._plain_options = _ipc.IpcWriteOptions(use_threads=False)

    def encode(self, records: Records) -> bytes:
        """Return `records` as one record batch message, to be appended to a stream that began with :attr:`head`."""
        arrays = [_to_arrow(self._schema.field(f.name).type, records[f.name]) for f in self.layout.fields]
        batch = _pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        options = self._options if records.nbytes > _PLAIN_BYTES else self._plain_options
        sink = _pa.BufferOutputStream()
        _ipc.new_stream(sink, self._schema, options=options).write_batch(batch)
        stream: memoryview = memoryview(sink.getvalue())
        return bytes(stream[len(self.head) :])

    def check_head(self, message: Message) -> None:
        """Raise BrokenStreamError unless `message` is the schema of this layout."""
        try:
            schema = _ipc.read_schema(message.content)
        except _DECODE_ERRORS as error:
            raise BrokenStreamError(f"the schema cannot be read: {error}", message.begin) from error
        if not schema.equals(self._schema, check_metadata=False):
            raise BrokenStreamError("the columns are not those of the manifest", message.begin)

    def decode(self, message: Message) -> Records:
        """Return the records in a record batch message.

        Raises:
            BrokenStreamError: if it holds none, or not those of this layout.
        """
        try:
            batch = _ipc.read_record_batch(message.content, self._schema)
            batch.validate()
            records: Records = np.zeros(batch.num_rows, dtype=self.dtype)
            for field in self.layout.fields:
                records[field.name] = _to_numpy(batch.column(field.name), self.dtype[field.name])
        except _DECODE_ERRORS as error:
            raise BrokenStreamError(f"a batch cannot be decoded: {error}", message.begin) from error
        return records


def messages(data: bytes) -> Iterator[Message]:
    """Yield the messages of the stream `data` up to its end.

    Raises:
        BrokenStreamError: after the last whole message, if what follows is neither a message nor :data:`END`. A stream
            that merely stops, without the marker, is not broken.
    """
    source = _pa.BufferReader(data)
    reader = _ipc.MessageReader.open_stream(source)
    begin = 0
    # Arrow takes a word of zeros for the end as well; a file system leaves zeros where a crash lost data.
    while begin < len(data) and data[begin : begin + len(END)] != END:
        try:
            content = reader.read_next_message()
        except StopIteration:
            raise BrokenStreamError("zeros follow the last whole batch", begin) from None
        except _DECODE_ERRORS as error:
            raise BrokenStreamError(f"the file ends within a batch or holds other bytes: {error}", begin) from error
        end: int = source.tell()
        yield Message(begin, end, content.type == "schema", content)
        begin = end
    if len(data) > begin + len(END):
        raise BrokenStreamError("bytes follow the end of the stream", begin + len(END))


def _arrow_type(dtype: np.dtype[Any]) -> Any:
    if dtype.kind == "S":
        return _pa.binary(dtype.itemsize)
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return _pa.list_(_pa.field("item", _arrow_type(base), nullable=False), shape[0])
    return _pa.from_numpy_dtype(dtype)


def _to_arrow(kind: Any, column: npt.NDArray[Any]) -> Any:
    """Return a strided field of a structured array as an Arrow array; this copy is the transposition into columns."""
    flat = np.ascontiguousarray(column)
    if flat.ndim == 1:
        return _pa.Array.from_buffers(kind, len(flat), [None, _pa.py_buffer(flat)])
    items = _pa.Array.from_buffers(kind.value_type, flat.size, [None, _pa.py_buffer(flat)])
    return _pa.Array.from_buffers(kind, len(flat), [None], children=[items])


def _to_numpy(array: Any, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    base, shape = dtype.subdtype or (dtype, (1,))
    if not len(array):
        return np.zeros(0, dtype=dtype)
    values = np.frombuffer(array.buffers()[-1], dtype=base, count=len(array) * shape[0])
    return values if dtype.subdtype is None else values.reshape(len(array), shape[0])
