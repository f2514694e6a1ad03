# SPDX-License-Identifier: Apache-2.0
"""Boots Debian's kernels in qemu, one after another, and runs the live suite in each: ``make test-kernel``."""

from __future__ import annotations

import argparse
import compileall
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree as ET

import msgspec
from tests.kernel.selection import FILES

from fencepath._demo import find_demo

__all__ = ["KERNELS", "Kernel", "main"]

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
MOUNTED = "/mnt/out"
"""The result folder, as the guest sees it."""
TIME_IS_UP = 124
SHORTEST_S = 60
"""A kernel with less time than this is not booted."""
REQUESTS = 2
"""What the simulated server answers."""


class Kernel(msgspec.Struct, frozen=True):
    """A kernel to test on.

    Attributes:
        name: what it is called here.
        suite: of Debian's archive.
        package: of the image.
        required: whether the run fails if this one does.
        events: names that its GPU scheduler's events must turn out to have.
        uprobes: how uprobes must turn out to be attached.
    """

    name: str
    suite: str
    package: str
    required: bool
    events: Literal["old", "new"]
    uprobes: Literal["perf", "multi"]


KERNELS = (
    Kernel("6.1", "bookworm-security", "linux-image-amd64", True, "old", "perf"),
    Kernel("6.12", "bookworm-security", "linux-image-6.12-amd64", True, "old", "multi"),
    Kernel("newest", "trixie-backports", "linux-image-amd64", False, "new", "multi"),
)


class KernelError(Exception):
    """A kernel could not be got or booted; the message says why."""


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
        """Whether tests ran and none failed."""
        return not self.trouble and not self.counts.get("failed") and bool(self.counts.get("passed"))

    def __str__(self) -> str:
        tests = ", ".join(f"{count} {outcome}" for outcome, count in self.counts.items())
        verdict = "ok" if self.passed else "FAILED" if self.kernel.required else "failed (not required)"
        words = [tests, f"{self.seconds:.0f} s", self.trouble]
        return f"{self.kernel.name:8}{self.version or '?':28}{verdict}: " + ", ".join(word for word in words if word)


def unpack(kernel: Kernel, folder: Path) -> str:
    """Get the kernel's packages unless they are unpacked already, build the mock driver; return the version.

    Raises:
        KernelError: with the last line that a tool said.
    """
    if not (folder / "kver").exists():
        _tool("fetch-kernel.sh", kernel.suite, str(folder), kernel.package)
    _tool("build-module.sh", str(folder))
    return (folder / "kver").read_text().strip()


def _tool(name: str, *arguments: str) -> None:
    done = subprocess.run([HERE / "vm" / name, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr + done.stdout).strip().splitlines()
        raise KernelError(f"{name}: {said[-1] if said else f'exit code {done.returncode}'}")


def guest_command(kernel: Kernel, folder: Path, demo: Path, tests: Sequence[str]) -> str:
    """Return the shell command that runs the tests in the guest."""
    environ = {
        "FENCEPATH_REQUIRE_BPF": "1",
        "FENCEPATH_VM_EVENTS": kernel.events,
        "FENCEPATH_VM_UPROBES": kernel.uprobes,
        "FENCEPATH_VM_MOCKGPU": str(folder / "mockgpu" / "mockgpu.ko"),
        "FENCEPATH_VM_DEMO": str(demo),
        "FENCEPATH_VM_OUT": MOUNTED,
        "TMPDIR": "/run",  # a tmpfs, as /tmp is on many machines
    }
    words = [sys.executable, "-m", "pytest", "-p", "tests.kernel.guest", "-p", "no:cacheprovider", "-m", "bpf"]
    words += ["-q", "--timeout", "100", f"--junitxml={MOUNTED}/junit.xml", *tests]
    return shlex.join(["env", *(f"{name}={value}" for name, value in environ.items()), *words])


def build_demo(folder: Path) -> Path:
    """Compile the simulated CUDA server here, which an emulated machine takes 20 s for; return the file that says how to start it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = folder / "command.json"
    command.write_bytes(msgspec.json.encode(find_demo().build(folder, REQUESTS)))
    return command


def run(kernel: Kernel, cache: Path, out: Path, limit_s: float, tests: Sequence[str]) -> Outcome:
    """Get, boot and test one kernel."""
    outcome = Outcome(kernel)
    folder, results = cache / kernel.name, out / kernel.name
    results.mkdir(parents=True, exist_ok=True)
    for old in ("junit.xml", "times"):
        (results / old).unlink(missing_ok=True)
    begin = time.monotonic()
    try:
        outcome.version = unpack(kernel, folder)
        print(f"   {outcome.version} in {folder}, ready after {time.monotonic() - begin:.0f} s; booting", flush=True)
        timeout_s = int(limit_s - (time.monotonic() - begin))
        if timeout_s < SHORTEST_S:
            raise KernelError("no time was left for it")
        begin = time.monotonic()
        boot: list[str | Path] = [
            HERE / "vm" / "boot.sh",
            folder,
            results,
            guest_command(kernel, folder, build_demo(out / "demo"), tests),
        ]
        code = subprocess.run(boot, cwd=ROOT, env=os.environ | {"VM_TIMEOUT": str(timeout_s)}, check=False).returncode
        outcome.trouble = _trouble(code, results, timeout_s)
    except KernelError as error:
        outcome.trouble = str(error)
    outcome.seconds = time.monotonic() - begin
    _read_results(results, outcome)
    return outcome


def _trouble(code: int, results: Path, timeout_s: int) -> str:
    if code in (0, 1):
        return ""
    if code == TIME_IS_UP:
        ended = (results / "times").read_text().splitlines() if (results / "times").exists() else []
        return f"not done after {timeout_s} s; last was {ended[-1].split()[-1] if ended else 'nothing'}"
    return f"exit code {code}; see {results}/output and console"


def _read_results(results: Path, outcome: Outcome) -> None:
    """Read the counts from the junit file, or from the notes made test by test if the guest did not come to write one."""
    junit = results / "junit.xml"
    if junit.exists():
        for case in ET.parse(junit).getroot().iter("testcase"):
            _count_case(case, outcome)
    elif (results / "times").exists():
        for line in (results / "times").read_text().splitlines():
            _, kind, test = line.split(maxsplit=2)
            outcome.counts[kind] = outcome.counts.get(kind, 0) + 1
            if kind == "failed":
                outcome.details.append(f"failed: {test}")


def _count_case(case: ET.Element, outcome: Outcome) -> None:
    found = next((child for child in case if child.tag in ("failure", "error", "skipped")), None)
    kind = "passed" if found is None else "skipped" if found.tag == "skipped" else "failed"
    outcome.counts[kind] = outcome.counts.get(kind, 0) + 1
    if found is not None:
        why = (found.get("message") or "").strip().splitlines() or [""]
        outcome.details.append(f"{kind}: {case.get('classname')}::{case.get('name')}: {why[0][:160]}")


def cache_folder() -> Path:
    """Return where unpacked kernels are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "fencepath" / "kernels"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; return 1 if a required kernel failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.kernel.run", description=__doc__)
    names = [kernel.name for kernel in KERNELS]
    parser.add_argument("--kernel", action="append", choices=names, help="only this one; may be given again")
    parser.add_argument("--cache", type=Path, default=cache_folder(), help="where unpacked kernels are (%(default)s)")
    parser.add_argument("--out", type=Path, default=ROOT / ".build" / "test-kernel", help="results (%(default)s)")
    parser.add_argument("--timeout", type=int, default=280, help="seconds for a kernel's boot and tests (%(default)s)")
    parser.add_argument("--total", type=int, default=600, help="seconds for all kernels (%(default)s)")
    parser.add_argument("tests", nargs="*", help="pytest's arguments (after --) instead of the selection")
    asked = parser.parse_args(arguments)
    for source in ("core/src", "plugins", "tests"):
        compileall.compile_dir(ROOT / source, quiet=2)  # the guest would take seconds for it, every time
    outcomes: list[Outcome] = []
    end = time.monotonic() + asked.total
    for kernel in KERNELS:
        if asked.kernel and kernel.name not in asked.kernel:
            continue
        need = "required" if kernel.required else "reported, not required"
        print(f"== kernel {kernel.name}: {kernel.package} of {kernel.suite} ({need})", flush=True)
        outcome = run(kernel, asked.cache, asked.out, min(asked.timeout, end - time.monotonic()), asked.tests or FILES)
        for line in outcome.details:
            print(f"   {line}")
        print(f"   {outcome}", flush=True)
        outcomes.append(outcome)
    print("\n== kernels")
    for outcome in outcomes:
        print(outcome)
    return int(any(outcome.kernel.required and not outcome.passed for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
