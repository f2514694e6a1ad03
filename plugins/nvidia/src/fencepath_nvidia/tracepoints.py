# SPDX-License-Identifier: Apache-2.0
"""What is taken from kernel tracepoints: the driver's own for errors, and the kernel's log."""

from __future__ import annotations

from fencepath.tracepoints import Always, Take, TracepointRecord
from fencepath_nvidia.events import LOG_LAYOUT
from fencepath_nvidia.kinds import LOG, SXID, XID

__all__ = ["CONSOLE", "SXID_RECORD", "XID_RECORD"]

# 512 bytes with the header
_ERROR = (Take("error_code", "u32", as_="code"), Take("dev", "char[28]"), Take("msg", "char[456]", as_="message"))

XID_RECORD = TracepointRecord(kind=XID, group="nvidia", event="nvidia_dev_xid", fields=_ERROR, when=(Always(),))
"""From driver 575.51.02 on, open flavour only: the kernel registers no tracepoints of a proprietary module."""

SXID_RECORD = TracepointRecord(kind=SXID, group="nvswitch", event="nvswitch_dev_sxid", fields=_ERROR, when=(Always(),))

CONSOLE = TracepointRecord(
    kind=LOG, group="printk", event="console", fields=(Take("msg", LOG_LAYOUT.fields[-1].type, as_="text"),)
)
