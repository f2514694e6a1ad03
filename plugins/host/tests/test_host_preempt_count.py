# SPDX-License-Identifier: Apache-2.0
"""Finding the preempt count in BTF: made-up blobs of both shapes that kernels have."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

from fencepath_host.preempt_count import preempt_count_defines

INT, STRUCT, UNION, VAR, DATASEC = 1, 4, 5, 14, 15
Member = tuple[str, int, int]


class Btf:
    """Writes a BTF blob (include/uapi/linux/btf.h). Types are numbered from 1 in the order they are added."""

    def __init__(self) -> None:
        self._strings = b"\0"
        self._types: list[bytes] = []

    def _text(self, text: str) -> int:
        if not text:
            return 0
        encoded = text.encode() + b"\0"
        if b"\0" + encoded not in self._strings:
            self._strings += encoded
        return self._strings.index(b"\0" + encoded) + 1

    def add(self, kind: int, name: str, rest: bytes, count: int = 0, flag: int = 0) -> int:
        self._types.append(struct.pack("=III", self._text(name), flag << 31 | kind << 24 | count, 4) + rest)
        return len(self._types)

    def struct(self, name: str, members: Sequence[Member], kind: int = STRUCT, flag: int = 0) -> int:
        """Members are (name, type, offset in bits)."""
        rest = b"".join(struct.pack("=III", self._text(member), number, bits) for member, number, bits in members)
        return self.add(kind, name, rest, len(members), flag)

    def section(self, name: str, variables: Sequence[tuple[int, int]]) -> int:
        rest = b"".join(struct.pack("=III", number, offset, 4) for number, offset in variables)
        return self.add(DATASEC, name, rest, len(variables))

    def variable(self, name: str) -> int:
        return self.add(VAR, name, struct.pack("=I", 1))

    def write(self, path: Path) -> Path:
        types = b"".join(self._types)
        head = struct.pack("=HBBIIIII", 0xEB9F, 1, 0, 24, 0, len(types), len(types), len(self._strings))
        path.write_bytes(head + types + self._strings)
        return path


def _scheduler(btf: Btf) -> int:
    number = btf.add(INT, "int", struct.pack("=I", 32))
    btf.add(17, "tag", struct.pack("=I", 0))  # a kind with one word behind it
    btf.struct("task_struct", [("flags", number, 0), ("se", number, 1024)])
    # an older struct of that name has a bit field: then the upper byte of each offset is a width
    btf.struct("sched_entity", [("on_rq", number, 1 << 24 | 64), ("cfs_rq", number, 320)], flag=1)
    btf.struct("cfs_rq", [("load", number, 0), ("rq", number, 2496)])
    return number


def test_variables_of_their_own(tmp_path: Path) -> None:
    btf = Btf()
    _scheduler(btf)
    variables = {"current_task": 64, "__preempt_count": 72, "runqueues": 4096}
    places = [(btf.variable(name), at) for name, at in variables.items()]
    btf.section(".data", [(btf.variable("other"), 0)])
    btf.section(".data..percpu", places)
    assert preempt_count_defines(btf.write(tmp_path / "btf")) == {
        "HOST_TASK_CFS_RQ": 128 + 40,
        "HOST_CFS_RQ_RQ": 312,
        "HOST_RQ_TO_CURRENT": 64 - 4096,
        "HOST_RQ_TO_COUNT": 72 - 4096,
    }


def test_members_of_pcpu_hot(tmp_path: Path) -> None:
    """6.2 to 6.14: in a nameless struct in a nameless union."""
    btf = Btf()
    number = _scheduler(btf)
    inner = btf.struct("", [("current_task", number, 0), ("preempt_count", number, 64)])
    union = btf.struct("", [("", inner, 0), ("pad", number, 0)], UNION)
    btf.struct("pcpu_hot", [("", union, 0)])
    btf.section(".data..percpu", [(btf.variable("runqueues"), 128), (btf.variable("pcpu_hot"), 1024)])
    found = preempt_count_defines(btf.write(tmp_path / "btf"))
    assert (found["HOST_RQ_TO_CURRENT"], found["HOST_RQ_TO_COUNT"]) == (896, 904)


@pytest.mark.parametrize("lacking", ["rq", "variables", "file", "magic", "cut"])
def test_nothing_is_guessed(tmp_path: Path, lacking: str) -> None:
    btf = Btf()
    if lacking != "rq":
        _scheduler(btf)
    if lacking != "variables":
        names = ("current_task", "__preempt_count", "runqueues")
        btf.section(".data..percpu", [(btf.variable(name), 64) for name in names])
    path = btf.write(tmp_path / "btf")
    if lacking == "file":
        path = tmp_path / "none"
    elif lacking == "magic":
        path.write_bytes(b"\0" * 100)
    elif lacking == "cut":
        path.write_bytes(path.read_bytes()[:-60])
    assert preempt_count_defines(path) == {}
