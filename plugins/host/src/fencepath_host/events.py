# SPDX-License-Identifier: Apache-2.0
"""Kinds of the layer ``host`` and the layouts of their records."""

from __future__ import annotations

from typing import ClassVar

from fencepath.events import S32, U8, U16, U32, Category, Event, KindInfo, Role
from fencepath.records import HEADER, INTERVAL, Field, RecordLayout

__all__ = [
    "IRQ",
    "IRQ_LAYOUT",
    "IRQ_NAME_BYTES",
    "SWITCH",
    "SWITCH_LAYOUT",
    "WAKING",
    "WAKING_LAYOUT",
    "Irq",
    "Switch",
    "Waking",
]

SWITCH, WAKING, IRQ = "host.switch", "host.waking", "host.irq"

IRQ_NAME_BYTES = 28
"""Room for an interrupt's name, NUL included: what makes its record 64 bytes."""

# The thread that leaves the CPU is the header's.
SWITCH_LAYOUT = RecordLayout(
    SWITCH,
    (*HEADER, Field("next_tid", "u32"), Field("prev_state", "u16"), Field("prev_prio", "u8"), Field("next_prio", "u8")),
)
WAKING_LAYOUT = RecordLayout(
    WAKING, (*HEADER, Field("wakee_tid", "u32"), Field("target_cpu", "u16"), Field("reserved", "u16"))
)
IRQ_LAYOUT = RecordLayout(IRQ, (*INTERVAL, Field("irq", "s32"), Field("name", f"char[{IRQ_NAME_BYTES}]")))


class Switch(Event, frozen=True, kw_only=True, tag=SWITCH):
    """A CPU went from one thread to another.

    Attributes:
        prev_tid: who left it; 0 is the idle task. The event's own thread, unless it is 0.
        prev_state: 0 if it could go on (preempted, or gave way), else what it is in, as bits of the kernel's report:
            1 interruptible sleep, 2 uninterruptible sleep, 4 stopped, 8 traced, 16 and 32 dead, 64 parked, 128 idle
            worker.
        next_tid: who got it; 0 is the idle task.
        prev_prio: kernel priority: 0 to 99 real time, 100 to 139 normal (120 is nice 0), 255 deadline.
        next_prio: likewise.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.RUN_STATE)

    prev_tid: U32
    prev_state: U16
    next_tid: U32
    prev_prio: U8
    next_prio: U8


class Waking(Event, frozen=True, kw_only=True, tag=WAKING):
    """A thread is made runnable. With TASK the event's thread did it, without it an interrupt on its CPU.

    Attributes:
        wakee_tid: who is woken.
        target_cpu: CPU it was on; the scheduler may choose another one after that.
        interrupt_cpu: CPU of the interrupt that wakes, -1 if a thread does.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.WAKE)

    wakee_tid: U32
    target_cpu: U16
    interrupt_cpu: S32


class Irq(Event, frozen=True, kw_only=True, tag=IRQ):
    """A device's interrupt handler, from its entry to its exit. `tgid` and `tid` name whoever was interrupted.

    Attributes:
        irq: number, as in /proc/interrupts.
        name: of the handler, its first 27 bytes.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.SIGNAL, category=Category.INTERRUPT)

    irq: S32
    name: str
