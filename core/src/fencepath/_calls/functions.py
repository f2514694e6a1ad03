# SPDX-License-Identifier: Apache-2.0
"""What a plugin says about a function of a user-space API. Pure data; nothing is looked up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, TypeAlias

import msgspec

__all__ = ["DETAILS", "TEXT_BYTES", "Arg", "Detail", "Function", "Out", "Read", "Text"]

Detail: TypeAlias = Literal["sync", "launch", "full"]

DETAILS: tuple[Detail, ...] = ("sync", "launch", "full")
"""Each level has the functions of those before it."""

TEXT_BYTES = 384
"""Most bytes of a text in a call record, the NUL at its end included."""

INTEGER_BITS = {f"{sign}{bits}": bits for sign in "us" for bits in (8, 16, 32, 64)}


class Arg(msgspec.Struct, frozen=True):
    """A value that a call record holds when the function is entered.

    Attributes:
        name: column of the decoded batch. Functions of one kind share columns by name.
        slot: machine word of the call that has the value, from 0. On x86-64 0 to 5 are rdi, rsi, rdx, rcx, r8, r9 and
            6 is the first word on the stack; on arm64 0 to 7 are x0 to x7 and 8 is the first on the stack. A struct by
            value has one slot for each eight bytes, where the calling convention puts them. A slot that a :class:`Read`
            fills is named in the same way. Floating-point arguments travel in other registers and have no slot.
        type: ``u8 u16 u32 u64 s8 s16 s32 s64``; what lies above its width in a register is not looked at.
        shift: lowest bit of the value in the word.
        bits: width of the value if it is less than the type's, as in a bit field.
    """

    name: str
    slot: int
    type: str = "u64"
    shift: int = 0
    bits: int = 64

    @property
    def width(self) -> int:
        """Bits that are taken from the word."""
        return min(self.bits, INTEGER_BITS[self.type])


class Read(msgspec.Struct, frozen=True):
    """Words of user memory, copied at entry through a pointer argument, such as a struct passed by address.

    Attributes:
        slot: machine word that has the pointer.
        offset: bytes from where it points to the first word.
        words: 8-byte words to copy.
        into: slot of the first of them. Named, not counted from the function's last argument, so that an argument
            declared later does not move them. What these slots held of the call's own words is not recorded.
        count: of an array, slot of the machine word (size_t) that says how many words it has. No more are read than
            that, and a value beyond is absent. -1: there are always as many as `words`.
    """

    slot: int
    offset: int
    words: int
    into: int
    count: int = -1

    @property
    def slots(self) -> range:
        """Slots that it fills."""
        return range(self.into, self.into + self.words)


class Out(msgspec.Struct, frozen=True):
    """A value that the function writes through a pointer argument, read when it returns, such as a new stream's handle.

    Attributes:
        name: column of the decoded batch.
        slot: machine word that has the pointer.
        offset: bytes from where it points.
        bytes: width, 1, 2, 4 or 8.
    """

    name: str
    slot: int
    offset: int = 0
    bytes: int = 8

    @property
    def type(self) -> str:
        """Type of the column: unsigned, as wide as what is read."""
        return f"u{8 * self.bytes}"


class Text(msgspec.Struct, frozen=True):
    """A text that ends in NUL, read through a pointer argument, such as a kernel's name. One a function.

    It is copied when the function returns: by then the function has read it itself, so that its page is there, and
    programs cannot bring in one that is not. Only where the entry alone is recorded is it copied at entry. A call that
    has not returned has no text.

    Attributes:
        name: column of the decoded batch, of bytes. Any bytes but NUL are kept.
        slot: machine word that has the pointer.
        bytes: room for it, the NUL included. A longer text is cut, and its record flagged TRUNCATED. A read that meets
            unmapped memory before the NUL is a READ_FAULT and gives no text.
    """

    name: str
    slot: int
    bytes: int = TEXT_BYTES

    @property
    def type(self) -> str:
        """Type of the column, as that of a record's field."""
        return f"char[{self.bytes}]"


class Function(msgspec.Struct, frozen=True):
    """A function to probe and what of it is recorded.

    Attributes:
        name: symbol. It is also the function's name in every recording, so it is never changed.
        kind: event kind of its records, such as ``cuda.launch``.
        args: what is recorded at entry.
        reads: memory copied at entry, whose words `args` name by slot.
        out: what is recorded at return.
        result: type of what it returns, "" for nothing. GPU APIs return status codes of 32 bits; what is above them in
            the register means nothing.
        aliases: further symbols with the same meaning and arguments (``cuMemAlloc_v2``).
        group: heading in docs, such as ``memory``.
        detail: least detail at which it is on.
        api: which of the layer's APIs it belongs to, such as ``driver`` or ``runtime``.
        hot: called so often that `--entry-only` leaves its return out.
        no_unwind: no exception leaves through it. Without this it gets no return probe: an exception that passes one
            ends the program.
        constants: columns with one value for all its calls (``per_thread=1`` for a ``_ptsz`` symbol).
        text: a text that it is given. Records of its kind are of 512 bytes then.
    """

    name: str
    kind: str
    args: tuple[Arg, ...] = ()
    reads: tuple[Read, ...] = ()
    out: tuple[Out, ...] = ()
    result: str = "s32"
    aliases: tuple[str, ...] = ()
    group: str = ""
    detail: Detail = "full"
    api: str = ""
    hot: bool = False
    no_unwind: bool = True
    constants: Mapping[str, int] = {}
    text: Text | None = None

    @property
    def symbols(self) -> tuple[str, ...]:
        """Every symbol that is this function, its name first."""
        return (self.name, *self.aliases)

    @property
    def entry_only(self) -> bool:
        """Whether only its entry is recorded with `--entry-only`: it is hot, or an exception could leave through it."""
        return self.hot or not self.no_unwind

    @property
    def words(self) -> int:
        """Machine words to record: all up to the last that an argument or a pointer names."""
        named = {arg.slot for arg in self.args} | self.pointers | {read.count for read in self.reads}
        return max(named - self.filled, default=-1) + 1

    @property
    def pointers(self) -> frozenset[int]:
        """Slots through which memory is read, at entry or at return."""
        texts = (self.text,) if self.text else ()
        return frozenset(pointed.slot for pointed in (*self.reads, *self.out, *texts))

    @property
    def filled(self) -> frozenset[int]:
        """Slots that :attr:`reads` fill."""
        return frozenset(slot for read in self.reads for slot in read.slots)

    @property
    def columns(self) -> Iterator[tuple[str, str]]:
        """Name and type of every column the function fills; a constant's type is "" as it takes that of its equals."""
        if self.result:
            yield "result", self.result
        yield from ((arg.name, arg.type) for arg in self.args)
        yield from ((out.name, out.type) for out in self.out)
        if self.text:
            yield self.text.name, self.text.type
        yield from ((name, "") for name in self.constants)

    def variant(self, suffix: str, **constants: int) -> Function:
        """Return the function that is the same but for a suffix of all its symbols and further constants.

        ``memcpy.variant("_ptsz", per_thread=1)`` is a function of its own, as its calls mean something else.
        """
        return msgspec.structs.replace(
            self,
            name=self.name + suffix,
            aliases=tuple(alias + suffix for alias in self.aliases),
            constants={**self.constants, **constants},
        )
