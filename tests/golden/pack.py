# SPDX-License-Identifier: Apache-2.0
"""Makes golden data of recordings: ``python -m tests.golden.pack RECORDING FILE.zip`` takes out what names the machine.

``python -m tests.golden.pack --cupti LOG FILE.json.gz`` keeps of what CUPTI saw (tests/gpu/cupti_log.c) the calls of the driver
in order, and the device's activities.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
import tempfile
import zipfile
from pathlib import Path

from tests.gpu.cupti import Log, read_log

_NAMES = (
    (re.compile(r'("host": ?)"[^"]*"'), r'\1"h200"'),
    (re.compile(r'("kernel": ?"\d+\.\d+\.\d+)[^"]*"'), r'\1"'),
    (re.compile(r'("cgroup": ?)"[^"]*"'), r'\1"/"'),
    (re.compile(r'("comm": ?)"[^"]*"'), r'\1"python3"'),
)
MANIFEST, FACTS = "manifest.json", "facts.jsonl"


def pack(recording: Path, target: Path) -> None:
    """Write a recording as a zip file, without the names of the machine."""
    files = {
        str(file.relative_to(recording)): file.read_bytes() for file in sorted(recording.rglob("*")) if file.is_file()
    }
    files[FACTS] = _without_names(files[FACTS])
    manifest = json.loads(_without_names(files[MANIFEST]))
    manifest["tables_bytes"][FACTS] = len(files[FACTS])
    files[MANIFEST] = json.dumps(manifest, indent=1).encode()
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0)), content, zipfile.ZIP_DEFLATED, 9)


def _without_names(content: bytes) -> bytes:
    text = content.decode()
    for pattern, replacement in _NAMES:
        text = pattern.sub(replacement, text)
    return text.encode()


def pack_log(log: Log, target: Path) -> None:
    """Write what CUPTI saw; functions and kernels by number, as they repeat."""
    functions = sorted({call.function for call in log.calls if call.driver})
    kernels = sorted({call.kernel for call in log.calls})
    number, place = ({name: i for i, name in enumerate(names)} for names in (functions, kernels))
    calls = [
        [call.tid, call.time_ns, call.correlation, number[call.function], place[call.kernel]]
        for call in log.calls
        if call.driver
    ]
    activities = [[a.kind, a.correlation, a.start_ns, a.end_ns, a.graph_node] for a in log.activities]
    data = {"functions": functions, "kernels": kernels, "calls": calls, "activities": activities}
    with tempfile.TemporaryFile() as plain, gzip.GzipFile(fileobj=target.open("wb"), mode="wb", mtime=0) as packed:
        plain.write(json.dumps(data, separators=(",", ":")).encode())
        plain.seek(0)
        packed.write(plain.read())


def main() -> None:
    """Pack what the command line names."""
    *option, source, target = sys.argv[1:]
    if option:
        pack_log(read_log(Path(source)), Path(target))
    else:
        pack(Path(source), Path(target))


if __name__ == "__main__":
    main()
