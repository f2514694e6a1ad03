# SPDX-License-Identifier: Apache-2.0
"""Events: decoded records, one frozen msgspec class a kind, and batches of them as columns.

An event class is the contract of its kind: what columns a batch of it has, what role it plays on a path, which entities
it names. Millions of events never become objects: plugins decode to a :class:`Batch`, and :meth:`Batch.events` makes the
objects for whoever wants to look at a few.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, TypeVar, get_args, get_type_hints

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fencepath.records import Records

__all__ = [
    "CATEGORY_OF_ROLE",
    "S32",
    "S64",
    "U8",
    "U16",
    "U32",
    "U64",
    "Batch",
    "Category",
    "Column",
    "Event",
    "Key",
    "KindInfo",
    "Role",
    "columns_of",
    "dtype_of",
    "kind_of",
    "schema_of",
]

Column = npt.NDArray[Any]
"""One field of a batch: as many rows as the batch has events."""


def _fixed(dtype: str) -> msgspec.Meta:
    return msgspec.Meta(extra={"dtype": dtype})


U8 = Annotated[int, _fixed("u1")]
"""Annotation of a field of an event: an unsigned integer of 8 bits."""
U16 = Annotated[int, _fixed("u2")]
"""Annotation of a field of an event: an unsigned integer of 16 bits."""
U32 = Annotated[int, _fixed("u4")]
"""Annotation of a field of an event: an unsigned integer of 32 bits."""
U64 = Annotated[int, _fixed("u8")]
"""Annotation of a field of an event: an unsigned integer of 64 bits."""
S32 = Annotated[int, _fixed("i4")]
"""Annotation of a field of an event: a signed integer of 32 bits."""
S64 = Annotated[int, _fixed("i8")]
"""Annotation of a field of an event: a signed integer of 64 bits."""


class Role(enum.StrEnum):
    """What an event of a kind is, whoever made it. Core's rules and the path walk know roles, never vendors."""

    CALL = "call"
    """A thread inside a user-space API."""
    SUBMIT = "submit"
    """A thread handing work to a driver."""
    QUEUE = "queue"
    """Work that waits to be run."""
    EXECUTE = "execute"
    """Work that runs on a device."""
    SIGNAL = "signal"
    """A completion that becomes known."""
    WAIT = "wait"
    """A thread that waits for a completion."""
    WAKE = "wake"
    """A thread made runnable. Needs the column ``wakee_tid``."""
    RUN_STATE = "run_state"
    """A change of the thread on a CPU. Needs ``prev_tid``, ``prev_state`` (0: still runnable), ``next_tid``."""
    TRANSFER = "transfer"
    """A thread that moves or sets memory of a device."""
    MEMORY = "memory"
    """A thread that allocates, frees or maps memory."""
    ERROR = "error"
    """Something went wrong."""
    MARK = "mark"
    """A statement by the program itself, such as the begin of a request."""
    LIFE = "life"
    """Creation or end of a process, thread, handle or context."""


class Category(enum.StrEnum):
    """What a segment of a path was spent on. Never folded into one another.

    The time of a kind has its role's category (:data:`CATEGORY_OF_ROLE`) unless its :class:`KindInfo` says another.
    """

    HOST_COMPUTE = "host_compute"
    """A thread ran code of its own."""
    API_CALL = "api_call"
    """A thread was in a call of a library."""
    LAUNCH_QUEUE = "launch_queue"
    """Work waited to be started."""
    DEVICE_EXECUTION = "device_execution"
    """A device ran work."""
    DEVICE_WAIT = "device_wait"
    """A thread waited for a device."""
    TRANSFER = "transfer"
    """Memory of a device was moved or set."""
    MEMORY = "memory"
    """Memory of a device was allocated, freed or mapped."""
    DRIVER = "driver"
    """A thread was in the kernel's driver."""
    DEPENDENCY = "dependency"
    """Work waited for other work."""
    FENCE_WAIT = "fence_wait"
    """A thread waited for a fence."""
    INTERRUPT = "interrupt"
    """An interrupt was served."""
    RUNQUEUE = "runqueue"
    """A thread could run and waited for a CPU."""
    BLOCKED = "blocked"
    """A thread slept; why was not recorded."""
    BLOCKED_LOCK = "blocked_lock"
    """A thread slept for a lock."""
    BLOCKED_IO = "blocked_io"
    """A thread slept for input or output."""
    BLOCKED_IPC = "blocked_ipc"
    """A thread slept for another process."""
    SLEEP = "sleep"
    """A thread slept on purpose."""
    PAGE_FAULT = "page_fault"
    """A page had to be brought in."""
    ADMISSION_QUEUE = "admission_queue"
    """A request waited to be admitted."""
    COLLECTIVE_WAIT = "collective_wait"
    """A device waited for other devices."""
    UNDECIDED = "undecided"
    """Bounded by what was recorded, and not to be told apart within that."""
    NOT_OBSERVED = "not_observed"
    """A layer that would tell was not recorded."""
    UNEXPLAINED = "unexplained"
    """Nothing recorded says what it was."""


CATEGORY_OF_ROLE: Mapping[Role, Category] = {
    Role.CALL: Category.API_CALL,
    Role.SUBMIT: Category.DRIVER,
    Role.QUEUE: Category.LAUNCH_QUEUE,
    Role.EXECUTE: Category.DEVICE_EXECUTION,
    Role.WAIT: Category.DEVICE_WAIT,
    Role.TRANSFER: Category.TRANSFER,
    Role.MEMORY: Category.MEMORY,
}
"""Category of the time of a kind that declares none. Roles that are absent are instants."""


class Key(msgspec.Struct, frozen=True):
    """A column that names an entity, filled with integer entity ids by an EntityTracker.

    Attributes:
        column: name of the column, which joins use in ``on``.
        entity: type of the entity, such as ``cuda.stream``.
    """

    column: str
    entity: str


class KindInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine must know of a kind.

    Attributes:
        role: see :class:`Role`. A kind of the role ``call`` or ``wait`` is a thread in a function; ``wait`` if the thread
            does nothing in it but wait, so that its blocked time may be shown as the wait's own category.
        category: category of its time; None means the role's own.
        keys: entities it names, besides the thread and the process of every event in task context.
        keep: the records are kept when old segments are dropped (creation and end of handles, names).
        derived: never recorded: a :class:`fencepath.joins.Derived` works the events out from others.
        version: raised when a column is added.
    """

    role: Role
    category: Category | None = None
    keys: tuple[Key, ...] = ()
    keep: bool = False
    derived: bool = False
    version: int = 1

    @property
    def time_category(self) -> Category | None:
        """Category of the time between ``begin_ns`` and ``time_ns``; None for kinds that are instants."""
        return self.category or CATEGORY_OF_ROLE.get(self.role)


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """Base of all events. Times are CLOCK_MONOTONIC in ns; ids are those of the initial pid namespace.

    A subclass gives its kind as ``tag``, repeats ``kw_only=True`` and sets :attr:`info`.

    Attributes:
        time_ns: when it completed.
        begin_ns: when it began; equal to ``time_ns`` for an instant.
        tgid: process; whoever was interrupted unless ``flags`` has TASK.
        tid: thread, likewise.
        cpu: CPU it was recorded on.
        flags: see :class:`fencepath.records.Flags`.
    """

    info: ClassVar[KindInfo]

    time_ns: U64
    begin_ns: U64
    tgid: U32
    tid: U32
    cpu: U16
    flags: U32


EventT = TypeVar("EventT", bound=Event)

HEAD_COLUMNS = ("time_ns", "begin_ns", "tgid", "tid", "cpu", "flags")


def kind_of(event_type: type[Event]) -> str:
    """Return the kind's name, such as ``cuda.launch``."""
    tag = event_type.__struct_config__.tag
    if not isinstance(tag, str):
        raise TypeError(f"{event_type.__name__} has no kind: give the class a tag, such as tag='cuda.launch'")
    return tag


def _dtype_of_annotation(annotation: Any) -> np.dtype[Any]:
    for part in get_args(annotation)[1:]:
        if isinstance(part, msgspec.Meta) and part.extra and "dtype" in part.extra:
            return np.dtype(str(part.extra["dtype"]))
    if annotation is bool:
        return np.dtype("?")
    if annotation is str:
        return np.dtype("O")
    raise TypeError(f"a field of an event must be a fixed-width integer (U64, S32, ...), bool or str, not {annotation}")


def columns_of(event_type: type[Event]) -> dict[str, np.dtype[Any]]:
    """Return the columns of a kind with their dtypes, head columns first.

    Raises:
        TypeError: a field is neither fixed-width integer, bool nor str.
    """
    hints = get_type_hints(event_type, include_extras=True)
    return {field: _dtype_of_annotation(hints[field]) for field in event_type.__struct_fields__}


def dtype_of(event_type: type[Event]) -> np.dtype[np.void]:
    """Return the packed structured dtype of a kind's events."""
    return np.dtype(list(columns_of(event_type).items()))


def schema_of(event_type: type[Event]) -> pa.Schema:
    """Return the Arrow schema of a kind's columns; text is utf8."""
    return pa.schema(
        [
            (name, pa.string() if dtype == np.dtype("O") else pa.from_numpy_dtype(dtype))
            for name, dtype in columns_of(event_type).items()
        ]
    )


class Batch:
    """Events of one kind as columns.

    Attributes:
        kind: the kind's name.
        columns: by name; the head columns are always there, columns with entity ids are added by EntityTrackers.
        labels: texts that the column ``label`` indexes (function names, say), for display.
    """

    __slots__ = ("columns", "kind", "labels")

    def __init__(self, kind: str, columns: Mapping[str, Column], labels: Sequence[str] = ()) -> None:
        missing = [name for name in HEAD_COLUMNS if name not in columns]
        if missing:
            raise ValueError(f"a batch of {kind} lacks the columns {', '.join(missing)}")
        self.kind = kind
        self.columns: dict[str, Column] = dict(columns)
        self.labels = tuple(labels)

    @classmethod
    def from_records(
        cls, kind: str, records: Records, columns: Mapping[str, Column] | None = None, labels: Sequence[str] = ()
    ) -> Batch:
        """Make a batch whose head comes from `records`; `columns` are added to it.

        Without `columns`, every further field of the record becomes a column of the same name.
        """
        names = records.dtype.names or ()
        head: dict[str, Column] = {
            name: np.ascontiguousarray(records[name]) for name in ("time_ns", "tgid", "tid", "cpu", "flags")
        }
        head["begin_ns"] = np.ascontiguousarray(records["begin_ns"]) if "begin_ns" in names else head["time_ns"]
        if columns is None:
            columns = {
                name: np.ascontiguousarray(records[name]) for name in names if name not in (*HEAD_COLUMNS, "kind")
            }
        return cls(kind, {**head, **columns}, labels)

    def __len__(self) -> int:
        return len(self.columns["time_ns"])

    def __getitem__(self, column: str) -> Column:
        return self.columns[column]

    def __contains__(self, column: str) -> bool:
        return column in self.columns

    def take(self, rows: Column) -> Batch:
        """Return the rows that an index array or a mask selects."""
        return Batch(self.kind, {name: column[rows] for name, column in self.columns.items()}, self.labels)

    def events(self, event_type: type[EventT]) -> Iterator[EventT]:
        """Yield the events as objects, for looking at; columns the batch lacks take the class' default."""
        fields = [name for name in event_type.__struct_fields__ if name in self.columns]
        plain = [self.columns[name].tolist() for name in fields]
        for row in zip(*plain, strict=True):
            yield event_type(**dict(zip(fields, row, strict=True)))


def concatenate(batches: Sequence[Batch]) -> Batch:
    """Join batches of one kind, oldest labels kept; a column that one of them lacks is filled with zeros."""
    first = batches[0]
    if len(batches) == 1:
        return first
    names = dict.fromkeys(name for batch in batches for name in batch.columns)
    columns: dict[str, Column] = {}
    for name in names:
        like = next(batch.columns[name] for batch in batches if name in batch.columns)
        columns[name] = np.concatenate([batch.columns.get(name, np.zeros(len(batch), like.dtype)) for batch in batches])
    return Batch(first.kind, columns, max((batch.labels for batch in batches), key=len))
