# SPDX-License-Identifier: Apache-2.0
"""What CUPTI saw of a program, by cupti_log.c: its calls and what ran on the device. Nothing here comes from a tracer."""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = ["Activity", "Call", "Log", "build", "read_log"]

SOURCE = Path(__file__).with_name("cupti_log.c")
_VERSION = re.compile(r"_v\d{4,5}$")
"""What CUPTI adds to the names of runtime functions: the CUDA version they are of."""


class Call(NamedTuple):
    """A call, when it was entered; `time_ns` is CLOCK_MONOTONIC, `kernel` the mangled name of a launch's, else ""."""

    driver: bool
    tid: int
    time_ns: int
    correlation: int
    function: str
    kernel: str


class Activity(NamedTuple):
    """Something the device did: ``kernel``, ``memcpy`` or ``memset``. Times are CLOCK_MONOTONIC in ns, as CUPTI converts them."""

    kind: str
    correlation: int
    start_ns: int
    end_ns: int
    stream: int
    graph_node: int
    name: str


class Log(NamedTuple):
    """Everything of one process, calls in order of entry."""

    calls: list[Call]
    activities: list[Activity]

    def by_thread(self, functions: Collection[str]) -> dict[int, list[Call]]:
        """Calls of the given functions, by thread."""
        found: dict[int, list[Call]] = defaultdict(list)
        for call in self.calls:
            if call.function in functions:
                found[call.tid].append(call)
        return dict(found)


def build(folder: Path, cupti: Path) -> Path:
    """Compile the library that CUDA loads; `cupti` has include/ and lib/."""
    library = folder / "cupti_log.so"
    lib = next(path for path in (cupti / "lib", cupti / "lib64") if path.is_dir())
    (found,) = list(lib.glob("libcupti.so.1?"))[:1]
    flags = ["-shared", "-fPIC", "-O2", "-Wall", f"-I{cupti / 'include'}", f"-Wl,-rpath,{lib}"]
    done = subprocess.run(["cc", *flags, SOURCE, "-o", library, found], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return library


def read_log(path: Path) -> Log:
    """Read a log."""
    lines = [line.split(" ") for line in path.read_text().splitlines()]
    return Log(sorted(_calls(lines), key=lambda call: call.time_ns), list(_activities(lines)))


def _calls(lines: list[list[str]]) -> Iterator[Call]:
    for word, *rest in lines:
        if word == "C" and len(rest) == 6:
            domain, tid, time_ns, correlation, function, kernel = rest
            name = _VERSION.sub("", function)
            yield Call(domain == "D", int(tid), int(time_ns), int(correlation), name, "" if kernel == "-" else kernel)


def _activities(lines: list[list[str]]) -> Iterator[Activity]:
    for word, *rest in lines:
        if word == "A" and len(rest) == 7:
            kind, correlation, start, end, stream, node, name = rest
            yield Activity(kind, int(correlation), int(start), int(end), int(stream), int(node), name)
