# SPDX-License-Identifier: Apache-2.0
"""Which links of a path the layer gives on which stack, for the support matrix."""

from __future__ import annotations

from fencepath.plugin import Link, LinkState, StackLink

__all__ = ["LINKS"]

_WAITS = "syncobj waits, dma_fence waits"


def _links(stack: str, state: LinkState, texts: dict[Link, str]) -> tuple[StackLink, ...]:
    return tuple(StackLink(stack=stack, link=link, state=state, text=text) for link, text in texts.items())


LINKS = (
    *_links(
        "simulated CUDA on the mock GPU driver",
        "seen",
        {
            "submit": "ioctl inside the call",
            "queue": "",
            "execute": "",
            "signal": "finished fence",
            "wake": "waits for syncobjs, points of timelines, sync_files and merged ones",
        },
    ),
    *_links(
        "Vulkan on amdgpu (RADV)",
        "built",
        {"submit": "AMDGPU_CS", "queue": "", "execute": "", "signal": "finished fence", "wake": _WAITS},
    ),
    *_links(
        "Vulkan, OpenGL on i915",
        "built",
        {
            "submit": "I915_GEM_EXECBUFFER2",
            "signal": "the fence, late if nobody waits",
            "wake": f"I915_GEM_WAIT, {_WAITS}",
        },
    ),
    *_links(
        "Vulkan, OpenGL, Level Zero on xe",
        "built",
        {
            "submit": "XE_EXEC",
            "queue": "",
            "execute": "",
            "signal": "finished fence",
            "wake": f"{_WAITS}; of XE_WAIT_USER_FENCE the call alone",
        },
    ),
    *_links("long-running queues on xe", "built", {"submit": "XE_EXEC", "queue": ""}),
    *_links(
        "Vulkan on nouveau (NVK)",
        "built",
        {
            "submit": "NOUVEAU_EXEC, NOUVEAU_VM_BIND, Linux 6.6+",
            "queue": "",
            "execute": "",
            "signal": "finished fence",
            "wake": "syncobj waits",
        },
    ),
    *_links(
        "OpenGL on nouveau (PUSHBUF)",
        "built",
        {
            "submit": "NOUVEAU_GEM_PUSHBUF",
            "signal": "fences of nouveau, tied to no job",
            "wake": "NOUVEAU_GEM_CPU_PREP, dma_fence waits",
        },
    ),
    *_links("OpenGL on nouveau (PUSHBUF)", "no", {"queue": "past the scheduler"}),
    *_links(
        "OpenCL on Mesa (rusticl)",
        "built",
        {
            "submit": "as of the driver below it",
            "queue": "where the driver below it has it",
            "execute": "where the driver below it has it",
            "signal": "as of the driver below it",
            "wake": "as of the driver below it",
        },
    ),
    *(
        StackLink(stack=stack, link="call", state="no", text="no layer")
        for stack in (
            "Vulkan on amdgpu (RADV)",
            "Vulkan, OpenGL on i915",
            "Vulkan, OpenGL, Level Zero on xe",
            "long-running queues on xe",
            "Vulkan on nouveau (NVK)",
            "OpenGL on nouveau (PUSHBUF)",
            "OpenCL on Mesa (rusticl)",
        )
    ),
)
