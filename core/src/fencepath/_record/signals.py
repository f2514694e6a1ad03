# SPDX-License-Identifier: Apache-2.0
"""Signals that are sent to this process while it records, taken when they are asked for instead of interrupting it."""

from __future__ import annotations

import signal
from collections.abc import Collection
from types import TracebackType
from typing import Self

import msgspec

__all__ = ["ENDING", "PASSED_ON", "Signals", "Taken"]

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What ends the recording of a process."""

PASSED_ON = (*ENDING, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
"""What is handed on to a command that is recorded."""

# siginfo(7), SI_KERNEL
_FROM_KERNEL = 0x80


class Taken(msgspec.Struct, frozen=True):
    """A signal that came.

    Attributes:
        number: of the signal.
        sender: process that sent it; 0 if it came from the kernel, which sends a terminal's ctrl-C and hang-up to all
            processes of the group in the foreground.
    """

    number: int
    sender: int


class Signals:
    """Blocks signals and gives them out one by one; those that were ignored already stay ignored.

    A handler would run at any point, also between a system call and the line that notes what it gave. Threads that are
    started inside have the signals blocked too, so libraries that start some must be imported inside.

    Attributes:
        outer: signals that were blocked before.
    """

    def __init__(self, numbers: Collection[signal.Signals]) -> None:
        self._numbers = [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]
        self.outer: set[int] = set()

    def __enter__(self) -> Self:
        self.outer = {int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, self._numbers)}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        while self.take() is not None:
            pass  # it asks to end what has ended
        signal.pthread_sigmask(signal.SIG_SETMASK, self.outer)

    def take(self, timeout_s: float = 0.0) -> Taken | None:
        """Return the next signal; None if none comes within `timeout_s` seconds."""
        info = signal.sigtimedwait(self._numbers, timeout_s)
        if info is None:
            return None
        return Taken(info.si_signo, 0 if info.si_code == _FROM_KERNEL else info.si_pid)
