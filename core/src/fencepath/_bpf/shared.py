# SPDX-License-Identifier: Apache-2.0
"""What the BPF objects of one recording share: rings, loss counters and the sets of targets."""

from __future__ import annotations

import contextlib
import os
import secrets
import struct
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from fencepath._bpf.losses import LossCounters
from fencepath._bpf.maps import Map
from fencepath._bpf.rings import Rings

__all__ = ["Shared"]

_TARGETS = 65536


class Shared:
    """Rings, loss counters and target sets, made once and given to every object as macros.

    Args:
        kinds: kind numbers by event kind (``cuda.launch``).
        rings: those to use, and to close with the rest; None for :class:`Rings` of the default size.
        all_processes: whether every process but the recorder is a target, whatever the sets hold.
        self_tgid: the recorder in the initial pid namespace; None for this process.
        cgroup: id of the cgroup whose processes become targets, but the recorder; None for none.
        secret: what makes numbers of addresses: any number, and an odd one; None for new ones. With (0, 1) numbers below 2**29 stay as they
            are, for tests.

    Attributes:
        rings: where records arrive.
        losses: what was recorded and lost, by kind number.
        tgids: target processes; u32 keys and values.
        tids: their threads; u32 keys and values.
    """

    def __init__(
        self,
        kinds: Mapping[str, int],
        *,
        rings: Rings | None = None,
        all_processes: bool = False,
        self_tgid: int | None = None,
        cgroup: int | None = None,
        secret: tuple[int, int] | None = None,
    ) -> None:
        self._kinds = dict(kinds)
        self._all_processes = all_processes
        self._self_tgid = os.getpid() if self_tgid is None else self_tgid
        with contextlib.ExitStack() as made:
            self.rings = made.enter_context(Rings() if rings is None else rings)
            self.losses = LossCounters(max(self._kinds.values(), default=0) + 1)
            made.callback(self.losses.close)
            self.tgids = made.enter_context(Map.hash("fp_tgids", 4, 4, _TARGETS))
            self.tids = made.enter_context(Map.hash("fp_tids", 4, 4, _TARGETS))
            self._secret = made.enter_context(Map.array("fp_secret", 16, 1))
            self._secret.update(
                bytes(4), struct.pack("=QQ", *(secret or (secrets.randbits(64), secrets.randbits(64) | 1)))
            )
            self._joining = None if cgroup is None else made.enter_context(Map.array("fp_joining", 16, 1))
            if self._joining is not None:
                self._joining.update(bytes(4), struct.pack("=QQ", cgroup, self._self_tgid))
            self._made = made.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def defines(self) -> dict[str, str | int]:
        """Return the macros that ``fencepath.h`` asks for; ``cuda.launch`` is ``FP_KIND_CUDA_LAUNCH``."""
        return {
            **self.rings.defines(),
            **self.losses.defines(),
            "FP_TGIDS_FD": self.tgids.fd,
            "FP_TIDS_FD": self.tids.fd,
            "FP_SECRET_FD": self._secret.fd,
            **({} if self._joining is None else {"FP_JOINING_FD": self._joining.fd}),
            "FP_ALL_PROCESSES": int(self._all_processes),
            # only where it is used: programs that do not depend on who records can be kept
            **({"FP_SELF_TGID": self._self_tgid} if self._all_processes else {}),
            **{f"FP_KIND_{kind.replace('.', '_').upper()}": number for kind, number in self._kinds.items()},
        }

    def close(self) -> None:
        """Give it all back; loaded programs keep what they use. The counters keep their last values."""
        self._made.close()
