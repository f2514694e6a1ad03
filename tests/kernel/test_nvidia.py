# SPDX-License-Identifier: Apache-2.0
"""The layer ``nvidia`` on a stand-in for its driver: what was recorded is held against the stand-in's own account.

The suite of plugins/nvidia/tests/gpu without a GPU: requests, waits with the interrupts that end them, two processes at once; and
faults, a driver that is loaded anew, errors in the kernel's log.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.kernel import nvidia_standin as standin
from tests.kernel.nvidia_phases import (
    AGAIN,
    ALLOCATIONS,
    BURST,
    EARLY,
    GARBAGE,
    LINES,
    MIB,
    NO_MEMORY,
    PAIRED,
    REUSED,
    UNKNOWN_CLASS,
    WAITS,
    Did,
    Phase,
    errors,
    read,
)
from tests.kernel.nvidia_standin import TRUTH, UVM, Row, truth
from typer.testing import CliRunner

from fencepath import Analysis, open_recording
from fencepath.cli.application import app
from fencepath.entities import NO_ENTITY
from fencepath.events import Batch
from fencepath.records import Flags
from fencepath_nvidia.kinds import (
    ALLOC,
    CLOSE,
    CONTROL,
    ERROR,
    IOCTL,
    LOG,
    MEMORY_ALLOC,
    MMAP,
    MUNMAP,
    POLL,
    RECORDED_CALLS,
    XID,
)
from fencepath_nvidia.rules import IRQ_NAME

pytestmark = [pytest.mark.kernel, pytest.mark.bpf, pytest.mark.timeout(200)]

EXACT, BOUNDED, INFERRED = 0, 1, 2
REQUEST = ("tgid", "place", "number", "control", "status", "rm_status")
"""What tells requests apart in the account."""
REQUESTS = tuple(kind for kind in RECORDED_CALLS if kind not in (MMAP, MUNMAP, CLOSE, POLL))


class Run:
    """A recording of the phases, with what the processes and the stand-in say of it."""

    def __init__(self, folder: Path, what: str, account: str) -> None:
        self.analysis = Analysis(open_recording(folder / f"{what}.fencepath"))
        self.folder = folder
        self.did: list[Did] = read(folder, what)
        self.truth: list[Row] = truth(account)

    def batch(self, kind: str) -> Batch:
        return self.analysis.view.batch(kind)

    def rows(self, what: str) -> list[dict[str, int]]:
        """Lines of the account of one sort."""
        return [row.values for row in self.truth if row.what == what]

    def counted(self, what: str, *names: str) -> Counter[tuple[int, ...]]:
        """How often the stand-in saw what the named values tell apart."""
        return self.counts(self.truth, what, *names)

    @staticmethod
    def counts(account: list[Row], what: str, *names: str) -> Counter[tuple[int, ...]]:
        """The same of any account."""
        found: Counter[tuple[int, ...]] = Counter()
        for row in account:
            if row.what == what:
                found[tuple(row.values[name] for name in names)] += row.values["count"]
        return found

    def within(self, kind: str, phase: Phase) -> Batch:
        """Events of a kind that began in a phase."""
        batch = self.batch(kind)
        return batch.take((batch["begin_ns"] >= phase.begin_ns) & (batch["begin_ns"] <= phase.end_ns))

    def edges(self, rule: str) -> list[tuple[tuple[str, int], tuple[str, int], int]]:
        """Cause and effect of a rule's edges, as kind and row, and how sure they are."""
        edges, table = self.analysis.edges, self.analysis.table
        if rule not in edges.rules:
            return []
        mine = np.flatnonzero(edges.rule == edges.rules.index(rule))
        columns = (edges.cause[mine].tolist(), edges.effect[mine].tolist(), edges.confidence[mine].tolist())
        return [(table.locate(cause), table.locate(effect), sure) for cause, effect, sure in zip(*columns, strict=True)]

    def wakes(self, tgids: set[int]) -> Counter[int]:
        """How sure it is what woke the polls of processes."""
        polls = self.batch(POLL)
        return Counter(sure for _, (_, row), sure in self.edges("nvidia.wake") if int(polls["tgid"][row]) in tgids)

    def requests(self) -> Counter[tuple[int, ...]]:
        """What was recorded of requests, as process, place, command, control, status and the driver's status."""
        found: Counter[tuple[int, ...]] = Counter()
        for kind in set(REQUESTS).intersection(self.analysis.recording.kinds):
            batch, records = self.batch(kind), self.analysis.recording.records(kind)
            whole = records[(records["flags"] & np.uint32(Flags.OPEN)) == 0]
            keys = zip(whole["tid"].tolist(), whole["time_ns"].tolist(), strict=True)
            commands = dict(zip(keys, whole["command"].tolist(), strict=True))
            for row in range(len(batch)):
                key = int(batch["tid"][row]), int(batch["time_ns"][row])
                found[
                    int(batch["tgid"][row]),
                    place(int(batch["device"][row])),
                    commands[key],
                    int(batch["control"][row]) if kind == CONTROL else 0,
                    int(batch["status"][row]),
                    int(batch["rm_status"][row]) if "rm_status" in batch else -1,
                ] += 1
        return found


def place(device: int) -> int:
    """A device as the stand-in's account has it."""
    return device & 0xFFFFF if device >> 20 == 195 else UVM


def of(counts: Counter[tuple[int, ...]], tgids: set[int]) -> Counter[tuple[int, ...]]:
    """Those of some processes."""
    return Counter({key: count for key, count in counts.items() if key[0] in tgids})


@pytest.fixture(scope="module")
def driver() -> Iterator[str]:
    """The stand-in, loaded; gives its PCI address."""
    standin.insert("nvidia_xid")
    standin.insert("nvidia")
    (device,) = (path.name for path in Path("/proc/driver/nvidia/gpus").iterdir())
    yield device
    assert standin.remove("nvidia")
    assert standin.remove("nvidia_xid")


def recorded(what: str) -> Path:
    """Record the phases; what was recorded stays with the results, to look at."""
    folder = Path(os.environ["FENCEPATH_VM_OUT"], "nvidia", what)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    options = ["-o", str(folder / f"{what}.fencepath"), "--layers", "nvidia,host", "--detail", "launch", "--as-root"]
    command = [sys.executable, "-m", "tests.kernel.nvidia_phases", str(folder), what]
    # in this process: the guest would take 12 s to import it all once more
    done = CliRunner().invoke(app, ["record", *options, "--", *command])
    assert done.exit_code == 0, done.output
    return folder


@pytest.fixture(scope="module")
def alone(driver: str) -> Run:
    folder = recorded("alone")
    account = TRUTH.read_text()
    (folder / "alone.truth").write_text(account)
    return Run(folder, "alone", account)


@pytest.fixture(scope="module")
def pair(alone: Run) -> Run:
    """After the other one: the stand-in is loaded anew in it."""
    folder = recorded("pair")
    (folder / "again.truth").write_text(TRUTH.read_text())
    return Run(folder, "pair", (folder / "pair.truth").read_text())


def test_the_gpu_and_its_interrupt_are_found(driver: str, alone: Run) -> None:
    (gpu,) = alone.analysis.view.facts("nvidia.gpu")
    vectors = {int(path.name) for path in Path("/sys/bus/pci/devices", driver, "msi_irqs").iterdir()}
    assert (gpu["bdf"], gpu["minor"], set(gpu["vectors"])) == (driver, 0, vectors)
    assert {row["irq"] for row in alone.rows("interrupt")} == vectors


def test_nothing_is_lost_and_nothing_fails(alone: Run) -> None:
    assert alone.rows("dropped") == [{"count": 0}]
    assert alone.analysis.problems == ()
    assert [(row.kind, row.stage, row.count) for row in alone.analysis.recording.loss if row.count] == []
    missing = alone.analysis.recording.manifest.layers["nvidia"].missing
    assert [one.probe for one in missing] == ["errors of switches"]


def test_requests_are_those_that_the_stand_in_took(alone: Run) -> None:
    """By process, device, number, command, what the call returned and the driver's status; the burst is among them."""
    taken = alone.counted("ioctl", *REQUEST)
    assert alone.requests() == taken
    assert sum(taken.values()) > BURST


def test_allocations_have_their_sizes_and_refusals_their_status(alone: Run) -> None:
    memory, objects = alone.batch(MEMORY_ALLOC), alone.batch(ALLOC)
    made = memory.take((memory["rm_status"] == 0) & (memory["object_class"] != 0))
    assert len(made) == ALLOCATIONS
    size = sum((2 + 2 * (number % 5)) * MIB for number in range(ALLOCATIONS))
    assert int(made["size_bytes"].sum()) == size
    assert int((memory["rm_status"] == 0x51).sum()) == NO_MEMORY
    assert int((objects["rm_status"] == 0x22).sum()) == UNKNOWN_CLASS
    rows = alone.analysis.tables(())["nvidia"]["memory"].rows
    peaks = sum(int(row["peak_bytes"] or 0) for row in rows if row["place"] in ("gpu", "system"))
    assert peaks == size


def test_mappings_and_closes(alone: Run) -> None:
    (did,) = alone.did
    assert alone.batch(MMAP)["length_bytes"].tolist() == did.mapped_bytes
    assert alone.counted("mmap", "number") == {(length,): 1 for length in did.mapped_bytes}
    assert alone.batch(MUNMAP)["length_bytes"].tolist() == did.mapped_bytes
    assert alone.batch(MUNMAP)["address"].tolist() == alone.batch(MMAP)["address"].tolist()
    assert len(alone.batch(CLOSE)) == did.closes == sum(alone.counted("release", "place").values())


def test_every_blocking_wait_has_its_chain(driver: str, alone: Run) -> None:
    """Interrupt, wake-up, poll: exact, one to one with the waits of the account."""
    (did,) = alone.did
    polls, wakings, irqs = (alone.batch(kind) for kind in (POLL, "host.waking", "host.irq"))
    inside = alone.within(POLL, did.phases["blocking"])
    assert len(inside) == WAITS
    handler_of = {effect: cause for cause, effect, _ in alone.edges("host.irq_wake")}
    waits = sorted((row for row in alone.rows("wait")), key=lambda row: row["told_ns"])[:WAITS]
    wakes = sorted(alone.edges("nvidia.wake"), key=lambda edge: int(polls["time_ns"][edge[1][1]]))
    assert [sure for _, _, sure in wakes] == [EXACT] * WAITS
    for (waking, (_, poll), _), truth_of_wait in zip(wakes, waits, strict=True):
        _, irq = handler_of[waking]
        begin_ns, irq_ns, end_ns = int(irqs["begin_ns"][irq]), truth_of_wait["irq_ns"], int(irqs["time_ns"][irq])
        assert irqs["name"][irq] == IRQ_NAME
        assert begin_ns <= irq_ns <= int(wakings["time_ns"][waking[1]]) <= end_ns
        assert int(polls["begin_ns"][poll]) < truth_of_wait["raised_ns"] <= irq_ns < truth_of_wait["told_ns"]
        assert truth_of_wait["told_ns"] <= int(polls["time_ns"][poll])
    (row,) = alone.analysis.tables(())["nvidia"]["interrupts"].rows
    assert (row["gpu"], row["polls_ended"], row["processes"]) == (driver, WAITS, 1)


def test_interrupts_are_as_many_as_were_raised(alone: Run) -> None:
    phase = alone.did[0].phases["blocking"]
    raised = [row for row in alone.rows("interrupt") if phase.begin_ns <= row["begin_ns"] <= phase.end_ns]
    irqs = alone.within("host.irq", phase)
    assert int((irqs["name"] == IRQ_NAME).sum()) == len(raised) == WAITS


def test_waits_that_find_an_event_have_no_wake_up(alone: Run) -> None:
    phase = alone.did[0].phases["early"]
    polls = alone.within(POLL, phase)
    assert polls["status"].tolist() == [1] * EARLY + [0]
    assert polls["timeout_ns"].tolist()[-1] == 20_000_000
    all_polls = alone.batch(POLL)
    woken = [row for _, (_, row), _ in alone.edges("nvidia.wake") if int(all_polls["begin_ns"][row]) >= phase.begin_ns]
    assert woken == []


def test_requests_that_cannot_be_read_are_flagged(alone: Run) -> None:
    phase = alone.did[0].phases["faults"]
    faulty: Counter[str] = Counter()
    for kind in (IOCTL, CONTROL, ALLOC):
        batch = alone.within(kind, phase)
        for label in batch["label"][(batch["flags"] & int(Flags.READ_FAULT)) != 0].tolist():
            faulty[batch.labels[label]] += 1
    assert faulty == {"NV_ESC_RM_CONTROL": 2, "NV_ESC_RM_ALLOC": 1}


def test_descriptors_that_are_used_again_are_told_apart(alone: Run) -> None:
    controls = alone.batch(CONTROL)
    again = controls["control"] >> 8 == 0x208002
    assert controls["control"][again].tolist() == [0x20800200 + index for index in range(REUSED)]
    assert set(controls["status"][again].tolist()) == {0}
    assert len(np.unique(controls["fd"][again])) == 1


def test_a_burst_is_all_there(alone: Run) -> None:
    phase = alone.did[0].phases["burst"]
    controls = alone.within(CONTROL, phase)
    assert len(controls) == BURST
    seconds = (phase.end_ns - phase.begin_ns) / 1e9
    print(f"{BURST / seconds:.0f} requests a second")
    assert (np.diff(controls["begin_ns"].astype(np.int64)) > 0).all()


def test_each_error_is_found_once_with_its_gpu_and_process(driver: str, alone: Run) -> None:
    """Those that the driver raises by log and tracepoint, then lines alone: shapes of several versions, and garbage."""
    (did,) = alone.did
    gpu = driver.rpartition(".")[0]
    raised = errors(driver, did.pid)
    batch = alone.batch(ERROR)
    assert len(alone.batch(XID)) == len(raised)
    assert len(alone.batch(LOG)) == len(raised) + len(LINES) + len(GARBAGE)
    columns = [batch[name].tolist() for name in ("code", "gpu", "pid", "of_switch")]
    named = [(code, gpu, did.pid if "pid=" in line else 0, False) for line, code, _ in raised]
    assert list(zip(*columns, strict=True)) == named + [line[1:] for line in LINES]
    assert batch["message"].tolist()[: len(raised)] == [message for _, _, message in raised]
    assert batch["by_tracepoint"].tolist() == [True] * len(raised) + [False] * len(LINES)
    assert batch["by_log"].all()
    own = batch["process"][batch["pid"] == did.pid].tolist()
    assert set(own) == set(alone.batch(POLL)["process"].tolist())
    assert {process for process in batch["process"].tolist() if process not in own} == {NO_ENTITY}


def test_two_processes_at_once_are_never_exact(pair: Run) -> None:
    first, second, _ = pair.did
    assert first.phases["blocking"].begin_ns < second.phases["blocking"].end_ns
    assert second.phases["blocking"].begin_ns < first.phases["blocking"].end_ns
    for did in (first, second):
        mine = pair.batch(POLL)["tgid"] == did.pid
        assert int(mine.sum()) == PAIRED == did.polls
        wakes = pair.wakes({did.pid})
        assert set(wakes) == {INFERRED}
        assert sum(wakes.values()) == PAIRED


def test_requests_of_two_processes_and_one_that_died(pair: Run) -> None:
    """The death inside a request shows as a request that was interrupted."""
    (dead,) = read(pair.folder, "dead")
    before = {did.pid for did in (*pair.did[:2], dead)}
    taken = pair.counted("ioctl", *REQUEST)
    assert of(pair.requests(), before) == of(taken, before)
    (row,) = (row for row in pair.rows("ioctl") if row["tgid"] == dead.pid)
    assert (row["control"], row["status"]) == (standin.NEVER, -4)


def test_a_driver_that_is_loaded_anew_is_recorded(pair: Run) -> None:
    """Its nvidia-uvm has another major number; its waits are ended by a thread."""
    last = pair.did[-1]
    again = Run.counts(truth((pair.folder / "again.truth").read_text()), "ioctl", *REQUEST)
    assert of(pair.requests(), {last.pid}) == again
    assert UVM in {key[1] for key in again}
    assert pair.wakes({last.pid}) == {BOUNDED: AGAIN}
