# SPDX-License-Identifier: Apache-2.0
"""Offsets from BTF made by hand: a kernel's, and a module's that goes on where it ends."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from fencepath_drm.structures import structure_defines

Members = list[tuple[str, int]]
INT, STRUCT, ENUM, VAR = 1, 4, 6, 14


class Btf:
    """Types of one file."""

    def __init__(self, before: bytes = b"\0") -> None:
        self._before = before
        self._own = b"" if len(before) > 1 else b"\0"
        self._types = b""

    def text(self, name: str) -> int:
        """Where a text is; as pahole does, one of the kernel's is used again, also the end of a longer one."""
        found = (self._before + self._own).find(name.encode() + b"\0")
        if found >= 0:
            return found
        start = (len(self._before) if len(self._before) > 1 else 0) + len(self._own)
        self._own += name.encode() + b"\0"
        return start

    def add(self, kind: int, name: str, members: Members = [], widths: bool = False) -> None:  # noqa: B006
        info = widths << 31 | kind << 24 | len(members)
        self._types += struct.pack("<III", self.text(name), info, 8)
        for member, offset in members:
            if kind == ENUM:
                self._types += struct.pack("<II", self.text(member), offset)
            else:
                self._types += struct.pack("<III", self.text(member), 1, (5 << 24 if widths else 0) | offset * 8)
        if kind in (INT, VAR):
            self._types += struct.pack("<I", 0)

    def strings(self) -> bytes:
        return self._own if len(self._before) <= 1 else self._before + self._own

    def bytes(self) -> bytes:
        head = struct.pack("<HBBIIIII", 0xEB9F, 1, 0, 24, 0, len(self._types), len(self._types), len(self._own))
        return head + self._types + self._own


def kernel(*, fence: Members | None = None) -> Btf:
    btf = Btf()
    btf.add(INT, "int")
    btf.add(STRUCT, "dma_fence", [("lock", 0), ("context", 32), ("seqno", 40)] if fence is None else fence)
    btf.add(ENUM, "colours", [("context", 1), ("seqno", 2)])
    btf.add(STRUCT, "kobject", [("name", 0)], widths=True)
    btf.add(VAR, "dma_fence_counter")
    btf.add(STRUCT, "device", [("kobj", 16), ("parent", 80)])
    btf.add(STRUCT, "dma_fence", [])
    return btf


def module(before: Btf) -> Btf:
    btf = Btf(before.strings())
    btf.add(STRUCT, "drm_sched_fence", [("scheduled", 0), ("finished", 64), ("parent", 136), ("sched", 144)])
    btf.add(STRUCT, "drm_gpu_scheduler", [("ops", 0), ("dev", 504)])
    btf.add(STRUCT, "drm_sched_job", [("id", 0), ("s_fence", 24)])
    return btf


def folder(tmp_path: Path, kernel_btf: bytes | None, module_btf: bytes | None = None) -> Path:
    for name, data in (("vmlinux", kernel_btf), ("gpu_sched", module_btf)):
        if data is not None:
            (tmp_path / name).write_bytes(data)
    return tmp_path


def test_all_that_there_is(tmp_path: Path) -> None:
    base = kernel()
    assert structure_defines(folder(tmp_path, base.bytes(), module(base).bytes())) == {
        "DRM_FENCE_CONTEXT": 32,
        "DRM_FENCE_SEQNO": 40,
        "DRM_FENCE_FINISHED": 64,
        "DRM_FENCE_TO_SCHEDULER": 80,
        "DRM_SCHEDULER_DEVICE": 504,
        "DRM_DEVICE_NAME": 16,
        "DRM_JOB_FENCE": 24,
    }


def test_without_the_module_there_are_fences(tmp_path: Path) -> None:
    assert structure_defines(folder(tmp_path, kernel().bytes())) == {"DRM_FENCE_CONTEXT": 32, "DRM_FENCE_SEQNO": 40}


def test_half_of_a_name_is_none(tmp_path: Path) -> None:
    base = kernel(fence=[("context", 32)])
    assert set(structure_defines(folder(tmp_path, base.bytes(), module(base).bytes()))) == {
        "DRM_FENCE_FINISHED",
        "DRM_FENCE_TO_SCHEDULER",
        "DRM_SCHEDULER_DEVICE",
        "DRM_DEVICE_NAME",
        "DRM_JOB_FENCE",
    }


@pytest.mark.parametrize("data", [None, b"", b"\x9f", b"something else altogether", b"\x9f\xeb" + bytes(3)])
def test_what_is_no_btf_gives_nothing(tmp_path: Path, data: bytes | None) -> None:
    assert structure_defines(folder(tmp_path, data)) == {}


@pytest.mark.parametrize("length", range(0, 300, 7))
def test_a_file_that_is_cut_gives_nothing_wrong(tmp_path: Path, length: int) -> None:
    whole = structure_defines(folder(tmp_path, kernel().bytes()))
    cut = structure_defines(folder(tmp_path, kernel().bytes()[:length]))
    assert cut.items() <= whole.items()
