# SPDX-License-Identifier: Apache-2.0
"""What ``record`` does with the checks: refuses before anything is attached, leaves out what would harm, and keeps the rest."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from fencepath._doctor.judge import judge, look
from fencepath._doctor.probes import RETURNS, STACKS
from fencepath._doctor.state import MachineState
from fencepath.errors import MachineError
from fencepath.plugin import Check

__all__ = ["Gate", "check_uprobes", "gate_of", "open_gate"]

_FIRST = ("architecture", "privileges", "namespaces", "lockdown", "tracefs")
"""What is said first: the rest may only follow from it."""
_OF_UPROBES = ("uprobes", STACKS)
_OF_RETURNS = (RETURNS, "shadow stack of ")


class Gate(msgspec.Struct, frozen=True):
    """What may be recorded here, and how.

    Attributes:
        checks: all that are not ok, for the manifest.
        returns: whether return probes do no harm.
    """

    checks: tuple[Check, ...]
    returns: bool


def check_uprobes(checks: Iterable[Check]) -> None:
    """Do nothing if uprobes can be attached here and do no harm, by what the gate said.

    Raises:
        MachineError: they cannot, or do.
    """
    for check in checks:
        if check.verdict == "refuse" and check.name in _OF_UPROBES:
            raise MachineError(check.evidence, check.remedy)


def open_gate(pid: int | None = None) -> Gate:
    """Look at this machine, and at a process that is to be recorded.

    Raises:
        MachineError: nothing can be recorded here.
        UsageError: `pid` is no running process.
    """
    return gate_of(look(pid))


def gate_of(state: MachineState) -> Gate:
    """What may be recorded on a machine.

    Raises:
        MachineError: nothing.
    """
    checks = [check for check in judge(state) if check.verdict != "ok"]
    refused = [check for check in checks if check.verdict == "refuse" and check.name not in _OF_UPROBES]
    if refused:
        worst = min(refused, key=lambda check: _FIRST.index(check.name) if check.name in _FIRST else len(_FIRST))
        raise MachineError(worst.evidence, worst.remedy)
    harmful = [check for check in checks if check.verdict == "degrade" and check.name.startswith(_OF_RETURNS)]
    return Gate(tuple(checks), not harmful)
