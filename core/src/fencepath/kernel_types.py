# SPDX-License-Identifier: Apache-2.0
"""What the kernel says of its own types (BTF), for programs that read its structures.

A plugin asks when its probes are declared, and hands what it is told to its BPF programs as macros. A kernel or a module may have
been built without, and a structure changes from version to version: what is not found must not be needed.
"""

from __future__ import annotations

from fencepath._bpf.btf import KernelTypes

__all__ = ["KernelTypes"]
