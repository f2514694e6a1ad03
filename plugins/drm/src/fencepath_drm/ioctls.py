# SPDX-License-Identifier: Apache-2.0
"""System calls on DRM devices.

The requests from 0x40 on are each driver's own and their numbers overlap, so a driver's are only known on devices that are
bound to it. Sources: include/uapi/drm/*.h of Linux 7.3.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from fencepath.plugin import Detail
from fencepath.syscalls import DeviceClass, IoctlDecoder, Read, SyscallTable

__all__ = ["DRIVERS", "OTHER", "Requests", "ioctl_table"]

SUBMIT, WAIT, IOCTL = "drm.job.submit", "drm.wait", "drm.ioctl"

OTHER = "other"
"""Name of the row for requests that have none of their own."""

_MAJOR = 226
_TYPE = 0x64


class Requests(msgspec.Struct, frozen=True):
    """Requests of a driver by number, the name as in the kernel's header.

    Attributes:
        submits: those that hand work to it.
        waits: those that block until work is done.
    """

    submits: Mapping[int, str] = {}
    waits: Mapping[int, str] = {}


DRIVERS: Mapping[str, Requests] = {
    "amdgpu": Requests(
        {0x44: "AMDGPU_CS", 0x57: "AMDGPU_USERQ_SIGNAL"},
        {0x47: "AMDGPU_GEM_WAIT_IDLE", 0x49: "AMDGPU_WAIT_CS", 0x52: "AMDGPU_WAIT_FENCES"},
    ),
    "i915": Requests({0x69: "I915_GEM_EXECBUFFER2"}, {0x6C: "I915_GEM_WAIT"}),
    "nouveau": Requests(
        {0x51: "NOUVEAU_VM_BIND", 0x52: "NOUVEAU_EXEC", 0x81: "NOUVEAU_GEM_PUSHBUF"}, {0x82: "NOUVEAU_GEM_CPU_PREP"}
    ),
    "radeon": Requests({0x66: "RADEON_CS"}, {0x64: "RADEON_GEM_WAIT_IDLE"}),
    "virtio_gpu": Requests({0x42: "VIRTGPU_EXECBUFFER"}, {0x48: "VIRTGPU_WAIT"}),
    "xe": Requests({0x45: "XE_VM_BIND", 0x49: "XE_EXEC"}, {0x4A: "XE_WAIT_USER_FENCE"}),
}
"""By kernel driver."""

# struct drm_syncobj_wait, struct drm_syncobj_timeline_wait
_SYNCOBJS = (Read("handle", "u32", 0, via=0), Read("count", "u32", 16))
_POINTS = (Read("handle", "u32", 0, via=0), Read("point", "u64", 0, via=8), Read("count", "u32", 24))
_CORE_WAITS = {
    0x3A: ("WAIT_VBLANK", ()),
    0xC3: ("SYNCOBJ_WAIT", _SYNCOBJS),
    0xCA: ("SYNCOBJ_TIMELINE_WAIT", _POINTS),
}


def ioctl_table(detail: Detail, drivers: Mapping[str, Requests] = DRIVERS) -> SyscallTable:
    """Return what is recorded of ioctls: waits always, the rest from ``launch`` on.

    Args:
        detail: detail of the recording.
        drivers: requests by kernel driver.
    """
    classes = {"drm": Requests()} | {f"drm-{name}": requests for name, requests in drivers.items()}
    devices = [DeviceClass("drm", drivers=("drm",), major=_MAJOR)]
    devices += [DeviceClass(f"drm-{name}", drivers=("drm",), major=_MAJOR, kernel_driver=name) for name in drivers]
    decoders = [
        decoder
        for device, requests in classes.items()
        for decoder in _decoders(device, requests)
        if decoder.kind == WAIT or detail != "sync"
    ]
    return SyscallTable(devices, decoders)


def _decoders(device: str, requests: Requests) -> Iterator[IoctlDecoder]:
    for number, (name, values) in _CORE_WAITS.items():
        yield IoctlDecoder(WAIT, device, name, type=_TYPE, number=number, values=values)
    for kind, named in ((WAIT, requests.waits), (SUBMIT, requests.submits)):
        for number, name in named.items():
            yield IoctlDecoder(kind, device, name, type=_TYPE, number=number)
    yield IoctlDecoder(IOCTL, device, OTHER)
