# SPDX-License-Identifier: Apache-2.0
"""Exit codes, and which error means which."""

from __future__ import annotations

import enum

from fencepath.errors import (
    FencepathError,
    MachineError,
    NewerFormatError,
    NotARecordingError,
    RecordingDamagedError,
    UsageError,
)

__all__ = ["Exit", "exit_of"]


class Exit(enum.IntEnum):
    """What fencepath ends with. With a COMMAND, the command's own code is passed on instead."""

    DONE = 0
    NO = 1
    """The answer is no: no such request, a check failed, loss with ``--strict``."""
    USAGE = 2
    """Wrong use, or the path is no recording."""
    MACHINE = 3
    """This machine, or this fencepath, lacks something."""
    DAMAGED = 4
    """The recording is damaged and what was asked for cannot be read."""
    FAULT = 70
    """A fault of fencepath itself, as EX_SOFTWARE of sysexits(3)."""
    INTERRUPTED = 130


_CODES: tuple[tuple[type[FencepathError], Exit], ...] = (
    (UsageError, Exit.USAGE),
    (NotARecordingError, Exit.USAGE),
    (NewerFormatError, Exit.MACHINE),
    (MachineError, Exit.MACHINE),
    (RecordingDamagedError, Exit.DAMAGED),
)


def exit_of(error: FencepathError) -> Exit:
    """Return the exit code of an error."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), Exit.NO)
