# SPDX-License-Identifier: Apache-2.0
"""How fast rings are drained, and whether every record arrives intact.

    python benchmarks/rings.py                     drain rate against BCC's consumer with empty callbacks
    python benchmarks/rings.py --stress 20000000   processes write records with a checksum while this one reads

All consumers read the same ring, filled by the same program, in turns. Rates are records per second of the reading
thread's CPU time; a ratio is taken round by round. Needs root.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from fencepath._bpf.attach import attach_tracepoint
from fencepath._bpf.bcc import import_bcc
from fencepath._bpf.compiler import BpfObject
from fencepath._bpf.losses import Stage
from fencepath._bpf.rings import Rings
from fencepath._bpf.shared import Shared
from fencepath._bpf.sys import ProgramType
from fencepath.records import HEADER, Field, RecordLayout, Records

OPTION = 0x46504252
KIND = "bench.record"
LAYOUT = RecordLayout(KIND, (*HEADER, Field("argument", "u64"), Field("checksum", "u64")))
CLASS_BYTES = 64
RECORDS_A_CALL = 500
PRODUCER = """
import ctypes, sys
prctl = ctypes.CDLL(None).prctl
arguments = [ctypes.c_long(0) for _ in range(3)]
print("ready", flush=True)
sys.stdin.readline()
for number in range(int(sys.argv[1])):
    prctl(%d, ctypes.c_long(number), *arguments)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stress", type=int, metavar="RECORDS", help="check this many records instead")
    parser.add_argument("--producers", type=int, default=4, help="processes that write (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=21, help="rounds of each consumer (default: %(default)s)")
    parser.add_argument("--records", type=int, default=100_000, help="records a round (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args()
    rings = Rings(classes=(CLASS_BYTES,), total_bytes=16 << 20)
    with Shared({KIND: 1}, rings=rings, all_processes=True) as shared:
        result = stress(shared, given.stress, given.producers) if given.stress else drain(shared, given)
    result["machine"] = f"{platform.machine()}, kernel {platform.release()}, {os.cpu_count()} CPUs"
    print(json.dumps(result) if given.json else "\n".join(f"{name}: {value}" for name, value in result.items()))


def drain(shared: Shared, given: argparse.Namespace) -> dict[str, Any]:
    """Fill the ring and empty it, by each consumer in turn."""
    records = given.records // RECORDS_A_CALL * RECORDS_A_CALL
    fd = shared.rings.defines()[f"FP_RING_{CLASS_BYTES}_FD"]
    consumers: dict[str, Callable[[], object]] = {
        "fencepath": shared.rings.drain,
        "bcc, callback returns 0": BccConsumer(fd, returns_zero).consume,
        "bcc, callback returns nothing": BccConsumer(fd, returns_nothing).consume,
    }
    rates: dict[str, list[float]] = {name: [] for name in consumers}
    source = Path(__file__).with_name("rings.c")
    defines = {**shared.defines(), "FP_SELF_TGID": 0}
    with BpfObject(source, defines=defines) as programs:
        link = attach_tracepoint(programs.load("many", ProgramType.TRACEPOINT), "syscalls", "sys_enter_prctl")
        for turn in range(given.rounds + 1):
            for name in rotated(list(consumers), turn):
                took = time_one(shared, consumers[name], records)
                if turn:
                    rates[name].append(records / took)
        link.close()
    ours, *others = rates
    result: dict[str, Any] = {f"{name}, records/s": spread_of(values, "{:,.0f}") for name, values in rates.items()}
    for other in others:
        ratios = [mine / theirs for mine, theirs in zip(rates[ours], rates[other], strict=True)]
        result[f"ratio to {other}"] = spread_of(ratios, "{:.1f}")
    return {**result, "records a round": records, "rounds": given.rounds}


def rotated(names: list[str], turn: int) -> list[str]:
    start = turn % len(names)
    return names[start:] + names[:start]


def time_one(shared: Shared, consume: Callable[[], object], records: int) -> float:
    """Fill the ring and return the CPU seconds in which `consume` empties it."""
    for _ in range(records // RECORDS_A_CALL):
        ctypes.CDLL(None).prctl(OPTION, 0, 0, 0, 0)
    waiting = shared.rings.pending_bytes()[CLASS_BYTES]
    begin = time.thread_time()
    consume()
    took = time.thread_time() - begin
    if waiting != records * (CLASS_BYTES + 8) or shared.rings.pending_bytes()[CLASS_BYTES]:
        sys.exit(f"the ring held {waiting} bytes, and still some after it had been read")
    return took


def spread_of(values: list[float], form: str) -> str:
    low, middle, high = (form.format(value) for value in (min(values), statistics.median(values), max(values)))
    return f"{middle} (least {low}, most {high})"


def returns_zero(_context: int, _data: int, _size: int) -> int:
    return 0


def returns_nothing(_context: int, _data: int, _size: int) -> None:
    return None


class BccConsumer:
    """BCC's own consumer of a ring, through its Python layer, which calls `callback` for each record."""

    def __init__(self, fd: int, callback: Callable[[int, int, int], object]) -> None:
        bcc = import_bcc()
        # What open_ring_buffer touches of a BPF object and its table; the ring itself is ours.
        self._bpf = SimpleNamespace(_ringbuf_manager=None)
        opened = getattr(bcc.BPF, "_open_ring_buffer")  # noqa: B009 - private, and there is no other way to its consumer
        self._bpf._open_ring_buffer = functools.partial(opened, self._bpf)  # noqa: SLF001 - as above
        self._table = SimpleNamespace(bpf=self._bpf, map_fd=fd, _ringbuf=None, _cbs={})
        self._class = bcc.BPF
        bcc.table.RingBuf.open_ring_buffer(self._table, callback)

    def consume(self) -> None:
        self._class.ring_buffer_consume(self._bpf)


def stress(shared: Shared, records: int, producers: int) -> dict[str, Any]:
    """Let processes write numbered records with a checksum, and check every one."""
    each = records // producers
    command = [sys.executable, "-c", PRODUCER % OPTION, str(each)]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(producers)]
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    check = Check()
    with BpfObject(Path(__file__).with_name("rings.c"), defines=shared.defines()) as programs:
        link = attach_tracepoint(programs.load("one", ProgramType.TRACEPOINT), "syscalls", "sys_enter_prctl")
        begin, cpu = time.monotonic(), time.thread_time()
        for process in processes:
            assert process.stdin is not None
            process.stdin.close()
        while any(process.poll() is None for process in processes):
            shared.rings.wait(0.02)
            check.add(shared.rings)
        check.add(shared.rings)
        seconds, cpu = time.monotonic() - begin, time.thread_time() - cpu
        link.close()
        counts = shared.losses.snapshot().sum(axis=0)[1]
        skipped = programs.recursion_misses()["one"]
    if check.records != counts[Stage.RECORDED]:
        sys.exit(f"{check.records} records were read, {counts[Stage.RECORDED]} were submitted")
    return {
        "produced": each * producers,
        "recorded": check.records,
        "ring_full": int(counts[Stage.RING_FULL]),
        "skipped": skipped,
        "wrong_checksums": check.wrong,
        "out_of_order": check.out_of_order,
        "records/s": round(each * producers / seconds),
        "reader's share of a CPU, checks included": round(cpu / seconds, 3),
    }


class Check:
    """What was wrong with the records so far."""

    def __init__(self) -> None:
        self.records = self.wrong = self.out_of_order = 0
        self._last: dict[int, int] = {}

    def add(self, rings: Rings) -> None:
        for batch in rings.drain():
            rows: Records = np.ascontiguousarray(batch.rows[:, : LAYOUT.size_bytes]).view(LAYOUT.dtype)[:, 0]
            self.records += len(rows)
            identity = rows["tgid"].astype(np.uint64) << np.uint64(32) | rows["tid"]
            expected = (rows["time_ns"] ^ identity) * np.uint64(31) + rows["argument"]
            self.wrong += int((rows["checksum"] != expected).sum())
            for tgid in np.unique(rows["tgid"]).tolist():
                numbers = rows["argument"][rows["tgid"] == tgid].astype(np.int64)
                self.out_of_order += int((np.diff(numbers, prepend=self._last.get(tgid, -1)) <= 0).sum())
                self._last[tgid] = int(numbers[-1])


if __name__ == "__main__":
    main()
