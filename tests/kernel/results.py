# SPDX-License-Identifier: Apache-2.0
"""What came out of the tests in one guest."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
from tests.kernel.guest import TIMES_FILE
from tests.kernel.kernels import Kernel

__all__ = ["JUNIT", "Outcome", "clear", "complaint", "last_test"]

JUNIT = "junit.xml"
_TEXT = 160
_COMPLAINTS = ("WARNING:", "BUG:", "Oops", "general protection fault")


class Outcome(msgspec.Struct):
    """What came out of one kernel.

    Attributes:
        kernel: which.
        version: as `uname -r` says.
        counts: tests by outcome: passed, failed, skipped.
        details: lines on failures and skips.
        seconds: boot and tests.
        trouble: why there is no full result, or "".
    """

    kernel: Kernel
    version: str = ""
    counts: dict[str, int] = {}
    details: list[str] = []
    seconds: float = 0.0
    trouble: str = ""

    @property
    def passed(self) -> bool:
        """Whether tests ran, all of them, and none failed."""
        return not self.trouble and not self.counts.get("failed") and bool(self.counts.get("passed"))

    def __str__(self) -> str:
        tests = ", ".join(f"{count} {outcome}" for outcome, count in self.counts.items())
        verdict = "ok" if self.passed else "FAILED" if self.kernel.required else "failed (not required)"
        words = [tests, f"{self.seconds:.0f} s", self.trouble]
        return f"{self.kernel.name:8}{self.version or '?':28}{verdict}: " + ", ".join(word for word in words if word)

    def read(self, folder: Path) -> None:
        """Read the counts from the junit file, or from the notes made test by test if pytest did not come to write one."""
        if (folder / JUNIT).exists():
            for case in ET.parse(folder / JUNIT).getroot().iter("testcase"):
                self._count(case)
            return
        for line in _notes(folder):
            _, kind, test = line.split(maxsplit=2)
            self.counts[kind] = self.counts.get(kind, 0) + 1
            if kind == "failed":
                self.details.append(f"failed: {test}")

    def _count(self, case: ET.Element) -> None:
        found = next((child for child in case if child.tag in ("failure", "error", "skipped")), None)
        kind = "passed" if found is None else "skipped" if found.tag == "skipped" else "failed"
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if found is not None:
            why = (found.get("message") or "").strip().splitlines() or [""]
            self.details.append(f"{kind}: {case.get('classname')}::{case.get('name')}: {why[0][:_TEXT]}")


def clear(folder: Path) -> None:
    """Make the folder and take out what an earlier run left."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in (JUNIT, TIMES_FILE, "dmesg"):
        (folder / name).unlink(missing_ok=True)


def complaint(folder: Path) -> str:
    """Return what the kernel complained of while the tests ran, "" if of nothing."""
    lines = (folder / "dmesg").read_text(errors="replace").splitlines()
    return next((line for line in lines if any(word in line for word in _COMPLAINTS)), "")


def last_test(folder: Path) -> str:
    """Name the last test that ended."""
    notes = _notes(folder)
    return notes[-1].split(maxsplit=2)[-1] if notes else "none"


def _notes(folder: Path) -> list[str]:
    path = folder / TIMES_FILE
    return path.read_text().splitlines() if path.exists() else []
