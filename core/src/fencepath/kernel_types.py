# SPDX-License-Identifier: Apache-2.0
"""What the kernel says of its own types (BTF), for BPF programs that read its structures."""

from __future__ import annotations

from fencepath._bpf.btf import member_offsets

__all__ = ["member_offsets"]
