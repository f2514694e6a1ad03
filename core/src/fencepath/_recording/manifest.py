# SPDX-License-Identifier: Apache-2.0
"""``manifest.json``: what is needed to read a recording on another machine, years later.

Changes are additive: a reader ignores fields that it does not know, and a field added later has a default. Only a
change that an older reader would misread raises :data:`FORMAT`.
"""

from __future__ import annotations

import os
import re
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from fencepath.errors import NewerFormatError, NotARecordingError, RecordingDamagedError
from fencepath.records import Field, Layouts, RecordLayout

__all__ = [
    "FORMAT",
    "MAGIC",
    "KindInfo",
    "LayerInfo",
    "Machine",
    "Manifest",
    "MissingProbe",
    "decode_manifest",
    "encode_manifest",
    "new_manifest",
]

MAGIC = "fencepath"
FORMAT = 1

_KIND = re.compile(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)*", re.ASCII)
_FIELD_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_FIELD_TYPE = re.compile(r"([us](8|16|32|64)|char)(\[[1-9][0-9]{0,4}\])?", re.ASCII)
_LONGEST_KIND = 200


class KindInfo(msgspec.Struct, frozen=True):
    """One event kind of a recording.

    Attributes:
        number: its number in the header of this recording's records.
        layer: the layer whose plugin declared it.
        fields: its record layout.
        version: version of the kind.
    """

    number: int
    layer: str
    fields: tuple[Field, ...]
    version: int = 1


class MissingProbe(msgspec.Struct, frozen=True):
    """A probe that was wanted and not attached, and why."""

    probe: str
    why: str


class LayerInfo(msgspec.Struct, frozen=True):
    """What one layer's plugin did in this recording.

    Attributes:
        version: version of the plugin.
        attached: probes that were attached.
        missing: probes that were not, with the reason.
    """

    version: str = ""
    attached: tuple[str, ...] = ()
    missing: tuple[MissingProbe, ...] = ()


class Machine(msgspec.Struct, frozen=True):
    """The machine that was recorded: ``uname -m`` and the number of CPUs."""

    arch: str = ""
    cpus: int = 0


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a recording says about itself.

    Attributes:
        magic: always ``fencepath``.
        format: version of the format on disk.
        id: UUID of the recording.
        created_realtime_ns: CLOCK_REALTIME when recording began.
        ended_realtime_ns: CLOCK_REALTIME at its orderly end; None while it runs or when the recorder was killed.
        boot_id: the kernel's boot id, part of every stable entity name.
        host: host name.
        kernel: ``uname -r``.
        machine: architecture and CPUs.
        tool: version of fencepath that wrote it.
        command: command line that was run; empty unless the user asked for it to be kept.
        targets: what was recorded, in words, such as ``pid 4242``.
        detail: ``sync``, ``launch`` or ``full``.
        kinds: kinds by name.
        functions: names of each layer's call table, by layer; a call record's ``function`` is an index into it.
        layers: what each plugin attached, by layer.
        clock: what was found of each clock, by name; plain JSON. Its samples are in ``clocks.jsonl``.
        calibration: measured costs and what else was calibrated; plain JSON.
        tables_bytes: sizes of the files of facts, loss and clock samples at the orderly end.
        extra: anything else; plain JSON.
    """

    magic: str = MAGIC
    format: int = FORMAT
    id: str
    created_realtime_ns: int
    ended_realtime_ns: int | None = None
    boot_id: str = ""
    host: str = ""
    kernel: str = ""
    machine: Machine = Machine()
    tool: str = ""
    command: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    detail: str = ""
    kinds: dict[str, KindInfo] = {}
    functions: dict[str, tuple[str, ...]] = {}
    layers: dict[str, LayerInfo] = {}
    clock: dict[str, Any] = {}
    calibration: dict[str, Any] = {}
    tables_bytes: dict[str, int] = {}
    extra: dict[str, Any] = {}

    def __post_init__(self) -> None:
        for kind, info in self.kinds.items():
            _check_kind(kind, info)
        numbers = [info.number for info in self.kinds.values()]
        if len(set(numbers)) != len(numbers):
            raise ValueError("two kinds have the same number")

    @property
    def layouts(self) -> Layouts:
        """Record layouts and kind numbers of this recording."""
        return Layouts(
            {kind: RecordLayout(kind, info.fields) for kind, info in self.kinds.items()},
            {kind: info.number for kind, info in self.kinds.items()},
        )


def _check_kind(kind: str, info: KindInfo) -> None:
    """Refuse what would make a bad file name or a layout that numpy cannot hold: a manifest may come from anywhere."""
    if not _KIND.fullmatch(kind) or len(kind) > _LONGEST_KIND:
        raise ValueError(f"bad kind name {kind!r}")
    if not 0 <= info.number <= 0xFFFF:
        raise ValueError(f"the number of {kind} does not fit in 16 bits")
    for field in info.fields:
        if not _FIELD_NAME.fullmatch(field.name) or not _FIELD_TYPE.fullmatch(field.type):
            raise ValueError(f"bad field {field.name!r} of type {field.type!r} in {kind}")
    RecordLayout(kind, info.fields)


def new_manifest(kinds: Mapping[str, KindInfo], **more: Any) -> Manifest:
    """Return the manifest of a recording that begins now on this machine.

    Args:
        kinds: kinds by name.
        more: any other attribute of :class:`Manifest`.
    """
    uname = os.uname()
    about: dict[str, Any] = {
        "id": str(uuid.uuid4()),
        "created_realtime_ns": time.time_ns(),
        "boot_id": Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip(),
        "host": uname.nodename,
        "kernel": uname.release,
        "machine": Machine(arch=uname.machine, cpus=os.cpu_count() or 0),
    }
    return Manifest(kinds=dict(kinds), **(about | more))


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the text of ``manifest.json``."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"


class _Magic(msgspec.Struct):
    magic: str = ""
    format: int = 0


def decode_manifest(data: bytes, name: str) -> Manifest:
    """Return the manifest in `data`, the bytes of ``manifest.json`` of the recording `name`.

    Raises:
        NotARecordingError: if it is the manifest of something else.
        NewerFormatError: if its format is newer than :data:`FORMAT`.
        RecordingDamagedError: if it is no JSON or does not follow the format.
    """
    try:
        magic = msgspec.json.decode(data, type=_Magic)
        if magic.magic != MAGIC:
            raise NotARecordingError(f"{name} is not a fencepath recording: its manifest.json is something else")
        if magic.format > FORMAT:
            raise NewerFormatError(
                f"{name} has format {magic.format}, this fencepath reads up to {FORMAT}; upgrade fencepath to read it"
            )
        return msgspec.json.decode(data, type=Manifest)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise RecordingDamagedError(f"{name} cannot be read: its manifest.json is damaged: {error}") from error
