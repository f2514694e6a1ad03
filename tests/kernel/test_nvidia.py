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
    HALVES,
    LINES,
    MIB,
    MOVED,
    MOVED_TO,
    NO_MEMORY,
    PAIRED,
    REUSED,
    SERVICES,
    TOUCHED,
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
from fencepath._bpf.kernel_functions import FORCE_VARIABLE
from fencepath.cli.application import app
from fencepath.entities import NO_ENTITY
from fencepath.events import Batch
from fencepath.records import Flags
from fencepath_nvidia.kinds import (
    ALLOC,
    CLOSE,
    CONTROL,
    DRIVER_FAULT,
    DRIVER_IOCTL,
    DRIVER_MMAP,
    ERROR,
    IOCTL,
    ISR,
    ISR_THREAD,
    LOG,
    MEMORY_ALLOC,
    MMAP,
    MUNMAP,
    POLL,
    RECORDED_CALLS,
    UVM_MIGRATION,
    UVM_SERVICE,
    XID,
)
from fencepath_nvidia.rules import IRQ_NAME

pytestmark = [pytest.mark.kernel, pytest.mark.bpf, pytest.mark.timeout(200)]

EXACT, BOUNDED, INFERRED = 0, 1, 2
FENTRY = os.environ.get("FENCEPATH_VM_FUNCTIONS") == "fentry"
"""Whether the stand-in has type information."""
REQUEST = ("tgid", "place", "number", "control", "status", "rm_status")
"""What tells requests apart in the account."""
MIGRATED = 512
"""Pages of each request to migrate, all of them to the first GPU."""
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


def recorded(what: str, functions: str) -> Path:
    """Record the phases; what was recorded stays with the results, to look at.

    Args:
        what: the phases.
        functions: how functions of the driver are to be probed; "" for as is best.
    """
    folder = Path(os.environ["FENCEPATH_VM_OUT"], "nvidia", what)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    options = ["-o", str(folder / f"{what}.fencepath"), "--layers", "nvidia,host", "--detail", "launch", "--as-root"]
    command = [sys.executable, "-m", "tests.kernel.nvidia_phases", str(folder), what]
    # in this process: the guest would take 12 s to import it all once more
    environ = {FORCE_VARIABLE: functions}
    done = CliRunner().invoke(app, ["record", *options, "--", *command], env=environ)
    assert done.exit_code == 0, done.output
    return folder


@pytest.fixture(scope="module")
def alone(driver: str) -> Run:
    folder = recorded("alone", "" if FENTRY else "kprobe")
    account = TRUTH.read_text()
    (folder / "alone.truth").write_text(account)
    return Run(folder, "alone", account)


@pytest.fixture(scope="module")
def pair(alone: Run) -> Run:
    """After the other one: the stand-in is loaded anew in it."""
    # who probes a module by fentry holds it
    folder = recorded("pair", "kprobe")
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
    layer = alone.analysis.recording.manifest.layers["nvidia"]
    assert [one.probe for one in layer.missing] == ["errors of switches"]
    # an interrupt comes in the middle of a kprobe, and a thread in the middle of a program by fentry
    by_fentry = {name.partition("(")[0] for name in layer.attached if name.endswith("by fentry")}
    assert by_fentry == ({"nvidia_isr_msix", "nvidia_isr"} if FENTRY else set())
    assert {name.partition("(")[0] for name in layer.attached if name.endswith("by kprobe")} >= {
        "nvidia_isr_msix_kthread_bh",
        "nvidia_unlocked_ioctl",
        "uvm_vm_fault_entry",
        "uvm_va_block_make_resident_copy",
    }


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
    assert alone.counted("mmap", "number") == Counter((length,) for length in did.mapped_bytes)
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
    in_phase = {row for row in range(len(polls)) if polls["time_ns"][row] <= did.phases["blocking"].end_ns}
    wakes = sorted(alone.edges("nvidia.wake"), key=lambda edge: int(polls["time_ns"][edge[1][1]]))
    wakes = [edge for edge in wakes if edge[1][1] in in_phase]
    assert [sure for _, _, sure in wakes] == [EXACT] * WAITS
    for (waking, (_, poll), _), truth_of_wait in zip(wakes, waits, strict=True):
        _, irq = handler_of[waking]
        begin_ns, irq_ns, end_ns = int(irqs["begin_ns"][irq]), truth_of_wait["irq_ns"], int(irqs["time_ns"][irq])
        assert irqs["name"][irq] == IRQ_NAME
        assert begin_ns <= irq_ns <= int(wakings["time_ns"][waking[1]]) <= end_ns
        assert int(polls["begin_ns"][poll]) < truth_of_wait["raised_ns"] <= irq_ns < truth_of_wait["told_ns"]
        assert truth_of_wait["told_ns"] <= int(polls["time_ns"][poll])
    (row,) = alone.analysis.tables(())["nvidia"]["interrupts"].rows
    assert (row["gpu"], row["polls_ended"], row["processes"]) == (driver, WAITS + HALVES, 1)


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
    woken = {int(all_polls["begin_ns"][row]) for _, (_, row), _ in alone.edges("nvidia.wake")}
    assert not woken.intersection(polls["begin_ns"].tolist())


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


def test_the_first_half_of_each_interrupt_is_seen_once(alone: Run) -> None:
    """The handler of MSI-X calls the other one; both are probed. A kprobe is not run where it comes in the middle of another program."""
    isrs, account = alone.batch(ISR), sorted(alone.rows("interrupt"), key=lambda one: one["end_ns"])
    if not FENTRY:
        # it comes in the middle of the request that asks for it in one phase, and of anybody's in the others
        raised = len(account)
        inside = [np.any((isrs["begin_ns"] <= one["begin_ns"]) & (one["end_ns"] <= isrs["time_ns"])) for one in account]
        account = [one for one, seen in zip(account, inside, strict=True) if seen]
        assert raised - len(account) <= EARLY + (raised - EARLY) // 10
    assert len(isrs) == len(account) > WAITS
    assert {isrs.labels[label] for label in isrs["label"].tolist()} == {"nvidia_isr_msix"}
    for row, truth_of_it in enumerate(account):
        assert isrs["irq"][row] == truth_of_it["irq"]
        assert isrs["begin_ns"][row] <= truth_of_it["begin_ns"] <= truth_of_it["end_ns"] <= isrs["time_ns"][row]
    assert len(np.unique(isrs["gpu"])) == 1
    # no address of the kernel, whose highest bits are all set
    assert not (isrs["gpu"] >> np.uint64(47) == 0x1FFFF).any()


def test_every_wait_that_a_thread_ends_has_its_chain(driver: str, alone: Run) -> None:
    """First half, second half, wake-up, poll: exact, one to one with the account."""
    (did,) = alone.did
    halves, polls = alone.batch(ISR_THREAD), alone.batch(POLL)
    account = sorted(alone.rows("half"), key=lambda one: one["end_ns"])
    assert len(halves) == len(account) == HALVES
    for row, truth_of_it in zip(range(len(halves)), account, strict=True):
        assert halves["begin_ns"][row] <= truth_of_it["begin_ns"] <= truth_of_it["end_ns"] <= halves["time_ns"][row]
    isr_of = {effect: cause for cause, effect, _ in alone.edges("nvidia.isr_half")}
    half_of = {effect: cause for cause, effect, _ in alone.edges("nvidia.half_wake")}
    inside = alone.within(POLL, did.phases["halves"])
    assert len(inside) == HALVES
    begins = set(inside["begin_ns"].tolist())
    wakes = [edge for edge in alone.edges("nvidia.wake") if int(polls["begin_ns"][edge[1][1]]) in begins]
    assert [sure for _, _, sure in wakes] == [EXACT] * HALVES
    seen = {isr_of[half_of[waking]] for waking, _, _ in wakes}
    assert len(seen) == HALVES
    isrs = alone.batch(ISR)
    assert {int(isrs["result"][row]) for _, row in seen} == {2}
    (told,) = alone.analysis.tables(())["nvidia"]["interrupt_halves"].rows
    counts = (told["gpu"], told["handler_count"], told["until_thread_count"], told["thread_count"])
    assert counts == (driver, len(isrs), HALVES, HALVES)


def test_time_in_the_driver_lies_within_each_request(alone: Run) -> None:
    """A function of the driver for each ioctl and mapping, of each file, within its system call and with its result."""
    calls = alone.batch(DRIVER_IOCTL)
    taken = alone.counted("ioctl", "place", "number", "status")
    by_function = Counter(calls.labels[label] for label in calls["label"].tolist())
    assert by_function == {
        "nvidia_unlocked_ioctl": sum(count for (where, _, _), count in taken.items() if where != UVM),
        "uvm_unlocked_ioctl_entry": sum(count for (where, _, _), count in taken.items() if where == UVM),
    }
    assert Counter((status,) for status in calls["result"].tolist()) == alone.counted("ioctl", "status")
    outer = sorted(
        (int(begin), int(end))
        for kind in REQUESTS
        if kind in alone.analysis.recording.kinds
        for begin, end in zip(alone.batch(kind)["begin_ns"], alone.batch(kind)["time_ns"], strict=True)
    )
    inner = sorted(zip(calls["begin_ns"].tolist(), calls["time_ns"].tolist(), strict=True))
    assert all(a <= c and d <= b for (a, b), (c, d) in zip(outer, inner, strict=True))
    (did,) = alone.did
    maps = alone.batch(DRIVER_MMAP)
    assert maps["length_bytes"].tolist() == did.mapped_bytes
    assert maps["address"].tolist() == alone.batch(MMAP)["address"].tolist()
    assert maps["offset"].tolist() == alone.batch(MMAP)["offset"].tolist()


def test_page_faults_of_threads_have_their_addresses(alone: Run) -> None:
    (did,) = alone.did
    faults = alone.batch(DRIVER_FAULT)
    names = ("nvidia_fault", "uvm_vm_fault_entry")
    expected = [
        (name, at + 4096 * page, at)
        for name, at, pages in zip(names, did.touched, TOUCHED, strict=True)
        for page in range(pages)
    ]
    columns = ([faults.labels[label] for label in faults["label"].tolist()], faults["address"], faults["area"])
    assert list(zip(columns[0], columns[1].tolist(), columns[2].tolist(), strict=True)) == expected
    assert alone.counted("fault", "number") == {(address,): 1 for _, address, _ in expected}
    assert set(faults["tgid"].tolist()) == {did.pid}


def test_page_faults_of_the_gpu_and_migrations(alone: Run) -> None:
    """Those by a thread of the kernel and those that a process asked for."""
    (did,) = alone.did
    served, moved = alone.batch(UVM_SERVICE), alone.batch(UVM_MIGRATION)
    assert len(served) == SERVICES == sum(alone.counted("service", "place").values())
    pages = Counter(zip(moved["destination"].tolist(), moved["pages"].tolist(), strict=True))
    assert pages == alone.counted("migration", "place", "number")
    assert pages[MOVED_TO, MOVED] == SERVICES
    assert moved["first_page"].tolist() == moved["destination"].tolist()
    asked = moved["tgid"] == did.pid
    assert set(moved["destination"][asked].tolist()) == {1}
    assert set(moved["pages"][asked].tolist()) == {MIGRATED}
    assert set(moved["tgid"][~asked].tolist()) == set(served["tgid"].tolist())
    rows = alone.analysis.tables(())["nvidia"]["pages"].rows
    assert sum(int(row["count"] or 0) for row in rows) == len(alone.batch(DRIVER_FAULT)) + len(served) + len(moved)
