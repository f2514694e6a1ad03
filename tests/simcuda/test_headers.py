# SPDX-License-Identifier: Apache-2.0
"""The simulated libraries have NVIDIA's interface: the committed headers are what the generator makes of NVIDIA's."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile
from tests.simcuda.headers import INCLUDE, function_names, generate, write_crt

import fencepath
from fencepath_cuda import simcuda
from fencepath_cuda.simcuda import SimCuda

SOURCE = Path(simcuda.__file__).parent
SOURCES = sorted(path.name for path in SOURCE.glob("*.c"))
VERSION = re.search(r"#define CUDA_VERSION (\d+)", (INCLUDE / "cuda.h").read_text())


def version_of(include: Path) -> str | None:
    found = re.search(r"^#define CUDA_VERSION (\d+)", (include / "cuda.h").read_text(), re.MULTILINE)
    return found[1] if found else None


@pytest.fixture(scope="module")
def nvidia() -> Path:
    """The folder of NVIDIA's headers, of the version that ours were made from."""
    assert VERSION is not None
    asked = os.environ.get("FENCEPATH_CUDA_INCLUDE")
    wheels = [Path(path) / "nvidia" for path in sys.path]
    folders = [folder for wheel in wheels for folder in (wheel / "cu13/include", wheel / "cuda_runtime/include")]
    folders = [Path(asked)] if asked else [*folders, Path("/usr/local/cuda/include")]
    found = [folder for folder in folders if (folder / "cuda.h").exists() and version_of(folder) == VERSION[1]]
    if not found:
        reason = (
            f"no cuda.h with CUDA_VERSION {VERSION[1]}: pip install 'nvidia-cuda-runtime==13.0.*', or set "
            "FENCEPATH_CUDA_INCLUDE to its folder"
        )
        assert not asked, reason
        pytest.skip(reason)
    return found[0]


def test_headers_are_what_is_generated(nvidia: Path) -> None:
    for name, text in generate(nvidia).items():
        assert (INCLUDE / name).read_text() == text, f"python -m tests.simcuda.headers {nvidia}"


@pytest.mark.parametrize("source", SOURCES)
def test_signatures_are_nvidias(source: str, nvidia: Path, tmp_path: Path) -> None:
    """Compiled with NVIDIA's headers, which declare every function: another signature is an error."""
    flags = ["-std=gnu11", "-fsyntax-only", "-Wall", "-Werror=missing-prototypes"]
    marks = Path(fencepath.__file__).parent / "include"
    # NVIDIA's are found first; of ours only the tables are left.
    folders: list[str | Path] = [
        "-isystem",
        nvidia,
        "-idirafter",
        write_crt(tmp_path),
        "-idirafter",
        INCLUDE,
        "-idirafter",
        marks,
    ]
    command: list[str | Path] = ["cc", *flags, *folders, SOURCE / source]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("define", ["", "CUDA_API_PER_THREAD_DEFAULT_STREAM", "__CUDA_API_VERSION_INTERNAL"])
def test_headers_compile_by_themselves(define: str) -> None:
    flags = [
        "-Wall",
        "-Wextra",
        "-Werror",
        "-std=gnu11",
        "-fsyntax-only",
        f"-I{INCLUDE}",
        *([f"-D{define}"] if define else []),
    ]
    text = "#include <cuda_runtime_api.h>\n#include <cuda.h>\n"
    done = subprocess.run(["cc", *flags, "-x", "c", "-"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def exported(library: Path) -> set[str]:
    with library.open("rb") as file:
        symbols: Any = ELFFile(file).get_section_by_name(".dynsym")
        return {
            symbol.name
            for symbol in symbols.iter_symbols()
            if symbol["st_info"]["type"] == "STT_FUNC" and symbol["st_value"]
        }


def test_the_libraries_export_what_the_list_says(library: SimCuda) -> None:
    driver, runtime = exported(library.libcuda), exported(library.libcudart)
    plain = {
        name for name in driver | runtime if not name.endswith(("_ptsz", "_ptds")) and not name.startswith("__cuda")
    }
    assert plain == set(function_names())
    declared = "".join((INCLUDE / name).read_text() for name in ("cuda.h", "cuda_runtime_api.h"))
    variants = set(re.findall(r"(?<!define )\b(cu\w+_pt[ds][sz])\(", declared))
    assert {name for name in driver | runtime if name.endswith(("_ptsz", "_ptds"))} == variants
    assert len(variants) > 60
