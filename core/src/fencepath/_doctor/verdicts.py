# SPDX-License-Identifier: Apache-2.0
"""Short ways to make checks, and the rules' type."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from fencepath._doctor.state import MachineState
from fencepath.plugin import Check

__all__ = ["Rule", "degrade", "fine", "refuse", "warn"]

Rule: TypeAlias = Callable[[MachineState], Iterator[Check]]
"""Judges a state. Looks at nothing else."""


def fine(name: str, evidence: str) -> Check:
    """Nothing is lost."""
    return Check(name=name, verdict="ok", evidence=evidence)


def warn(name: str, evidence: str, cost: str, remedy: str = "") -> Check:
    """Something may be lost, or costs more, and nothing is left out for it."""
    return Check(name=name, verdict="warn", evidence=evidence, cost=cost, remedy=remedy)


def degrade(name: str, evidence: str, cost: str, remedy: str = "") -> Check:
    """Recording goes on with less."""
    return Check(name=name, verdict="degrade", evidence=evidence, cost=cost, remedy=remedy)


def refuse(name: str, evidence: str, cost: str, remedy: str = "") -> Check:
    """Nothing can be recorded, or nothing with uprobes."""
    return Check(name=name, verdict="refuse", evidence=evidence, cost=cost, remedy=remedy)
