# SPDX-License-Identifier: Apache-2.0
"""What of the live suite runs in the VM, and what is left out there because of its time."""

from __future__ import annotations

__all__ = ["FILES", "LEFT_OUT"]

FILES = (
    "tests/kernel",
    "tests/core/test_bpf_attach.py",
    "tests/core/test_bpf_maps.py",
    "tests/core/test_bpf_rings.py",
    "tests/core/test_builtin_bpf.py",
    "tests/core/test_calls_live.py",
    "tests/core/test_syscalls_live.py",
    "tests/core/test_tracepoints_live.py",
    "tests/core/test_mark.py",
    "plugins/host/tests/test_host_live.py",
    "tests/core/test_bpf_compiler.py",
    "tests/core/test_libraries_mapped.py",
)

LEFT_OUT: dict[str, str] = {}
