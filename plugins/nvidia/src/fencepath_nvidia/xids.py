# SPDX-License-Identifier: Apache-2.0
"""What Xid codes mean and what to do about them.

``data/xid.csv`` has names and the first action of NVIDIA's catalogue by code; meanings are in words of this project. A code
that is not in it is shown by its number.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

import msgspec

from fencepath_nvidia.tables import read_rows

__all__ = ["XidInfo", "describe"]

_ADVICE: Mapping[str, str] = {
    "RESTART_APP": "restart the program; if it happens again, run it under compute-sanitizer, then suspect the GPU",
    "RESET_GPU": "stop what uses the GPU and reset it (nvidia-smi --gpu-reset), or reboot",
    "RESTART_BM": "reboot the machine; if it happens again, look at power, seat and PCIe link of the GPU",
    "RESTART_VM": "restart the virtual machine",
    "CONTACT_SUPPORT": "collect nvidia-bug-report.sh and ask whoever supports the GPU",
    "CHECK_MECHANICALS": "check power cables, cooling and the GPU's seat",
    "UPDATE_SWFW": "update driver and firmware",
    "CHECK_UVM": "look for an error of nvidia-uvm in the kernel's log beside it",
    "IGNORE": "nothing has to be done for this one alone",
    "WORKFLOW_XID_45": "look for the Xid before it: this one only says that channels were ended after another error",
    "WORKFLOW_XID_48": "drain the GPU and reset it; replace it if Xid 64 follows or rows cannot be remapped",
    "WORKFLOW_NVLINK_ERR": "look at the links (nvidia-smi nvlink --status); reset the GPUs on both ends if it repeats",
    "WORKFLOW_NVLINK5_ERR": "look at the links and the fabric manager's log; NVIDIA's catalogue decides by the text's fields",
    "XID_154": "do what its text says: it names the recovery that the GPU now needs",
}
_UNKNOWN = "look it up in NVIDIA's Xid catalogue"


class XidInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One code.

    Attributes:
        code: the number.
        name: as the driver calls it, such as ``ROBUST_CHANNEL_GR_EXCEPTION``; "" if it is in no table.
        severity: ``fatal`` (the GPU needs a reset or more), ``error`` (a context was lost), ``warn``, ``info``, or "" if it
            is not known.
        meaning: one line; "" if there is none.
        advice: what to do.
    """

    code: int
    name: str = ""
    severity: str = ""
    meaning: str = ""
    advice: str = _UNKNOWN


def describe(code: int) -> XidInfo:
    """Return what is known of an Xid."""
    return _table().get(code) or XidInfo(code=code)


@cache
def _table() -> Mapping[int, XidInfo]:
    found = {
        int(row["code"]): XidInfo(
            code=int(row["code"]),
            name=row["name"],
            severity=row["severity"],
            meaning=row["meaning"],
            advice=_ADVICE.get(row["action"], _UNKNOWN),
        )
        for row in read_rows("xid.csv")
    }
    return MappingProxyType(found)
