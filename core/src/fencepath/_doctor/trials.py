# SPDX-License-Identifier: Apache-2.0
"""Small programs and maps that are loaded and thrown away: what this kernel takes from this process is found by trying."""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from fencepath._bpf import sys as bpf
from fencepath._bpf.maps import PERMISSION_REMEDY, Map
from fencepath._doctor.state import Trial

__all__ = ["HELPERS", "Helper", "program_name", "try_all"]

_MAP_BY_FD = 1
_STACK = 10
_LOG_BYTES = 1 << 14
_RETURN = struct.pack("<BBhiBBhi", 0xB7, 0, 0, 0, 0x95, 0, 0, 0)
_STATISTICS = ("processed ", "verification time ", "stack depth ")

_PROGRAMS = {
    "uprobe": bpf.ProgramType.UPROBE,
    "tracepoint": bpf.ProgramType.TRACEPOINT,
    "raw tracepoint": bpf.ProgramType.RAW_TRACEPOINT,
}
_MAPS: Mapping[str, Callable[[], Map]] = {
    "hash": partial(Map.hash, "fp_trial", 4, 4, 16),
    "array": partial(Map.array, "fp_trial", 8, 16),
    "ring buffer": partial(Map, bpf.MapType.RINGBUF, "fp_trial", key_size=0, value_size=0, max_entries=4096),
}


def _ins(code: int, destination: int = 0, source: int = 0, offset: int = 0, value: int = 0) -> bytes:
    return struct.pack("<BBhi", code, source << 4 | destination, offset, value)


_ONE_KEY = _ins(0x62, _STACK, offset=-4)
_KEY_POINTER = _ins(0xBF, 2, _STACK) + _ins(0x07, 2, value=-4)
_VALUE_POINTER = _ins(0xBF, 3, _STACK) + _ins(0x07, 3, value=-4)
_BUFFER = _ins(0xBF, 1, _STACK) + _ins(0x07, 1, value=-8) + _ins(0xB7, 2, value=8) + _ins(0xB7, 3)


class Helper(NamedTuple):
    """A helper and how it is called for a trial.

    Attributes:
        number: ``enum bpf_func_id``.
        body: instructions that prepare its arguments; 8 bytes each.
        where: types of programs that call it.
        map_name: of the map that is its first argument, "" if none is.
    """

    number: int
    body: bytes
    where: tuple[str, ...]
    map_name: str = ""


_BOTH = ("uprobe", "tracepoint")

HELPERS: Mapping[str, Helper] = {
    "bpf_map_lookup_elem": Helper(1, _ONE_KEY + _KEY_POINTER, _BOTH, "hash"),
    "bpf_map_update_elem": Helper(2, _ONE_KEY + _KEY_POINTER + _VALUE_POINTER + _ins(0xB7, 4), _BOTH, "hash"),
    "bpf_map_delete_elem": Helper(3, _ONE_KEY + _KEY_POINTER, _BOTH, "hash"),
    "bpf_ktime_get_ns": Helper(5, b"", _BOTH),
    "bpf_get_smp_processor_id": Helper(8, b"", _BOTH),
    "bpf_get_current_pid_tgid": Helper(14, b"", _BOTH),
    "bpf_get_current_task": Helper(35, b"", _BOTH),
    "bpf_get_current_cgroup_id": Helper(80, b"", ("tracepoint",)),
    "bpf_probe_read_user": Helper(112, _BUFFER, _BOTH),
    "bpf_probe_read_kernel": Helper(113, _BUFFER, _BOTH),
    "bpf_probe_read_user_str": Helper(114, _BUFFER, _BOTH),
    "bpf_probe_read_kernel_str": Helper(115, _BUFFER, _BOTH),
    "bpf_get_current_ancestor_cgroup_id": Helper(123, _ins(0xB7, 1, value=1), ("tracepoint",)),
    "bpf_ringbuf_reserve": Helper(131, _ins(0xB7, 2, value=32) + _ins(0xB7, 3), _BOTH, "ring buffer"),
    "bpf_get_attach_cookie": Helper(174, b"", ("uprobe",)),
}
"""Every helper that fencepath's programs call."""


def program_name(program_type: str) -> str:
    """Name of the trial of a program type."""
    return f"program {program_type}"


def try_all() -> dict[str, Trial]:
    """Try program types, maps and helpers. Nothing stays."""
    trials: dict[str, Trial] = {}
    for name, kind in _PROGRAMS.items():
        trials[program_name(name)] = _try(partial(_load, kind, _RETURN))
    with contextlib.ExitStack() as made:
        maps: dict[str, Map] = {}
        for name, create in _MAPS.items():
            trials[f"map {name}"] = _try(partial(_make, maps, name, create, made))
        trials.update(_helpers(trials, maps))
    trials["perf event"] = _try(_perf_event)
    return trials


def _make(maps: dict[str, Map], name: str, create: Callable[[], Map], made: contextlib.ExitStack) -> None:
    maps[name] = made.enter_context(create())


def _helpers(trials: Mapping[str, Trial], maps: Mapping[str, Map]) -> Iterator[tuple[str, Trial]]:
    """Only where the program type itself loads, and the map is there: else each would say the same."""
    for name, helper in HELPERS.items():
        for where in helper.where:
            if not trials[program_name(where)].works or (helper.map_name and helper.map_name not in maps):
                continue
            code = _program(helper, maps[helper.map_name].fd if helper.map_name else -1)
            yield f"helper {name} in {where}", _try(partial(_load, _PROGRAMS[where], code))


def _program(helper: Helper, fd: int) -> bytes:
    head = _ins(0x18, 1, _MAP_BY_FD, value=fd) + _ins(0) if helper.map_name else b""
    call = _ins(0x85, value=helper.number)
    if helper.number == HELPERS["bpf_ringbuf_reserve"].number:
        # what was reserved has to be given back: if (r0) bpf_ringbuf_discard(r0, 0)
        give_back = _ins(0x15, 0, offset=3) + _ins(0xBF, 1, 0) + _ins(0xB7, 2) + _ins(0x85, value=133)
        return head + helper.body + call + give_back + _RETURN
    return head + helper.body + call + _RETURN


def _load(kind: bpf.ProgramType, code: bytes) -> None:
    log = ctypes.create_string_buffer(_LOG_BYTES)
    try:
        os.close(bpf.prog_load(kind, "fp_trial", code, log=log))
    except OSError as error:
        lines = [line for line in log.value.decode(errors="replace").splitlines() if not line.startswith(_STATISTICS)]
        if lines:
            raise OSError(error.errno, lines[-1]) from error
        raise


def _perf_event() -> None:
    """Open the event of a tracepoint, which counts nothing until it is enabled."""
    from fencepath._bpf.attach import tracefs

    number = int((tracefs() / "events/sched/sched_process_exec/id").read_text())
    os.close(bpf.perf_event_open(2, number))


def _try(action: Callable[[], object]) -> Trial:
    try:
        action()
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        return Trial(works=False, why=why, remedy=PERMISSION_REMEDY if isinstance(error, PermissionError) else "")
    except Exception as error:  # noqa: BLE001 - a trial that cannot be made has failed
        return Trial(works=False, why=str(error), remedy=getattr(error, "remedy", ""))
    return Trial(works=True)
