# SPDX-License-Identifier: Apache-2.0
"""Open DRM devices of the recorded processes: what their fdinfo says, when it is kept, and what is made of it."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from plugins.drm.tests.story import Jobs

from fencepath_drm.clients import MAJOR, ClientWatch, Reading, drm_files, readings
from fencepath_drm.fdinfo import Client, parse_fdinfo

PCI = "0000:03:00.0"
PID, TID, OTHER = 100, 7, 8
MEM = 1


def amdgpu(gfx: int, compute: int = 0, client: int = 42, device: str = PCI) -> str:
    return (
        f"pos:\t0\nflags:\t02100002\nmnt_id:\t23\nino:\t480\ndrm-driver:\tamdgpu\ndrm-client-id:\t{client}\ndrm-pdev:\t{device}\n"
        f"pasid:\t32771\ndrm-memory-vram:\t29668 KiB\ndrm-engine-gfx:\t{gfx} ns\ndrm-engine-compute:\t{compute} ns\n"
    )


def i915(render: int, video: int) -> str:
    return (
        "drm-driver:\ti915\ndrm-client-id:\t7\ndrm-pdev:\t0000:00:02.0\ndrm-total-system0:\t2 MiB\n"
        f"drm-engine-render:\t{render} ns\ndrm-engine-copy:\t0 ns\ndrm-engine-video:\t{video} ns\ndrm-engine-capacity-video:\t2\n"
        "drm-engine-video-enhance:\t0 ns\n"
    )


def xe(rcs: int, ccs: int, clock: int) -> str:
    return (
        f"drm-driver:\txe\ndrm-client-id:\t3\ndrm-pdev:\t{PCI}\ndrm-total-vram0:\t23992 KiB\n"
        f"drm-cycles-rcs:\t{rcs}\ndrm-total-cycles-rcs:\t{clock}\n"
        f"drm-cycles-ccs:\t{ccs}\ndrm-total-cycles-ccs:\t{clock}\ndrm-engine-capacity-ccs:\t4\n"
    )


def panfrost(fragment: int) -> str:
    return (
        f"drm-driver:\tpanfrost\ndrm-client-id:\t5\ndrm-engine-fragment:\t{fragment} ns\ndrm-cycles-fragment:\t94439687\n"
        "drm-maxfreq-fragment:\t799999987 Hz\ndrm-curfreq-fragment:\t799999987 Hz\n"
        "drm-engine-vertex-tiler:\t0 ns\ndrm-cycles-vertex-tiler:\t0\ndrm-total-memory:\t290 MiB\n"
    )


# What is read.


def test_xe_gives_cycles_and_their_clock() -> None:
    assert parse_fdinfo(xe(11, 13, 1_700)) == Client(
        driver="xe", device=PCI, client_id=3, engines={"ccs": 4}, cycles={"rcs": 11, "ccs": 13},
        total_cycles={"rcs": 1_700, "ccs": 1_700}, memory_bytes={"total-vram0": 23992 << 10},
    )  # fmt: skip


def test_i915_gives_times_of_classes_of_engines() -> None:
    found = parse_fdinfo(i915(17, 19))
    assert found is not None
    assert found.engine_ns == {"render": 17, "copy": 0, "video": 19, "video-enhance": 0}
    assert found.engines == {"video": 2}


def test_panfrost_has_no_place_on_a_bus_and_cycles_without_a_clock() -> None:
    assert parse_fdinfo(panfrost(23)) == Client(
        driver="panfrost", client_id=5, engine_ns={"fragment": 23, "vertex-tiler": 0},
        cycles={"fragment": 94439687, "vertex-tiler": 0}, memory_bytes={"total-memory": 290 << 20},
    )  # fmt: skip


# Whose.


@pytest.fixture
def waiting() -> Iterator[subprocess.Popen[bytes]]:
    """A process with open devices, none of them of DRM, a file and a pipe."""
    code = "import sys; kept = [open('/dev/null'), open('/dev/zero'), open(__import__('os').__file__)]; print('up', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == b"up\n"
        yield process
        process.stdin.close()


def test_a_process_with_other_devices_has_no_client(waiting: subprocess.Popen[bytes]) -> None:
    process = Path(f"/proc/{waiting.pid}")
    of_memory = drm_files(process, major=MEM)
    assert {str((process / "fd" / str(fd)).readlink()) for fd in of_memory} == {"/dev/null", "/dev/zero"}
    assert drm_files(process) == []
    watch = ClientWatch()
    assert [*watch.look([waiting.pid]), *watch.look([waiting.pid]), *watch.end()] == []
    looser = ClientWatch(major=MEM)
    assert [*looser.look([waiting.pid]), *looser.end()] == [], "their fdinfo is none of a DRM device"


def test_a_process_that_is_gone_has_no_client() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    watch = ClientWatch()
    assert [*watch.look([process.pid]), *watch.end()] == []


class Machine:
    """A procfs of made-up processes."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "proc"
        self.now_ns = 0
        self._nodes = folder / "dev" / "dri"
        self._nodes.mkdir(parents=True)
        self.step_ns = 0
        self.watch = ClientWatch(self.root, self._clock)
        self.kept: list[Reading] = []

    def _clock(self) -> int:
        self.now_ns += self.step_ns
        return self.now_ns

    def opens(self, pid: int, fd: int, fdinfo: str, major: int = MAJOR, name: str = "renderD128") -> None:
        """A process opens a device, or it says something else from now on."""
        for what in ("fd", "fdinfo"):
            (self.root / str(pid) / what).mkdir(parents=True, exist_ok=True)
        node = self._nodes / name
        if not node.exists():
            try:
                os.mknod(node, 0o600 | stat.S_IFCHR, os.makedev(major, 128))
            except PermissionError:
                pytest.skip("only root, with CAP_MKNOD, makes device nodes; run as root to force it")
        link = self.root / str(pid) / "fd" / str(fd)
        if not link.is_symlink():
            link.symlink_to(node)
        (self.root / str(pid) / "fdinfo" / str(fd)).write_text(fdinfo)

    def closes(self, pid: int, fd: int) -> None:
        (self.root / str(pid) / "fd" / str(fd)).unlink()

    def looks(self, now_ns: int, *pids: int) -> list[tuple[int, int]]:
        """Process and client of the readings that are kept now."""
        self.now_ns = now_ns
        return self._keep(self.watch.look(pids))

    def ends(self) -> list[tuple[int, int]]:
        return self._keep(self.watch.end())

    def _keep(self, facts: object) -> list[tuple[int, int]]:
        assert isinstance(facts, list)
        assert all(name == "client" for name, _ in facts)
        new = [one for several in readings([data for _, data in facts]).values() for one in several]
        assert len(new) == len(facts)
        self.kept += new
        return [(one.pid, one.client_id) for one in new]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_the_first_and_the_last_reading_of_a_client_are_kept(machine: Machine) -> None:
    for number in range(5):
        machine.opens(PID, 3, amdgpu(1_000 * number))
        assert machine.looks(number, PID) == ([(PID, 42)] if number == 0 else [])
    assert machine.ends() == [(PID, 42)]
    assert machine.ends() == []
    assert [(one.time_ns, one.engine_ns["gfx"]) for one in machine.kept] == [(0, 0), (4, 4_000)]


def test_of_a_client_that_is_gone_the_reading_before_is_kept(machine: Machine) -> None:
    machine.opens(PID, 3, amdgpu(11))
    machine.opens(PID, 4, amdgpu(13, client=43))
    assert machine.looks(1, PID) == [(PID, 42), (PID, 43)]
    machine.opens(PID, 3, amdgpu(17))
    assert machine.looks(2, PID) == []
    machine.closes(PID, 3)
    assert machine.looks(3, PID) == [(PID, 42)], "the file was closed"
    assert machine.looks(4) == [(PID, 43)], "the process is no target any more"
    assert machine.ends() == []
    assert [(one.time_ns, one.engine_ns["gfx"]) for one in machine.kept] == [(1, 11), (1, 13), (2, 17), (3, 13)]


def test_a_client_that_was_seen_once_has_one_reading(machine: Machine) -> None:
    machine.opens(PID, 3, amdgpu(11))
    assert machine.looks(1, PID) == [(PID, 42)]
    assert (machine.looks(2), machine.ends()) == ([], [])


def test_files_that_were_duplicated_or_inherited_are_one_client(machine: Machine) -> None:
    for pid, fd in ((PID, 3), (PID, 9), (200, 3)):
        machine.opens(pid, fd, amdgpu(11))
    machine.opens(200, 4, amdgpu(11, device="0000:04:00.0"))
    assert machine.looks(1, PID, 200) == [(PID, 42), (200, 42)], "an id is one of a device"
    assert [one.device for one in machine.kept] == [PCI, "0000:04:00.0"]


def test_without_an_id_each_descriptor_is_taken_as_a_client(machine: Machine) -> None:
    text = "drm-driver:\told\ndrm-engine-a:\t3 ns\n"
    for pid, fd in ((PID, 3), (PID, 9), (200, 3)):
        machine.opens(pid, fd, text)
    assert machine.looks(1, PID, 200) == [(PID, 0), (PID, 0), (200, 0)]


def test_devices_of_other_majors_are_not_read(machine: Machine) -> None:
    machine.opens(PID, 3, amdgpu(11), major=195, name="renderD200")
    machine.opens(PID, 4, amdgpu(11, client=5))
    assert machine.looks(1, PID) == [(PID, 5)]


def test_too_many_processes_for_one_look_are_looked_at_in_turn(machine: Machine) -> None:
    pids = [PID, 200, 300]
    for client, pid in enumerate(pids, 1):
        machine.opens(pid, 3, amdgpu(client, client=client))
    machine.step_ns = 9_000_000
    assert machine.looks(0, *pids) == [(PID, 1)], "one look is 20 ms, and one process 18"
    assert machine.looks(0, *pids) == [(200, 2)]
    assert machine.looks(0, *pids) == [(300, 3)]
    assert machine.looks(0, *pids) == [], "what was not looked at is not gone"
    machine.closes(200, 3)
    assert machine.looks(0, PID, 300) == []
    machine.step_ns = 0
    assert sorted(machine.looks(0, PID, 300)) == []
    assert sorted(machine.ends()) == [(PID, 1), (300, 3)]


# What is made of it.


def test_both_sources_beside_one_another(tmp_path: Path) -> None:
    story = Jobs()
    story.reads(1_000, amdgpu(5_000, 70))
    for job, (begin, end, client) in enumerate(
        [(500, 1_300, 42), (1_300, 1_700, 42), (1_800, 2_900, 42), (2_950, 2_970, 41)], 1
    ):
        story.queue(begin - 100, job, TID, client_id=client)
        story.run(begin, job)
        story.done(end, job)
    story.reads(2_500, amdgpu(6_411, 83))
    told = story.analysed(tmp_path)
    assert told.table("clients") == [
        {
            "pid": PID,
            "device": PCI,
            "driver": "amdgpu",
            "client": 42,
            "over_ns": 1_500,
            "engines_ns": 1_411 + 13,
            "jobs_ns": 300 + 400 + 700,
            "difference_ns": 1_400 - 1_424,
            "jobs_by": "client",
        }
    ]
    assert [(row["engine"], row["engines"], row["busy_ns"], row["utilisation"]) for row in told.table("engines")] == [
        ("gfx", 1, 1_411, 1_411 / 1_500),
        ("compute", 1, 13, 13 / 1_500),
    ]


def test_clients_are_told_apart_by_id_and_device(tmp_path: Path) -> None:
    other = "0000:04:00.0"
    story = Jobs()
    for number, (client, device) in enumerate([(42, PCI), (43, PCI), (42, other)], 1):
        story.reads(100, amdgpu(0, client=client, device=device), fd=number)
        story.reads(1_100, amdgpu(number * 100, client=client, device=device), fd=number)
    for job, (client, device, busy) in enumerate([(42, PCI, 3), (43, PCI, 5), (42, other, 7)], 1):
        story.queue(200, job, TID, client_id=client, dev=device, ring=f"ring{job}")
        story.run(300, job)
        story.done(300 + busy, job)
    rows = story.analysed(tmp_path).table("clients")
    assert [(row["client"], row["device"], row["engines_ns"], row["jobs_ns"]) for row in rows] == [
        (42, other, 300, 7),
        (43, PCI, 200, 5),
        (42, PCI, 100, 3),
    ]


def test_without_ids_in_the_events_a_processs_jobs_are_its_only_clients(tmp_path: Path) -> None:
    story = Jobs()
    for pid, client in ((PID, 42), (200, 43)):
        story.reads(100, amdgpu(0, client=client), pid=pid)
        story.reads(1_100, amdgpu(29, client=client), pid=pid)
    for job, (pid, busy) in enumerate([(PID, 31), (200, 37), (200, 41)], 1):
        story.queue(200, job, TID if pid == PID else OTHER, pid=pid)
        story.run(100 + job * 100, job)
        story.done(100 + job * 100 + busy, job)
    rows = story.analysed(tmp_path).table("clients")
    assert [(row["pid"], row["jobs_ns"], row["difference_ns"], row["jobs_by"]) for row in rows] == [
        (PID, 31, 2, "process"),
        (200, 78, 49, "process"),
    ]


def test_without_ids_in_the_events_jobs_of_several_clients_are_given_to_none(tmp_path: Path) -> None:
    story = Jobs()
    for client in (42, 43):
        story.reads(100, amdgpu(0, client=client), fd=client)
        story.reads(1_100, amdgpu(client, client=client), fd=client)
    story.queue(200, 1, TID)
    story.run(300, 1)
    story.done(400, 1)
    rows = story.analysed(tmp_path).table("clients")
    assert [(row["client"], row["engines_ns"], row["jobs_ns"], row["jobs_by"]) for row in rows] == [
        (43, 43, None, None),
        (42, 42, None, None),
    ]


def test_without_jobs_of_the_device_there_is_nothing_to_compare(tmp_path: Path) -> None:
    story = Jobs()
    story.request("r", 100, 1_000, TID)
    story.reads(100, i915(1_000, 2_000))
    story.reads(1_100, i915(1_500, 3_400))
    told = story.analysed(tmp_path)
    (row,) = told.table("clients")
    assert (row["engines_ns"], row["jobs_ns"], row["difference_ns"]) == (1_900, None, None)
    assert [(row["engine"], row["engines"], row["busy_ns"], row["utilisation"]) for row in told.table("engines")] == [
        ("video", 2, 1_400, 0.7),
        ("render", 1, 500, 0.5),
    ]


def test_cycles_are_a_part_of_their_clock(tmp_path: Path) -> None:
    story = Jobs()
    story.request("r", 100, 1_000, TID)
    story.reads(1_000, xe(11, 0, 10_000))
    story.reads(3_000, xe(31, 0, 10_080))
    assert [(row["engine"], row["busy_ns"]) for row in story.analysed(tmp_path).table("engines")] == [("rcs", 500)]


def test_times_come_before_cycles_that_have_no_clock(tmp_path: Path) -> None:
    story = Jobs()
    story.reads(100, panfrost(23))
    story.reads(1_100, panfrost(64))
    story.queue(200, 1, TID, client_id=5, dev="fde60000.gpu")
    story.run(300, 1)
    story.done(341, 1)
    told = story.analysed(tmp_path)
    (row,) = told.table("clients")
    assert (row["device"], row["engines_ns"], row["jobs_ns"], row["difference_ns"]) == (None, 41, 41, 0)
    assert [(row["engine"], row["busy_ns"]) for row in told.table("engines")] == [("fragment", 41)]


def test_an_engine_is_listed_from_its_first_use_on_and_may_say_less_for_a_while(tmp_path: Path) -> None:
    story = Jobs()
    story.request("r", 100, 1_000, TID)
    story.reads(100, amdgpu(50).partition("drm-engine-compute")[0])
    story.reads(1_100, amdgpu(49, 12))
    assert [(row["engine"], row["busy_ns"]) for row in story.analysed(tmp_path).table("engines")] == [("compute", 12)]


def test_a_client_that_was_read_once_says_nothing_of_time(tmp_path: Path) -> None:
    story = Jobs()
    story.reads(500, amdgpu(1_000))
    story.queue(200, 1, TID, client_id=42)
    story.run(300, 1)
    story.done(900, 1)
    told = story.analysed(tmp_path)
    (row,) = told.table("clients")
    assert (row["client"], row["over_ns"], row["engines_ns"], row["jobs_ns"]) == (42, 0, None, None)
    assert told.table("engines") == []


def test_a_fact_that_is_damaged_is_left_out(tmp_path: Path) -> None:
    story = Jobs()
    story.request("r", 100, 1_000, TID)
    story._facts += [("drm.client", {"pid": "x"}), ("drm.client", {})]
    story.reads(100, amdgpu(0))
    story.reads(1_100, amdgpu(3))
    (row,) = story.analysed(tmp_path).table("clients")
    assert row["engines_ns"] == 3
