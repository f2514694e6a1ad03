# SPDX-License-Identifier: Apache-2.0
"""A trace for the Perfetto UI and trace processor (``.pftrace``).

Processes and threads with their activities, a track for each stream, ring or queue that work was done on, arrows for the
edges, and one track a request with its critical path. Times are CLOCK_MONOTONIC; the recording's readings of the wall clock
are snapshots in the trace.
"""

from __future__ import annotations

import hashlib
import importlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from fencepath.export._extras import needs_extra
from fencepath.export._files import count, output_path
from fencepath.export._scene import Flow, Scene, Slice, Track, lanes, scene_of
from fencepath.export.realtime import DOMAIN

if TYPE_CHECKING:
    from fencepath.analysis import Analysis
    from fencepath.recording import Recording
    from fencepath.requests import Request

__all__ = ["export", "write"]

_SEQUENCE = 1


def export(
    analysis: Analysis, requests: Sequence[Request], *, endpoint: str | None = None, output: Path | None = None
) -> str:
    """Write a Perfetto trace of some requests; see :class:`fencepath.export.Exporter`."""
    path = output_path(analysis, output, endpoint, ".pftrace")
    with needs_extra("perfetto", ("perfetto", "google")):
        protos = importlib.import_module("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    scene = scene_of(analysis, requests)
    with path.open("wb") as file:
        write(scene, analysis.recording, file, protos)
    return f"{count(len(requests), 'request')}, {count(len(scene.slices), 'slice')}: {path}; open it at https://ui.perfetto.dev"


def write(scene: Scene, recording: Recording, file: BinaryIO, protos: Any) -> None:
    """Write a scene as a stream of packets.

    Args:
        scene: what to show.
        recording: whose clock readings to write.
        file: open for writing bytes.
        protos: the module ``perfetto_trace_pb2``.
    """
    writer = _Writer(protos, file)
    writer.clocks(recording)
    for flow, (cause, effect) in enumerate(_arrows(scene.flows, scene.slices), 1):
        writer.flows_out[cause].append(flow)
        writer.flows_in[effect].append(flow)
    for track, lane, members in lanes(scene.slices):
        uuid = writer.track(scene.tracks[track], lane)
        writer.slices(uuid, scene.slices, members)


def _arrows(flows: Sequence[Flow], slices: Sequence[Slice]) -> Iterator[tuple[int, int]]:
    """Edges whose arrow goes forward: a viewer takes any other for a fault of the trace."""
    for flow in flows:
        if slices[flow.cause].begin_ns <= slices[flow.effect].end_ns:
            yield flow.cause, flow.effect


class _Writer:
    """Writes packets; ids of tracks come of their names, so that they are the same in every export."""

    def __init__(self, protos: Any, file: BinaryIO) -> None:
        self._protos = protos
        self._file = file
        self._processes: set[str] = set()
        self.flows_out: dict[int, list[int]] = defaultdict(list)
        self.flows_in: dict[int, list[int]] = defaultdict(list)

    def _write(self, packet: Any) -> None:
        packet.trusted_packet_sequence_id = _SEQUENCE
        self._file.write(self._protos.Trace(packet=[packet]).SerializeToString())

    def clocks(self, recording: Recording) -> None:
        """Say that times are CLOCK_MONOTONIC, and what the wall clock was."""
        first = self._protos.TracePacket()
        first.sequence_flags = self._protos.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        first.trace_packet_defaults.timestamp_clock_id = self._protos.BUILTIN_CLOCK_MONOTONIC
        self._write(first)
        for sample in recording.clocks:
            if sample.domain != DOMAIN:
                continue
            packet = self._protos.TracePacket()
            packet.clock_snapshot.primary_trace_clock = self._protos.BUILTIN_CLOCK_MONOTONIC
            for clock, time_ns in (
                (self._protos.BUILTIN_CLOCK_MONOTONIC, sample.monotonic_ns),
                (self._protos.BUILTIN_CLOCK_REALTIME, sample.value_ns),
            ):
                packet.clock_snapshot.clocks.add(clock_id=clock, timestamp=time_ns)
            self._write(packet)

    def track(self, track: Track, lane: int) -> int:
        """Describe a track and return its id; the first lane of a thread is the thread's own."""
        packet = self._protos.TracePacket()
        described = packet.track_descriptor
        described.uuid = _uuid(track.name, str(lane))
        if track.process:
            described.parent_uuid = self._process(track)
        if track.tid and lane == 0:
            described.thread.pid = track.pid
            described.thread.tid = track.tid
            described.thread.thread_name = track.title
        else:
            described.name = track.title
        self._write(packet)
        return int(described.uuid)

    def _process(self, track: Track) -> int:
        uuid = _uuid(track.process)
        if track.process not in self._processes:
            self._processes.add(track.process)
            packet = self._protos.TracePacket()
            packet.track_descriptor.uuid = uuid
            packet.track_descriptor.process.pid = track.pid
            packet.track_descriptor.process.process_name = f"process {track.pid}"
            self._write(packet)
        return uuid

    def slices(self, uuid: int, slices: Sequence[Slice], members: Sequence[int]) -> None:
        """Write the slices of one lane: a begin each, and an end before the next that begins no earlier."""
        ends: list[int] = []
        for index in members:
            one = slices[index]
            while ends and ends[-1] <= one.begin_ns:
                self._event(uuid, ends.pop(), self._protos.TrackEvent.TYPE_SLICE_END)
            self._begin(uuid, index, one)
            if one.end_ns > one.begin_ns:
                ends.append(one.end_ns)
        while ends:
            self._event(uuid, ends.pop(), self._protos.TrackEvent.TYPE_SLICE_END)

    def _event(self, uuid: int, time_ns: int, kind: int) -> None:
        packet = self._protos.TracePacket(timestamp=time_ns)
        packet.track_event.track_uuid = uuid
        packet.track_event.type = kind
        self._write(packet)

    def _begin(self, uuid: int, index: int, one: Slice) -> None:
        packet = self._protos.TracePacket(timestamp=one.begin_ns)
        event, types = packet.track_event, self._protos.TrackEvent
        event.track_uuid = uuid
        event.type = types.TYPE_SLICE_BEGIN if one.end_ns > one.begin_ns else types.TYPE_INSTANT
        event.name = one.name
        event.categories.append(one.category)
        event.flow_ids.extend(self.flows_out.get(index, ()))
        event.terminating_flow_ids.extend(self.flows_in.get(index, ()))
        for name, value in one.details.items():
            annotation = event.debug_annotations.add(name=name)
            setattr(annotation, _FIELD_OF[type(value)], value)
        self._write(packet)


_FIELD_OF = {str: "string_value", bool: "bool_value", int: "int_value"}


def _uuid(*names: str) -> int:
    digest = hashlib.blake2b("\0".join(names).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") or 1
