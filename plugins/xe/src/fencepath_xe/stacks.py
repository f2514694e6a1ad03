# SPDX-License-Identifier: Apache-2.0
"""Which links of a path the layer gives on which stack, for the support matrix."""

from __future__ import annotations

from fencepath.plugin import StackLink

__all__ = ["LINKS"]

_JOBS = "Vulkan, OpenGL, Level Zero on xe"
_LONG = "long-running queues on xe"

LINKS = (
    StackLink(stack=_JOBS, link="submit", state="built", text="`xe.job.exec`"),
    StackLink(stack=_JOBS, link="execute", state="built"),
    StackLink(stack=_JOBS, link="signal", state="built", text="`xe.hw_fence.signal` of queues with one engine"),
    StackLink(stack=_LONG, link="execute", state="no", text="nothing says when it runs"),
    StackLink(stack=_LONG, link="signal", state="no", text="completed by memory writes"),
    StackLink(stack=_LONG, link="wake", state="no", text="of XE_WAIT_USER_FENCE the call alone"),
)
