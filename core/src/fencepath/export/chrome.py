# SPDX-License-Identifier: Apache-2.0
"""A trace in Chrome's JSON format, which most trace viewers read, and PyTorch's and vLLM's own traces come in.

Times are CLOCK_MONOTONIC in µs with three decimals, so that they can be laid beside other traces of that clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from fencepath.export._files import count, output_path
from fencepath.export._scene import Scene, Slice, Track, lanes, scene_of

if TYPE_CHECKING:
    from fencepath.analysis import Analysis
    from fencepath.requests import Request

__all__ = ["events_of", "export"]

_FIRST_MADE_UP = 1 << 31
"""Beyond any pid or tid of Linux: numbers of tracks that belong to no thread."""


def export(
    analysis: Analysis, requests: Sequence[Request], *, endpoint: str | None = None, output: Path | None = None
) -> str:
    """Write a Chrome trace of some requests; see :class:`fencepath.export.Exporter`."""
    path = output_path(analysis, output, endpoint, ".chrome.json")
    scene = scene_of(analysis, requests)
    document = {"displayTimeUnit": "ns", "traceEvents": list(events_of(scene))}
    path.write_bytes(msgspec.json.encode(document) + b"\n")
    return f"{count(len(requests), 'request')}, {count(len(scene.slices), 'slice')}: {path}"


def events_of(scene: Scene) -> Iterator[dict[str, Any]]:
    """Yield the events of a scene: names of tracks, slices, arrows."""
    places: dict[int, tuple[int, int]] = {}
    for number, (track, lane, members) in enumerate(lanes(scene.slices), _FIRST_MADE_UP):
        place = _place(scene.tracks[track], lane, number)
        yield from _names(scene.tracks[track], place)
        for index in members:
            places[index] = place
            yield _slice(scene.slices[index], place)
    for number, flow in enumerate(scene.flows, 1):
        cause, effect = scene.slices[flow.cause], scene.slices[flow.effect]
        if cause.begin_ns <= effect.end_ns:
            common = {"name": flow.rule, "cat": "edge", "id": number}
            yield {"ph": "s", **common, **_at(places[flow.cause]), "ts": _us(cause.begin_ns)}
            yield {"ph": "f", "bp": "e", **common, **_at(places[flow.effect]), "ts": _us(effect.begin_ns)}


def _place(track: Track, lane: int, number: int) -> tuple[int, int]:
    """Process and thread under which a lane is shown; lanes beyond a thread's first get numbers of their own."""
    if not track.tid:
        return _FIRST_MADE_UP, number
    return track.pid, track.tid if lane == 0 else number


def _names(track: Track, place: tuple[int, int]) -> Iterator[dict[str, Any]]:
    process = f"process {track.pid}" if track.pid else "devices and paths"
    yield {"ph": "M", "name": "process_name", **_at(place), "args": {"name": process}}
    yield {"ph": "M", "name": "thread_name", **_at(place), "args": {"name": track.title}}


def _slice(one: Slice, place: tuple[int, int]) -> dict[str, Any]:
    event = {"name": one.name, "cat": one.category, **_at(place), "ts": _us(one.begin_ns), "args": one.details}
    if one.end_ns > one.begin_ns:
        return {"ph": "X", **event, "dur": _us(one.end_ns - one.begin_ns)}
    return {"ph": "i", "s": "t", **event}


def _at(place: tuple[int, int]) -> dict[str, int]:
    return {"pid": place[0], "tid": place[1]}


def _us(time_ns: int) -> msgspec.Raw:
    """The format's unit, exactly: a float of that size would lose nanoseconds after 52 days of uptime."""
    return msgspec.Raw(f"{time_ns // 1000}.{time_ns % 1000:03d}".encode())
