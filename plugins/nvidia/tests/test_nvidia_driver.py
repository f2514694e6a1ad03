# SPDX-License-Identifier: Apache-2.0
"""What a driver says of itself in /proc and /sys."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepath_nvidia.driver import Gpu, driver_version, find_gpus, parse_version, version_text

OPEN = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (builder@host)  Fri\n"
    "GCC version:  gcc version 13.3.0 (Ubuntu 13.3.0-6ubuntu2~24.04)\n"
)
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n"
INFORMATION = """Model: \t\t NVIDIA H200
IRQ:   \t\t 11
GPU UUID: \t GPU-a8c8a6f4-1111-2222-3333-444455556666
Video BIOS: \t 96.00.99.00.01
Bus Type: \t PCIe
Bus Location: \t 0000:0A:00.0
Device Minor: \t 3
"""


@pytest.mark.parametrize(
    ("text", "version"),
    [(OPEN, (580, 159, 4)), (CLOSED, (535, 104, 5)), ("590.48\n", (590, 48)), ("", None), ("garbage 12.34", None)],
)
def test_versions(text: str, version: tuple[int, ...] | None) -> None:
    assert parse_version(text) == version


def test_versions_are_written_as_the_driver_does() -> None:
    assert [version_text(version) for version in ((580, 159, 4), (580, 142), (550, 54, 14))] == [
        "580.159.04",
        "580.142",
        "550.54.14",
    ]


def test_version_of_the_module_or_of_what_proc_says(tmp_path: Path) -> None:
    proc, sys = tmp_path / "proc", tmp_path / "sys"
    assert driver_version(proc, sys) is None
    (proc / "driver/nvidia").mkdir(parents=True)
    (proc / "driver/nvidia/version").write_text(CLOSED)
    assert driver_version(proc, sys) == (535, 104, 5)
    (sys / "module/nvidia").mkdir(parents=True)
    (sys / "module/nvidia/version").write_text("580.159.04\n")
    assert driver_version(proc, sys) == (580, 159, 4)


def test_gpus_and_their_interrupts(tmp_path: Path) -> None:
    proc, sys = tmp_path / "proc", tmp_path / "sys"
    assert find_gpus(proc, sys) == ()
    for bdf, text in (
        ("0000:0a:00.0", INFORMATION),
        ("0000:0b:00.0", "IRQ: 17\nDevice Minor: \xff\n"),
        ("0000:0c:00.0", ""),
    ):
        folder = proc / "driver/nvidia/gpus" / bdf
        folder.mkdir(parents=True)
        (folder / "information").write_text(text)
    vectors = sys / "bus/pci/devices/0000:0a:00.0/msi_irqs"
    vectors.mkdir(parents=True)
    for vector in (70, 63, 101):
        (vectors / str(vector)).touch()
    assert find_gpus(proc, sys) == (
        Gpu(
            bdf="0000:0a:00.0",
            name="NVIDIA H200",
            uuid="GPU-a8c8a6f4-1111-2222-3333-444455556666",
            minor=3,
            vectors=(63, 70, 101),
        ),
        Gpu(bdf="0000:0b:00.0", vectors=(17,)),
        Gpu(bdf="0000:0c:00.0"),
    )
