# SPDX-License-Identifier: Apache-2.0
"""Which links of a path the layer gives on which stack, for the support matrix."""

from __future__ import annotations

from fencepath.plugin import StackLink

__all__ = ["LINKS"]

_STACK = "Vulkan, OpenGL on i915"
_LOW_LEVEL = "with low-level tracepoints only, which Debian's kernels do not have"

LINKS = (
    StackLink(stack=_STACK, link="submit", state="built", text="`i915.request.queue`, `i915.request.add`"),
    StackLink(
        stack=_STACK,
        link="queue",
        state="no",
        text="i915 has a scheduler of its own; dependencies with low-level tracepoints only",
    ),
    StackLink(stack=_STACK, link="execute", state="built", text=_LOW_LEVEL),
    StackLink(stack=_STACK, link="wake", state="built", text="`i915.request.wait`"),
)
