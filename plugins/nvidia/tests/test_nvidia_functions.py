# SPDX-License-Identifier: Apache-2.0
"""What functions of the driver add: both halves of interrupts, page faults, migrations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from plugins.nvidia.tests.story import MS, Story
from plugins.nvidia.tests.test_nvidia_rules import edges_of

from fencepath.kernel_functions import NoFunctions, ResolvedFunctions
from fencepath.system import SavedSymbols
from fencepath.testing._matrix import shipped_kernels
from fencepath_nvidia.decoder import NvidiaDecoder
from fencepath_nvidia.functions import FUNCTION_RECORDS
from fencepath_nvidia.kinds import (
    DRIVER_FAULT,
    DRIVER_IOCTL,
    DRIVER_MMAP,
    ISR,
    ISR_THREAD,
    UVM_MIGRATION,
    UVM_SERVICE,
)
from fencepath_nvidia.reports import HalvesTable, InterruptsTable, PagesTable

RECORDS = {record.kind: record for record in FUNCTION_RECORDS}
THREAD = 700


def symbols(folder: Path, *names: str) -> SavedSymbols:
    path = folder / "symbols.txt"
    modules = {name: "nvidia_uvm" if name.startswith("uvm_") else "nvidia" for name in names}
    path.write_text("".join(f"ffffffffc0000000 t {name}\t[{module}]\n" for name, module in modules.items()))
    return SavedSymbols(path)


class TestNames:
    def test_the_driver_at_hand_has_them(self) -> None:
        found = {
            kind: record.resolve(SavedSymbols(shipped_kernels() / "nvidia-580.159.04.symbols.txt.gz"))
            for kind, record in RECORDS.items()
        }
        assert {kind: one.present for kind, one in found.items() if isinstance(one, ResolvedFunctions)} == {
            ISR: ("nvidia_isr_msix", "nvidia_isr"),
            ISR_THREAD: ("nvidia_isr_msix_kthread_bh", "nvidia_isr_kthread_bh"),
            DRIVER_IOCTL: ("nvidia_unlocked_ioctl", "uvm_unlocked_ioctl_entry"),
            DRIVER_MMAP: ("nvidia_mmap", "uvm_mmap_entry"),
            DRIVER_FAULT: ("nvidia_fault", "uvm_vm_fault_entry"),
            UVM_SERVICE: (
                "uvm_parent_gpu_service_replayable_faults",
                "uvm_parent_gpu_service_non_replayable_fault_buffer",
            ),
            UVM_MIGRATION: ("uvm_va_block_make_resident_copy", "uvm_va_block_make_resident_read_duplicate"),
        }

    def test_what_the_kernel_calls_is_taken_where_two_names_are_there(self, tmp_path: Path) -> None:
        """Up to 575 a function of the later name had other parameters."""
        both = symbols(
            tmp_path, "uvm_vm_fault_wrapper_entry", "uvm_vm_fault_entry", "nvidia_frontend_mmap", "nvidia_mmap"
        )
        fault, mapping = RECORDS[DRIVER_FAULT].resolve(both), RECORDS[DRIVER_MMAP].resolve(both)
        assert isinstance(fault, ResolvedFunctions)
        assert isinstance(mapping, ResolvedFunctions)
        assert fault.present == ("uvm_vm_fault_wrapper_entry",)
        assert mapping.names == ("nvidia_frontend_mmap", "")
        assert fault.modules == ("", "nvidia_uvm")

    def test_a_module_that_is_not_loaded_is_no_loss(self, tmp_path: Path) -> None:
        none = RECORDS[UVM_SERVICE].resolve(symbols(tmp_path, "nvidia_isr"))
        assert none == NoFunctions(UVM_SERVICE, "no module nvidia_uvm is loaded")

    def test_a_driver_without_the_functions_is_told(self, tmp_path: Path) -> None:
        none = RECORDS[UVM_SERVICE].resolve(symbols(tmp_path, "uvm_other"))
        assert isinstance(none, NoFunctions)
        assert none.why.startswith("this kernel has no function uvm_parent_gpu_service_replayable_faults, ")


class TestDecoder:
    def test_mappings_and_regions(self) -> None:
        functions = {
            kind: tuple(function.names[0] for function in record.functions) for kind, record in RECORDS.items()
        }
        decoder = NvidiaDecoder(functions)
        mapped = np.zeros(1, RECORDS[DRIVER_MMAP].layout.dtype)
        mapped["address"], mapped["end_address"], mapped["page_offset"], mapped["result"] = (
            0x7F00_0000,
            0x7F00_5000,
            3,
            -12,
        )
        batch = decoder.decode(DRIVER_MMAP, mapped)
        assert (batch["length_bytes"].tolist(), batch["offset"].tolist(), batch["result"].tolist()) == (
            [0x5000],
            [0x3000],
            [-12],
        )
        moved = np.zeros(2, RECORDS[UVM_MIGRATION].layout.dtype)
        moved["region"], moved["function"] = [512 << 16 | 500, 3 << 16 | 7], [1, 99]
        batch = decoder.decode(UVM_MIGRATION, moved)
        assert batch["first_page"].tolist() == [500, 7]
        # the second makes no sense: nothing is made up
        assert batch["pages"].tolist() == [12, 0]
        assert [batch.labels[label] if label >= 0 else "" for label in batch["label"].tolist()] == [
            "uvm_va_block_make_resident_read_duplicate",
            "",
        ]


def threaded_wait(story: Story, at: float, tid: int = 41, gpu: int = 7, irq: int = 63) -> None:
    """A poll of 9 ms that the second half of an interrupt ends."""
    story.poll(tid, at, at + 9)
    story.irq(at + 5.9, at + 6.6, cpu=2, irq=irq)
    story.isr(at + 6, at + 6.5, gpu=gpu, irq=irq)
    story.half(at + 7, at + 8, tid=THREAD + irq, gpu=gpu, irq=irq)
    story.waking(at + 7.5, tid, by=THREAD + irq)


class TestHalves:
    def test_a_thread_whose_interrupt_is_known_is_as_sure_as_the_interrupt(self, tmp_path: Path) -> None:
        story = Story()
        for index in range(5):
            threaded_wait(story, 10 * index)
        analysis = story.analysis(tmp_path)
        assert edges_of(analysis, "nvidia.isr_half") == {(ISR, ISR_THREAD, 0): 5}
        assert edges_of(analysis, "nvidia.half_wake") == {(ISR_THREAD, "host.waking", 0): 5}
        assert edges_of(analysis, "nvidia.wake") == {("host.waking", "nvidia.poll", 0): 5}
        (row,) = InterruptsTable().rows(analysis.view, [])
        assert (row["interrupts"], row["polls_ended"]) == (5, 5)
        (told,) = HalvesTable().rows(analysis.view, [])
        assert told == {
            "vector": 63,
            "gpu": "",
            "handler_count": 5,
            "handler_median_ns": MS // 2,
            "handler_longest_ns": MS // 2,
            "until_thread_count": 5,
            "until_thread_median_ns": MS // 2,
            "until_thread_longest_ns": MS // 2,
            "thread_count": 5,
            "thread_median_ns": MS,
            "thread_longest_ns": MS,
        }

    def test_another_thread_stays_bounded(self, tmp_path: Path) -> None:
        """One that wakes outside of its half, or that serves no interrupt."""
        story = Story()
        threaded_wait(story, 0)
        story.poll(41, 20, 29)
        story.waking(28.5, 41, by=THREAD + 63)
        story.poll(41, 30, 39)
        story.half(36, 38, tid=THREAD)
        story.waking(37, 41, by=900)
        analysis = story.analysis(tmp_path)
        assert edges_of(analysis, "nvidia.wake") == {
            ("host.waking", "nvidia.poll", 0): 1,
            ("host.waking", "nvidia.poll", 1): 2,
        }

    def test_two_processes_are_never_exact(self, tmp_path: Path) -> None:
        story = Story()
        threaded_wait(story, 0, tid=41)
        threaded_wait(story, 10, tid=77)
        assert edges_of(story.analysis(tmp_path), "nvidia.wake") == {("host.waking", "nvidia.poll", 2): 2}

    def test_halves_are_of_the_same_gpu_and_vector(self, tmp_path: Path) -> None:
        """And of a first half that left something to a thread, before the second began."""
        story = Story()
        story.isr(1, 2, gpu=1, irq=10)
        story.isr(3, 4, gpu=2, irq=10)
        story.isr(5, 6, gpu=1, irq=11)
        story.isr(6.5, 7, gpu=1, irq=10, threaded=False)
        story.half(8, 9, tid=THREAD, gpu=1, irq=10)
        story.half(8.5, 9.5, tid=THREAD + 1, gpu=3, irq=10)
        story.isr(10, 11, gpu=3, irq=10)
        analysis = story.analysis(tmp_path)
        assert edges_of(analysis, "nvidia.isr_half") == {(ISR, ISR_THREAD, 0): 1}
        edges, table = analysis.edges, analysis.table
        (row,) = np.flatnonzero(edges.rule == edges.rules.index("nvidia.isr_half"))
        assert int(table.begin[edges.cause[row]]) == MS
        (count,) = (count for count in analysis.joins if count.rule == "nvidia.isr_half")
        assert (count.matched, count.unmatched) == (1, 1)
        assert [row["vector"] for row in HalvesTable().rows(analysis.view, [])] == [10, 11]

    @pytest.mark.parametrize("table", [HalvesTable(), PagesTable()])
    def test_without_functions_there_are_no_rows(self, tmp_path: Path, table: HalvesTable | PagesTable) -> None:
        story = Story()
        story.poll(41, 0, 9)
        assert table.rows(story.analysis(tmp_path).view, []) == []


def test_pages_by_function_and_process(tmp_path: Path) -> None:
    story = Story()
    story.fault(0, 2, 0x7F00_1000)
    story.fault(3, 4, 0x7F00_2000)
    story.fault(5, 5.5, 0x1000, uvm=False)
    story.service(6, 7)
    story.migration(6.1, 6.4, 10, 26, to=1)
    story.migration(6.5, 6.6, 0, 512, to=1)
    story.migration(8, 8.1, 0, 1, to=0, tid=41)
    rows = PagesTable().rows(story.analysis(tmp_path).view, [])
    assert [tuple(row.values()) for row in rows] == [
        ("uvm_vm_fault_wrapper_entry", 41, None, 2, None, 3 * MS, 2 * MS),
        ("uvm_parent_gpu_service_replayable_faults", 900, None, 1, None, MS, MS),
        ("nvidia_fault", 41, None, 1, None, MS // 2, MS // 2),
        ("uvm_va_block_make_resident_copy", 900, 1, 2, 528, 4 * MS // 10, 3 * MS // 10),
        ("uvm_va_block_make_resident_copy", 41, 0, 1, 1, MS // 10, MS // 10),
    ]
    assert list(rows[0]) == ["function", "pid", "destination", "count", "pages", "total_ns", "longest_ns"]
