# SPDX-License-Identifier: Apache-2.0
"""Names of kernels by their handles: as modules and libraries were asked for them, or by the host functions launched."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from fencepath.events import Batch, Column
from fencepath.joins import Events
from fencepath_cuda.ordered import Ints, Ordered

__all__ = ["KernelNames"]

ALWAYS = np.iinfo(np.int64).min
"""Before every time: what names a handle however early it was used."""
NAMELESS = -1
"""Stands for a name that is empty or could not be read."""


class KernelNames:
    """What kernels are called.

    A handle means what the last call that handed it out said; CUfunction and CUkernel are looked up alike, since a launch
    takes either. Of a handle that was handed out before the recording it is the name of the host function that the
    runtime was asked to launch, where runtime calls were recorded (``--detail full``).

    Attributes:
        names: distinct names.
    """

    def __init__(self, events: Events) -> None:
        self._hosts = _HostFunctions(events)
        numbers: dict[str, int] = {}
        handed: dict[tuple[int, int], int] = {}
        always: dict[tuple[int, int], int] = {}
        rows: list[tuple[int, int, int, int]] = []
        for owner, handle, time_ns, name, of_kernel in (*self._launched(events), *self._asked(events)):
            key = owner, handle
            if name:
                number = numbers.setdefault(name, len(numbers))
            elif time_ns == ALWAYS:
                continue
            else:  # that what had the handle before had a name says nothing of this one
                number = handed.get((owner, of_kernel), always.get(key, NAMELESS))
            if time_ns == ALWAYS:
                always[key] = number
                handed.setdefault(key, number)
            else:
                handed[key] = number
            rows.append((owner, handle, time_ns, number))
        self.names = list(numbers)
        owners, times, self._named = (np.array([row[i] for row in rows], np.int64) for i in (0, 2, 3))
        handles = np.array([row[1] for row in rows], np.uint64)
        self._handles = np.unique(handles)
        self._ordered = Ordered(self._key(owners, handles), times)

    def _asked(self, events: Events) -> Iterator[tuple[int, int, int, str, int]]:
        """Process, handle, time, name and kernel of each call that handed out a kernel."""
        known = events.batch("cuda.module.kernel")
        done = np.flatnonzero(known["returned"] & (known["result"] == 0) & (known["kernel"] != 0))
        for row in done[np.argsort(known["time_ns"][done], kind="stable")].tolist():
            owner, handle, name = int(known["process"][row]), int(known["kernel"][row]), str(known["name"][row])
            host, time_ns = int(known["host_function"][row]), int(known["time_ns"][row])
            if host and not name:
                # the host's side of a kernel can have another name than the device's, so any other call says better
                name, time_ns = self._hosts.name(int(known["tgid"][row]), owner, host), ALWAYS
            yield owner, handle, time_ns, name, int(known["of_kernel"][row])

    def _launched(self, events: Events) -> Iterator[tuple[int, int, int, str, int]]:
        """The same of launches by the runtime: the driver's launch in a runtime call is of the kernel of its host function."""
        calls, launches = events.batch("cuda.runtime.call"), events.batch("cuda.launch")
        if not len(calls) or not len(launches):
            return
        hosts = np.flatnonzero(calls["host_function"] != 0)
        around = Ordered(calls["thread"][hosts].astype(np.int64), calls["begin_ns"][hosts].astype(np.int64))
        at = around.last(launches["thread"].astype(np.int64), launches["begin_ns"].astype(np.int64))
        call = hosts[around.order[at]] if len(hosts) else at
        inside = (at >= 0) & (launches["begin_ns"] <= calls["time_ns"][call])
        owner, handle, host = (
            launches["process"][inside],
            launches["kernel"][inside],
            calls["host_function"][call[inside]],
        )
        tgid = launches["tgid"][inside]
        for values in sorted(set(zip(owner.tolist(), handle.tolist(), host.tolist(), tgid.tolist(), strict=True))):
            name = self._hosts.name(values[3], values[0], values[2])
            if name:
                yield values[0], values[1], ALWAYS, name, 0

    def of(self, process: Column, kernel: Column, time_ns: Column) -> Ints:
        """Return the index of each kernel's name, :data:`NAMELESS` where it is not known.

        Args:
            process: entity, shape (n,).
            kernel: CUfunction or CUkernel handle, shape (n,).
            time_ns: when it was used, CLOCK_MONOTONIC, shape (n,).
        """
        if not len(self._handles):
            return np.full(len(kernel), NAMELESS, np.int64)
        place = np.minimum(np.searchsorted(self._handles, kernel), len(self._handles) - 1)
        at = self._ordered.last(self._key(process.astype(np.int64), kernel), time_ns.astype(np.int64))
        known = (self._handles[place] == kernel) & (at >= 0)
        return np.where(known, self._named[self._ordered.order[at]], NAMELESS)

    def _key(self, process: Ints, handle: npt.NDArray[np.uint64]) -> Ints:
        place = np.searchsorted(self._handles, handle)
        return np.asarray(process * (len(self._handles) + 1) + place)


class _HostFunctions:
    """Names of host functions: as they were registered, or by the code that they are."""

    def __init__(self, events: Events) -> None:
        self._modules = events.modules
        registered = events.batch("cuda.module.kernel")
        self._registered = dict(_registrations(registered))
        self._last_ns = int(
            max((int(events.batch(kind)["time_ns"].max(initial=0)) for kind in events.kinds), default=0)
        )

    def name(self, tgid: int, process: int, address: int) -> str:
        """Return the name of a host function, "" if it is not known."""
        found = self._registered.get((process, address))
        if found is None:
            at = (np.array([tgid]), np.array([self._last_ns]), np.array([address], np.uint64))
            (named,) = self._modules.names(self._modules.locate(*at))
            found = self._registered[process, address] = named.name if named is not None else ""
        return found


def _registrations(batch: Batch) -> Iterator[tuple[tuple[int, int], str]]:
    for row in np.flatnonzero((batch["kernel"] == 0) & (batch["host_function"] != 0)).tolist():
        if batch["name"][row]:
            yield (int(batch["process"][row]), int(batch["host_function"][row])), str(batch["name"][row])
