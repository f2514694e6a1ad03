# SPDX-License-Identifier: Apache-2.0
"""Which links of a path the layer gives on which stack, for the support matrix."""

from __future__ import annotations

from fencepath.plugin import StackLink

__all__ = ["LINKS"]

_ROCM = "ROCm on KFD"
_VULKAN = "Vulkan on amdgpu (RADV)"

LINKS = (
    StackLink(stack=_ROCM, link="call", state="no", text="no layer"),
    StackLink(stack=_ROCM, link="submit", state="no", text="a doorbell"),
    StackLink(stack=_ROCM, link="queue", state="no", text="queues in the program's memory"),
    StackLink(stack=_ROCM, link="execute", state="no", text="the kernel has no event for it"),
    StackLink(stack=_ROCM, link="signal", state="no", text="of evictions only"),
    StackLink(stack=_ROCM, link="wake", state="built", text="`amdgpu.kfd.wait`, for what is not known"),
    StackLink(stack=_VULKAN, link="submit", state="built", text="`amdgpu.cs`, with the job's fence"),
    StackLink(stack=_VULKAN, link="execute", state="built", text="`amdgpu.run`"),
)
