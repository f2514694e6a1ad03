# SPDX-License-Identifier: Apache-2.0
"""Kinds of the layer ``acme`` and the layout of what its own BPF program writes.

Records of calls need no layout here: the call table has it. A kind that others may have recorded is changed by adding
columns with a default only, and raising its version.
"""

from __future__ import annotations

from typing import ClassVar

from fencepath.events import S32, U32, U64, Event, Key, KindInfo, Role
from fencepath.records import HEADER, Field, RecordLayout

__all__ = [
    "DOORBELL",
    "DOORBELL_LAYOUT",
    "DOORBELL_SIGNAL",
    "EVENTS",
    "STREAM",
    "STREAM_CREATE",
    "STREAM_DESTROY",
    "SUBMIT",
    "WAIT",
    "Call",
    "Doorbell",
    "StreamCreate",
    "StreamDestroy",
    "Submit",
    "Wait",
]

STREAM_CREATE, STREAM_DESTROY = "acme.stream.create", "acme.stream.destroy"
SUBMIT, WAIT, DOORBELL = "acme.submit", "acme.wait", "acme.doorbell"

STREAM = "acme.stream"
"""Type of the entity that a stream is."""

DOORBELL_SIGNAL = 40
"""The signal by which libacme rings a device; libacme.c has the same number."""

DOORBELL_LAYOUT = RecordLayout(DOORBELL, (*HEADER, Field("device_tid", "u32"), Field("delivery", "s32")))

_STREAM_KEY = Key("stream", STREAM)


class Call(Event, frozen=True, kw_only=True):
    """What every call has. It names a stream; the column ``stream`` is added by the entity tracker.

    Attributes:
        label: the function, as index in the batch's ``labels``.
        returned: whether the return was recorded, without which ``result`` means nothing.
        result: 0, or a negative errno.
        stream_handle: the stream's address in its process; 0 if it is not known.
    """

    label: S32
    returned: bool
    result: S32
    stream_handle: U64


class StreamCreate(Call, frozen=True, kw_only=True, tag=STREAM_CREATE):
    """A stream is made; its handle is known when the call returns."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.LIFE, keep=True, keys=(_STREAM_KEY,))


class StreamDestroy(Call, frozen=True, kw_only=True, tag=STREAM_DESTROY):
    """A stream is ended. Its handle may be given to the next one."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.LIFE, keep=True, keys=(_STREAM_KEY,))


class Submit(Call, frozen=True, kw_only=True, tag=SUBMIT):
    """A job is put on a stream. The call returns when the device was told, not when the job has run.

    Attributes:
        kernel: what the job runs.
        bytes: what it works on.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.CALL, keys=(_STREAM_KEY,))

    kernel: U32
    bytes: U64


class Wait(Call, frozen=True, kw_only=True, tag=WAIT):
    """A thread waits until every job of a stream has run."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.WAIT, keys=(_STREAM_KEY,))


class Doorbell(Event, frozen=True, kw_only=True, tag=DOORBELL):
    """A device is told that there is work. An instant, in the context of the thread that tells it.

    Attributes:
        device_tid: thread that plays the device.
        delivery: what became of the signal: 0 delivered, 1 ignored, 2 already pending, 3 and 4 lost for want of room.
            0 where the kernel does not say.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.SUBMIT)

    device_tid: U32
    delivery: S32


EVENTS: tuple[type[Event], ...] = (StreamCreate, StreamDestroy, Submit, Wait, Doorbell)
"""All kinds. The tracker gets those that are kept first, in this order: what makes handles before what ends them."""
