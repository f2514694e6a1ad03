# SPDX-License-Identifier: Apache-2.0
"""Boots Debian's kernels in qemu, one for each CPU at a time, and runs the live suite in each: ``make test-kernel``, ``make test-nvidia``."""

from __future__ import annotations

import argparse
import compileall
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
from tests.kernel.kernels import KERNELS, SCRIPTS, Kernel, KernelError, cache_folder, unpack
from tests.kernel.results import JUNIT, Outcome, clear, complaint, last_test
from tests.kernel.selection import FILES, FILES_OF_THE_NEWEST, NVIDIA, NVIDIA_OF_THE_NEWEST, ONCE

from fencepath._demo import find_demo

__all__ = ["REQUESTS", "main"]

ROOT = Path(__file__).parents[2]
MOUNTED = Path("/mnt/out")
"""The result folder, as the guest sees it."""
TIME_IS_UP = 124
SHORTEST_S = 60
"""A kernel with less time than this is not booted."""
REQUESTS = 2
"""What the simulated server of test_end_to_end.py answers."""
_ONLY_OUR_PLUGINS: Mapping[str, str] = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
"""The guest would take 10 s to import those of others."""


class Runner:
    """Runs kernels.

    Args:
        cache: where unpacked kernels are.
        out: where results go, a folder for each kernel.
        tests: what pytest is told to run; none for what selection.py says.
        nvidia: whether what it says is the suite of the stand-in for NVIDIA's driver.
        every: whether nothing is left out.
    """

    def __init__(
        self, cache: Path, out: Path, tests: Sequence[str], *, nvidia: bool = False, every: bool = False
    ) -> None:
        self._nvidia = nvidia
        self._every = every or nvidia
        self._cache = cache
        self._out = out
        self._tests = tests
        self._demo = _build_demo(out / "demo")

    def run(self, kernel: Kernel, limit_s: float) -> Outcome:
        """Get, boot and test one kernel, in `limit_s` seconds at most."""
        outcome = Outcome(kernel)
        results = self._out / kernel.name
        clear(results)
        begin = time.monotonic()
        try:
            outcome.version = unpack(kernel, self._cache / kernel.name)
            ready_s = time.monotonic() - begin
            print(
                f"   {outcome.version} in {self._cache / kernel.name}, ready after {ready_s:.0f} s; booting", flush=True
            )
            outcome.trouble = self._boot(kernel, results, int(limit_s - ready_s))
        except KernelError as error:
            outcome.trouble = str(error)
        outcome.seconds = time.monotonic() - begin
        outcome.read(results)
        return outcome

    def _boot(self, kernel: Kernel, results: Path, limit_s: int) -> str:
        """Return why the tests did not all run, or ""."""
        if limit_s < SHORTEST_S:
            return "no time was left for it"
        folder = self._cache / kernel.name
        environ = {
            "FENCEPATH_REQUIRE_BPF": "1",
            "FENCEPATH_VM_ALL": str(int(self._every)),
            "FENCEPATH_VM_EVENTS": kernel.events,
            "FENCEPATH_VM_FUNCTIONS": kernel.functions,
            "FENCEPATH_VM_UPROBES": kernel.uprobes,
            "FENCEPATH_VM_MOCKGPU": str(folder / "mockgpu" / "mockgpu.ko"),
            "FENCEPATH_VM_NVIDIA": str(folder / "nvidia"),
            "FENCEPATH_VM_DEMO": str(self._demo),
            "FENCEPATH_VM_OUT": str(MOUNTED),
            "TMPDIR": "/run",  # a tmpfs, as /tmp is on many machines
            "PYTHONDONTWRITEBYTECODE": "",
            **_ONLY_OUR_PLUGINS,
        }
        tests = self._tests or (_nvidia_files_of(kernel) if self._nvidia else _files_of(kernel))
        words = [*_pytest(), "-q", "--timeout", "100", f"--junitxml={MOUNTED / JUNIT}", *tests]
        command = shlex.join(["env", *(f"{name}={value}" for name, value in environ.items()), *words])
        boot: list[str | Path] = [SCRIPTS / "boot.sh", folder, results, command]
        code = subprocess.run(boot, cwd=ROOT, env=os.environ | {"VM_TIMEOUT": str(limit_s)}, check=False).returncode
        if code in (0, 1):
            said = complaint(results)
            return f"the kernel complains: {said}" if said else ""
        if code == TIME_IS_UP:
            return f"not done after {limit_s} s; the last test that ended was {last_test(results)}"
        return f"exit code {code}; see output and console in {results}"


def _files_of(kernel: Kernel) -> Sequence[str]:
    if not kernel.required:
        return FILES_OF_THE_NEWEST
    return FILES if kernel is KERNELS[0] else [file for file in FILES if file not in ONCE]


def _nvidia_files_of(kernel: Kernel) -> Sequence[str]:
    return NVIDIA if kernel.required else NVIDIA_OF_THE_NEWEST


def _pytest() -> list[str]:
    plugins = ("fencepath.testing.pytest_plugin", "pytest_timeout", "tests.kernel.guest", "no:cacheprovider")
    return [sys.executable, "-m", "pytest", *(word for name in plugins for word in ("-p", name)), "-m", "bpf"]


def _build_demo(folder: Path) -> Path:
    """Compile the simulated CUDA server here: the guest would take 20 s. Returns the file that says how to start it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = folder / "command.json"
    command.write_bytes(msgspec.json.encode(find_demo().build(folder, REQUESTS)))
    return command


def _warm(tests: Sequence[str], *, every: bool) -> None:
    """Collect the tests here: a fault of the selection shows at once, and the guest finds everything compiled.

    Raises:
        SystemExit: if they cannot be collected.
    """
    for source in ("core/src", "plugins"):
        compileall.compile_dir(ROOT / source, quiet=2)
    asked = {"PYTHONDONTWRITEBYTECODE": "", "FENCEPATH_VM_UPROBES": "multi", "FENCEPATH_VM_ALL": str(int(every))}
    environ = {**os.environ, **_ONLY_OUR_PLUGINS, **asked}
    command = [*_pytest(), "--collect-only", "-q", *tests]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"the tests cannot be collected:\n{done.stdout}{done.stderr}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; return 1 if a required kernel failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.kernel.run", description=__doc__)
    names = [kernel.name for kernel in KERNELS]
    parser.add_argument("--kernel", action="append", choices=names, help="only this one; may be given again")
    parser.add_argument("--cache", type=Path, default=cache_folder(), help="where unpacked kernels are (%(default)s)")
    parser.add_argument("--out", type=Path, default=ROOT / ".build" / "test-kernel", help="results (%(default)s)")
    parser.add_argument("--timeout", type=int, default=570, help="seconds for a kernel's boot and tests (%(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="kernels at a time (%(default)s)")
    parser.add_argument("--total", type=int, default=600, help="seconds for all kernels (%(default)s)")
    parser.add_argument("--all", action="store_true", help="run what selection.py leaves out, too")
    parser.add_argument("--nvidia", action="store_true", help="run the suite of the stand-in for NVIDIA's driver")
    parser.add_argument("tests", nargs="*", help="what pytest runs instead of the selection")
    asked = parser.parse_args(arguments)
    end = time.monotonic() + asked.total
    _warm(asked.tests or (NVIDIA if asked.nvidia else FILES), every=asked.all or asked.nvidia)
    runner = Runner(asked.cache, asked.out, asked.tests, nvidia=asked.nvidia, every=asked.all)
    wanted = [kernel for kernel in KERNELS if not asked.kernel or kernel.name in asked.kernel]

    def run(kernel: Kernel) -> Outcome:
        need = "required" if kernel.required else "reported, not required"
        print(f"== kernel {kernel.name}: {kernel.package} of {kernel.suite} ({need})", flush=True)
        outcome = runner.run(kernel, min(asked.timeout, end - time.monotonic()))
        print(f"== kernel {kernel.name}", *(f"   {line}" for line in (*outcome.details, outcome)), sep="\n", flush=True)
        return outcome

    # a guest keeps one of its two CPUs busy nearly all the time, so there is one guest for each CPU here
    with ThreadPoolExecutor(asked.jobs) as pool:
        outcomes = list(pool.map(run, wanted))
    print("\n== kernels", *outcomes, sep="\n")
    return int(any(outcome.kernel.required and not outcome.passed for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
