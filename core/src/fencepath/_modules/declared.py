# SPDX-License-Identifier: Apache-2.0
"""What a layer says of addresses of code in its call records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec

__all__ = ["CodeAddresses", "CodeUse", "HandedOut", "NamedFunction", "Registration"]

NamedFunction: TypeAlias = Callable[[Mapping[str, Any]], str | None]
"""Given a row of a call's columns as plain values (numbers, bytes), the table's function that it is about, None if none."""


class CodeAddresses(msgspec.Struct, frozen=True):
    """Columns with addresses of functions in the traced process, whose names shall be kept.

    Such as a kernel's host stub in a launch: its symbol is the kernel's name.

    Attributes:
        kind: of the calls.
        columns: arguments or values read at return, 64 bits wide, by the names of the call table.
    """

    kind: str
    columns: tuple[str, ...]


class Registration(msgspec.Struct, frozen=True):
    """A function by which programs make others known under a name, as CUDA's compiler has host stubs registered.

    Where a stub has no symbol, its name is read from the instructions of that call.

    Attributes:
        symbol: such as ``__cudaRegisterFunction``.
        address: argument with the function's address, from 0.
        name: argument with its name, a NUL-terminated string.
    """

    symbol: str
    address: int
    name: int


class HandedOut(msgspec.Struct, frozen=True):
    """Calls that hand out addresses of the table's functions (``cuGetProcAddress``), which may be no symbols.

    Attributes:
        kind: of the calls.
        address: column with the address; 0 means none.
        function: says which function of the table a call handed out, by its name or an alias. It is asked for each address in
            a library with probes that is none of them, in the recorder's thread, and must not raise.
    """

    kind: str
    address: str
    function: NamedFunction


class CodeUse(msgspec.Struct, frozen=True, kw_only=True):
    """What the records of a call table say of code.

    Attributes:
        addresses: columns whose functions shall be named.
        registrations: functions by which they are registered, for those without a symbol.
        handed_out: calls that hand out functions.
    """

    addresses: tuple[CodeAddresses, ...] = ()
    registrations: tuple[Registration, ...] = ()
    handed_out: tuple[HandedOut, ...] = ()
