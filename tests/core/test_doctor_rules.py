# SPDX-License-Identifier: Apache-2.0
"""What is said of captured states of machines. Those in ``machines/`` are written by hand, after what such machines show."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from fencepath._doctor import MachineState, judge, judge_layers, load_state, save_state
from fencepath._doctor.gate import Gate, check_uprobes, gate_of
from fencepath.errors import MachineError, NewerFormatError, UsageError
from fencepath.plugin import Check

MACHINES = Path(__file__).parent / "machines"

# What is not ok on each, and a part of what is said of it.
SAID: dict[str, dict[str, tuple[str, str]]] = {
    "debian-13": {},
    "lockdown-confidentiality": {
        "lockdown": ("refuse", "locked down for confidentiality"),
        "tracefs": ("refuse", "may not be read"),
        "bpf_probe_read_kernel in uprobe": ("refuse", "cannot use helper"),
        "bpf_probe_read_kernel in tracepoint": ("refuse", "cannot use helper"),
        "bpf_probe_read_kernel_str in uprobe": ("refuse", "cannot use helper"),
        "bpf_probe_read_kernel_str in tracepoint": ("refuse", "cannot use helper"),
        "kernel symbols": ("warn", "addresses not"),
    },
    "lockdown-integrity": {},
    "no-btf": {"BTF": ("degrade", "is not there")},
    "no-tracefs": {"tracefs": ("refuse", "tracefs is not mounted")},
    "paranoid-4": {
        "perf events": ("refuse", "kernel.perf_event_paranoid is 4"),
        "uprobes": ("refuse", "permission denied"),
    },
    "container-without-bpf": {
        "privileges": ("refuse", "no CAP_BPF"),
        "namespaces": ("refuse", "in a pid namespace of its own"),
        "tracefs": ("refuse", "not mounted"),
        "uprobes": ("refuse", "not permitted"),
        "CAP_SYS_PTRACE": ("warn", ""),
        "CAP_DAC_READ_SEARCH": ("warn", ""),
        "CAP_SYS_NICE": ("warn", ""),
        "CAP_SYSLOG": ("warn", ""),
        "kernel symbols": ("warn", ""),
    },
    "plain-user": {
        "privileges": ("refuse", "user 1000 may not create bpf maps (no CAP_BPF), is not permitted to trace"),
        "tracefs": ("refuse", "may not be read"),
        "uprobes": ("refuse", "not permitted"),
        "CAP_SYS_PTRACE": ("warn", ""),
        "CAP_DAC_READ_SEARCH": ("warn", ""),
        "CAP_SETUID": ("warn", ""),
        "CAP_KILL": ("warn", ""),
        "CAP_CHOWN": ("warn", ""),
        "CAP_SYS_NICE": ("warn", ""),
        "CAP_SYSLOG": ("warn", ""),
        "kernel symbols": ("warn", ""),
    },
    "user-with-capabilities": {
        "CAP_SYS_PTRACE": ("warn", ""),
        "CAP_SETUID": ("warn", ""),
        "CAP_KILL": ("warn", ""),
        "CAP_CHOWN": ("warn", ""),
        "CAP_SYS_NICE": ("warn", ""),
        "CAP_SYSLOG": ("warn", ""),
        "kernel symbols": ("warn", ""),
    },
    "preemptible-private-stacks": {"private stacks": ("refuse", "preemption is full")},
    "unknown-preemption": {"private stacks": ("refuse", "preemption is not known to be off")},
    "private-stacks-without-preemption": {"private stacks": ("warn", "preemption is none")},
    "private-stacks-avoided": {},
    "arm64": {
        "architecture": ("refuse", "can go on at the wrong one"),
        "cost of a probe": ("warn", "cannot be measured on aarch64"),
    },
    "uretprobe-refused-by-filters": {"return probes": ("degrade", "does not know uretprobe(2)")},
    "by-perf-events": {"uprobes": ("warn", "CVE-2025-38466")},
    "by-perf-events-few-files": {
        "uprobes": ("warn", "one perf event each"),
        "open files": ("degrade", "limit 1024, about 1268 needed"),
    },
    "memlock-counted": {
        "RLIMIT_MEMLOCK": ("refuse", "64 KiB"),
        "BPF map hash": ("refuse", "cannot be created"),
        "BPF map array": ("refuse", "cannot be created"),
        "BPF map ring buffer": ("refuse", "cannot be created"),
        "CAP_SYS_PTRACE": ("warn", ""),
        "CAP_SETUID": ("warn", ""),
        "CAP_KILL": ("warn", ""),
        "CAP_CHOWN": ("warn", ""),
        "CAP_SYS_NICE": ("warn", ""),
        "CAP_SYSLOG": ("warn", ""),
    },
    "helper-missing": {
        "bpf_get_attach_cookie in uprobe": ("degrade", "unknown func"),
        "bpf_get_current_ancestor_cgroup_id in tracepoint": ("degrade", "unknown func"),
    },
    "slow-clock": {"clock source": ("warn", "hpet")},
    "no-bcc": {"BCC": ("refuse", "not installed")},
    "bcc-cannot-compile": {"BCC": ("refuse", "BCC 0.18.0 with clang 11.0.1")},
    "process-seccomp": {"seccomp of 4242": ("warn", "has a seccomp filter")},
    "process-shadow-stack": {"shadow stack of 4242": ("degrade", "x86_Thread_features")},
    "process-io-uring": {"io_uring of 4242": ("warn", "2 rings open")},
    "process-io-uring-disabled": {},
    "process-32-bit": {"program of 4242": ("degrade", "32-bit")},
    "process-coroutines": {"coroutines of 4242": ("warn", "_greenlet")},
    "process-in-container": {},
    "process-of-another-user": {
        "libraries of 4242": ("degrade", "may not be read"),
        "io_uring of 4242": ("warn", "may not be seen"),
        "CAP_SYS_PTRACE": ("warn", ""),
        "CAP_DAC_READ_SEARCH": ("warn", ""),
        "CAP_SETUID": ("warn", ""),
        "CAP_KILL": ("warn", ""),
        "CAP_CHOWN": ("warn", ""),
        "CAP_SYS_NICE": ("warn", ""),
        "CAP_SYSLOG": ("warn", ""),
    },
    "static-runtime": {"cuda runtime API of 4242": ("warn", "linked in statically")},
    "linked-in-runtime": {"cuda in /opt/server/server": ("warn", "linked in statically")},
    "stepped-and-older-library": {},
    "unreadable-library": {
        "cuda in /usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04": ("degrade", "no ELF file"),
    },
    "drm-6.17-early": {},
    "drm-6.18": {},
}


def machine(name: str) -> MachineState:
    return load_state(MACHINES / f"{name}.json")


def checks_of(name: str) -> dict[str, Check]:
    return {check.name: check for check in judge(machine(name))}


def test_every_machine_is_judged() -> None:
    assert {path.stem for path in MACHINES.glob("*.json")} == set(SAID)


@pytest.mark.parametrize("name", SAID)
def test_what_is_said_of_a_machine(name: str) -> None:
    found = {check.name: check for check in judge(machine(name)) if check.verdict != "ok"}
    assert {name: check.verdict for name, check in found.items()} == {
        name: verdict for name, (verdict, _) in SAID[name].items()
    }
    for check_name, (_, part) in SAID[name].items():
        assert part in found[check_name].evidence


@pytest.mark.parametrize("name", SAID)
def test_every_check_says_what_it_costs_and_how_to_mend_it(name: str) -> None:
    checks = judge(machine(name))
    names = [check.name for check in checks]
    assert len(names) == len(set(names))
    for check in checks:
        assert check.evidence
        assert bool(check.cost) == (check.verdict != "ok"), check.name
        if check.verdict == "refuse":
            assert check.remedy, check.name


@pytest.mark.parametrize(
    ("name", "said"),
    {
        "lockdown-confidentiality": "locked down for confidentiality",
        "no-tracefs": "tracefs is not mounted; run: mount -t tracefs",
        "container-without-bpf": "root may not create bpf maps (no CAP_BPF)",
        "plain-user": "user 1000 may not create bpf maps",
        "arm64": "aarch64",
        "memlock-counted": "cannot be created",
        "paranoid-4": "kernel.perf_event_paranoid is 4",
    }.items(),
)
def test_record_is_refused(name: str, said: str) -> None:
    with pytest.raises(MachineError, match=re.escape(said)):
        gate_of(machine(name))


@pytest.mark.parametrize("name", ["preemptible-private-stacks", "unknown-preemption"])
def test_only_uprobes_are_refused(name: str) -> None:
    gate = gate_of(machine(name))
    with pytest.raises(MachineError, match="preemption is"):
        check_uprobes(gate.checks)


@pytest.mark.parametrize("name", ["uretprobe-refused-by-filters", "process-shadow-stack"])
def test_return_probes_are_left_out(name: str) -> None:
    gate = gate_of(machine(name))
    assert not gate.returns
    check_uprobes(gate.checks)


@pytest.mark.parametrize(
    "name", ["debian-13", "private-stacks-avoided", "process-coroutines", "user-with-capabilities"]
)
def test_nothing_is_left_out(name: str) -> None:
    gate = gate_of(machine(name))
    check_uprobes(gate.checks)
    assert gate == Gate(tuple(check for check in judge(machine(name)) if check.verdict != "ok"), returns=True)


def test_an_early_6_17_is_told_by_the_layer_that_has_the_event() -> None:
    name = "tracepoint gpu_scheduler:drm_sched_job_unschedulable"
    early = {check.name: check for layer, check in judge_layers(machine("drm-6.17-early")) if layer == "drm"}
    later = {check.name: check for layer, check in judge_layers(machine("drm-6.18")) if layer == "drm"}
    assert early[name].verdict != "ok"
    assert early[name].cost
    assert later[name].verdict == "ok"


def test_a_machine_without_formats_says_nothing_of_layers() -> None:
    assert judge_layers(machine("no-tracefs")) == []


def test_probe_sets_of_modules_that_are_not_loaded_are_no_loss() -> None:
    said = {check.name: check for layer, check in judge_layers(machine("drm-6.18")) if layer == "i915"}
    absent = next(check for check in said.values() if "group i915" in check.evidence)
    assert absent.verdict == "ok"


class TestFiles:
    def test_a_state_survives(self, tmp_path: Path) -> None:
        for name in SAID:
            save_state(machine(name), tmp_path / "s.json")
            assert load_state(tmp_path / "s.json") == machine(name)

    @pytest.mark.parametrize("text", ["", "{}", "[]", '{"schema": "fencepath.report/1"}', '{"schema": 7}'])
    def test_something_else(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "s.json").write_text(text)
        with pytest.raises(UsageError, match="is no captured state of a machine"):
            load_state(tmp_path / "s.json")

    def test_a_newer_one(self, tmp_path: Path) -> None:
        (tmp_path / "s.json").write_text('{"schema": "fencepath.machine/2"}')
        with pytest.raises(NewerFormatError, match="upgrade fencepath"):
            load_state(tmp_path / "s.json")

    def test_of_a_wrong_type(self, tmp_path: Path) -> None:
        (tmp_path / "s.json").write_text('{"schema": "fencepath.machine/1", "uid": "root"}')
        with pytest.raises(UsageError, match="uid"):
            load_state(tmp_path / "s.json")

    def test_none_there(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="no such file"):
            load_state(tmp_path / "s.json")

    def test_nowhere_to_write(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="cannot write"):
            save_state(machine("debian-13"), tmp_path / "none/s.json")

    def test_fields_of_a_later_version_are_passed_over(self, tmp_path: Path) -> None:
        state = msgspec.json.decode((MACHINES / "debian-13.json").read_bytes()) | {"colour": "blue"}
        (tmp_path / "s.json").write_bytes(msgspec.json.encode(state))
        assert load_state(tmp_path / "s.json") == machine("debian-13")
