#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make-cuda-error-names.py FOLDER...: the names of CUDA's errors, from cuda.h and driver_types.h in each folder.

Writes plugins/cuda/src/fencepath_cuda/error_names.py. Give the newest headers first: where a code has two names, the
first one found stays. The wheels nvidia-cuda-runtime (13) and nvidia-cuda-runtime-cu12 have the headers.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

TARGET = Path(__file__).parent.parent / "plugins/cuda/src/fencepath_cuda/error_names.py"

ENUMS = {
    "DRIVER": ("cuda.h", r"typedef enum cudaError_enum\s*\{(.*?)\}\s*CUresult;", "CUresult"),
    "RUNTIME": ("driver_types.h", r"enum __device_builtin__ cudaError\s*\{(.*?)\};", "cudaError_t"),
}


def codes(folder: Path, header: str, enum: str) -> dict[int, str]:
    """Return the names of an enum's values."""
    text = re.sub(r"/\*.*?\*/", "", (folder / header).read_text(encoding="utf-8"), flags=re.DOTALL)
    body = re.search(enum, text, re.DOTALL)
    if body is None:
        raise SystemExit(f"{folder / header} has not the enum that was looked for")
    found: dict[int, str] = {}
    for name, code in re.findall(r"(\w+)\s*=\s*(\w+)", body[1]):
        found.setdefault(int(code, 0), name)
    return found


def version(folder: Path) -> str:
    """Return the version of CUDA, such as 12.9."""
    match = re.search(r"#define CUDA_VERSION (\d+)", (folder / "cuda.h").read_text(encoding="utf-8"))
    number = int(match[1]) if match else 0
    return f"{number // 1000}.{number % 1000 // 10}"


def main(folders: list[Path]) -> None:
    """Write the module."""
    versions = " and ".join(version(folder) for folder in folders)
    lines = [
        "# SPDX-License-Identifier: Apache-2.0",
        f'"""Names of CUDA\'s errors by code, from the headers of CUDA {versions}. Made by tools/make-cuda-error-names.py."""',
        "",
        "from __future__ import annotations",
        "",
        "from collections.abc import Mapping",
        "",
        '__all__ = ["DRIVER", "RUNTIME"]',
    ]
    for constant, (header, enum, type_) in ENUMS.items():
        names: dict[int, str] = {}
        for folder in folders:
            for code, name in codes(folder, header, enum).items():
                names.setdefault(code, name)
        lines += ["", f"{constant}: Mapping[int, str] = {{"]
        lines += [f'    {code}: "{name}",' for code, name in sorted(names.items())]
        lines += ["}", f'"""{type_} of {header}."""']
    TARGET.write_text("\n".join([*lines, ""]), encoding="utf-8")
    print(f"wrote {TARGET}")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    main([Path(argument) for argument in sys.argv[1:]])
