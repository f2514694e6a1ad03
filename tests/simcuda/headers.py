# SPDX-License-Identifier: Apache-2.0
"""Makes simcuda's headers from NVIDIA's: the prototypes, types and values that its functions need, and nothing else.

    python -m tests.simcuda.headers FOLDER

where FOLDER has the ``cuda.h`` and ``cuda_runtime_api.h`` of a CUDA toolkit, or of the wheel nvidia-cuda-runtime. Which
functions is said by ``functions.txt``. What is written are facts of the interface: names, types, values.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fencepath_cuda import simcuda

SOURCE = Path(simcuda.__file__).parent
INCLUDE = SOURCE / "include"

CONSTANTS = {
    "cuda.h": (
        "CUDA_VERSION",
        "CU_STREAM_LEGACY",
        "CU_STREAM_PER_THREAD",
        "CU_DEVICE_CPU",
        "CU_LAUNCH_PARAM_END",
        "CU_LAUNCH_PARAM_BUFFER_POINTER",
        "CU_LAUNCH_PARAM_BUFFER_SIZE",
    ),
    "cuda_runtime_api.h": (
        "CUDART_VERSION",
        "cudaStreamLegacy",
        "cudaStreamPerThread",
        "cudaStreamDefault",
        "cudaStreamNonBlocking",
        "cudaEventDefault",
        "cudaEventBlockingSync",
        "cudaEventDisableTiming",
    ),
}
FLAGS = (
    "CUctx_flags",
    "CUdriverProcAddress_flags",
    "CUevent_flags",
    "CUevent_record_flags",
    "CUevent_wait_flags",
    "CUgraphInstantiate_flags",
    "CUmemAttach_flags",
    "CUstreamWaitValue_flags",
    "CUstreamWriteValue_flags",
    "CUstream_flags",
)
"""Values that arguments of plain integer types take."""

# Some packages have the headers without their crt folder, of which only these words are needed.
_WORDS = ("host", "device", "cudart_builtin", "device_builtin", "device_builtin_texture_type")
_CRT = (
    *(f"#define __{word}__" for word in (*_WORDS, "device_builtin_surface_type")),
    "#define __align__(n) __attribute__((aligned(n)))",
    "#define __builtin_align__(n) __align__(n)",
    "#define CUDARTAPI",
    "#define CUDARTAPI_CDECL",
)


def write_crt(folder: Path) -> Path:
    """Write what stands for the crt folder where a package lacks it; return the folder to include, last."""
    (folder / "crt").mkdir(parents=True, exist_ok=True)
    (folder / "crt/host_defines.h").write_text("\n".join(_CRT) + "\n")
    return folder


@dataclass(frozen=True)
class Declaration:
    """One declaration at the top level of a header.

    Attributes:
        text: the declaration without its semicolon, white space made single.
        header: name of the file it is in.
    """

    text: str
    header: str

    @cached_property
    def is_function(self) -> bool:
        """Whether it is the prototype of a function."""
        return not self.text.startswith(("typedef", "enum", "struct", "union")) and "(" in self.text

    @cached_property
    def names(self) -> frozenset[str]:
        """What it defines: tags with a body, names of types, functions and values of enumerations."""
        if self.is_function:
            return frozenset(re.findall(r"(\w+) ?\(", self.text)[:1])
        found = set(re.findall(r"(?:struct|union|enum) (?:__attribute__ ?\(\(.*?\)\) ?)?(\w+) ?\{", self.text))
        found |= set(re.findall(r"^struct (\w+)$", self.text))
        if self.text.startswith("typedef"):
            pointer = re.search(r"\( ?\* ?(\w+) ?\)", self.text)
            after = self.text.rpartition("}")[2]
            found.add(pointer[1] if pointer and "{" not in self.text else re.findall(r"\w+", after)[-1])
        if self.text.startswith(("enum", "typedef enum")) and "{" in self.text:
            body = self.text[self.text.index("{") + 1 : self.text.rindex("}")]
            found |= {match[0] for item in body.split(",") if (match := re.match(r"\s*\w+", item))}
        return frozenset(name.strip() for name in found)

    @cached_property
    def words(self) -> frozenset[str]:
        """Every identifier in it."""
        return frozenset(re.findall(r"[A-Za-z_]\w*", self.text))


class Headers:
    """NVIDIA's headers, taken apart.

    Attributes:
        declarations: by the names they define.
        macros: object-like macros, and what they are.
        version: CUDA_VERSION, such as 13000.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with tempfile.TemporaryDirectory() as crt:
            self._crt = write_crt(Path(crt))
            self.order = list(self._declarations())
            self.macros = self._macros()
        self.declarations: dict[str, list[Declaration]] = {}
        for each in self.order:
            for name in each.names:
                self.declarations.setdefault(name, []).append(each)
        self.version = int(self.macros["CUDA_VERSION"])

    def _preprocess(self, text: str, *flags: str) -> str:
        command = ["cc", "-E", *flags, "-I", str(self.folder), "-idirafter", str(self._crt), "-x", "c", "-"]
        return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout

    def _declarations(self) -> Iterator[Declaration]:
        """Split what the preprocessor makes of the headers, keeping what lies in NVIDIA's own files."""
        # Every version of a function is declared under its exported name.
        text = self._preprocess(
            "#define __CUDA_API_VERSION_INTERNAL\n#include <cuda.h>\n#include <cuda_runtime_api.h>\n"
        )
        header, depth, words = "", 0, list[str]()
        for line in text.splitlines():
            if marker := re.match(r'# \d+ "(.*?)"', line):
                path = Path(marker[1])
                header = path.name if path.parent == self.folder else ""
                continue
            for word in re.split(r"([{};])", line if header else ""):
                depth += (word == "{") - (word == "}")
                if word == ";" and depth == 0:
                    declared = Declaration(" ".join(" ".join(words).split()), header)
                    words = []
                    if declared.text and not declared.text.startswith("static"):
                        yield declared
                elif word:
                    words.append(word)

    def _macros(self) -> dict[str, str]:
        """Macros as a program sees them that does not ask for anything special."""
        text = self._preprocess("#include <cuda.h>\n#include <cuda_runtime_api.h>\n", "-dM")
        macros = dict(re.findall(r"^#define (\w+) +(.*\S)$", text, re.MULTILINE))
        # Which of the functions have a variant for per-thread default streams is not wanted here.
        return {name: re.sub(r"__CUDA(?:RT)?_API_PT[DS]S?Z?\((\w+)\)", r"\1", value) for name, value in macros.items()}

    def value(self, constant: str) -> str:
        """Return what a macro stands for, other macros in it resolved."""
        return re.sub(r"[A-Za-z_]\w*", lambda word: self.macros.get(word[0], word[0]), self.macros[constant])

    def per_thread(self, name: str) -> str | None:
        """Return the variant of an exported function for per-thread default streams, None if it has none."""
        return next((name + suffix for suffix in ("_ptsz", "_ptds") if name + suffix in self.declarations), None)

    def closure(self, names: Iterable[str]) -> list[Declaration]:
        """Return the declarations of names and of all that they need, in NVIDIA's order."""
        wanted, todo = set[Declaration](), [each for name in names for each in self.declarations[name]]
        while todo:
            declared = todo.pop()
            if declared not in wanted:
                wanted.add(declared)
                todo += [each for word in declared.words for each in self.declarations.get(word, ())]
        return [declared for declared in dict.fromkeys(self.order) if declared in wanted]


def function_names() -> list[str]:
    """Return the functions that simcuda has, without per-thread variants."""
    lines = (SOURCE / "functions.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def generate(folder: Path) -> dict[str, str]:
    """Return the generated files by name, from NVIDIA's headers in a folder."""
    headers = Headers(folder.resolve())
    names = function_names()
    driver = [name for name in names if name.startswith("cu") and not name.startswith("cuda")]
    runtime = [name for name in names if name.startswith("cuda")]
    types = headers.closure([*_all_variants(headers, driver), *FLAGS])
    return {
        "cuda.h": _header(headers, "cuda.h", driver, types, "#include <stddef.h>\n#include <stdint.h>\n"),
        "cuda_runtime_api.h": _header(
            headers,
            "cuda_runtime_api.h",
            runtime,
            [each for each in headers.closure(_all_variants(headers, runtime)) if each not in types],
            "#include <cuda.h>\n",
        ),
        "simcuda_tables.h": _tables(headers, driver),
    }


def _all_variants(headers: Headers, names: Iterable[str]) -> list[str]:
    return [each for name in names for each in (name, headers.per_thread(name)) if each]


def _intro(headers: Headers) -> str:
    version = f"{headers.version // 1000}.{headers.version % 1000 // 10}"
    return (
        "// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0\n"
        f"// Made by tests/simcuda/headers.py from functions.txt and the headers of CUDA {version}; not to be edited.\n"
    )


def _header(headers: Headers, name: str, functions: list[str], declared: list[Declaration], includes: str) -> str:
    guard = f"SIMCUDA_{name.upper().replace('.', '_')}"
    lines = [_intro(headers), f"#ifndef {guard}\n#define {guard}\n", includes]
    lines += [f"#define {constant} {headers.value(constant)}" for constant in CONSTANTS[name]]
    lines += ["", *(_formatted(each) for each in declared)]
    lines.append("\n/* A program's names for what is exported, as NVIDIA's headers have them. */")
    lines.append("#ifndef __CUDA_API_VERSION_INTERNAL")
    lines += list(_renames(headers, functions))
    return "\n".join([*lines, "#endif", "\n#endif\n"])


def _renames(headers: Headers, functions: list[str]) -> Iterator[str]:
    plain = [(base, exported) for base, exported in _bases(headers, functions) if base != exported]
    own = [(base, headers.per_thread(exported)) for base, exported in _bases(headers, functions)]
    per_thread = [(base, variant) for base, variant in own if variant]
    varied = {base for base, _ in per_thread}
    yield "#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM"
    yield from (f"#define {base} {variant}" for base, variant in per_thread)
    yield "#else"
    yield from (f"#define {base} {exported}" for base, exported in plain if base in varied)
    yield "#endif"
    yield from (f"#define {base} {exported}" for base, exported in plain if base not in varied)


def _bases(headers: Headers, functions: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Each name that a program has for a function, and what it is exported as."""
    for exported in functions:
        if exported not in headers.macros and not re.search(r"_v\d$", exported):
            yield exported, exported
        yield from ((name, exported) for name, value in headers.macros.items() if value == exported != name)


def _formatted(declared: Declaration) -> str:
    text = re.sub(r"\bextern |__host__ |__attribute__\(\(\)\) ", "", declared.text)
    text = re.sub(r" ?([{}]) ?", r" \1 ", text)
    if "{" not in text:
        text = f"{text};".replace("( ", "(").replace(" )", ")").replace(" ,", ",")
        return "\n".join(textwrap.wrap(text, 110, subsequent_indent="\t", tabsize=8))
    parts = re.split(r"([{};,])", text)
    is_enum = text.startswith(("enum", "typedef enum"))
    lines, line, depth = list[str](), "", 0
    for part in parts:
        ends = part == ";" or (part == "," and is_enum)
        if part == "}":
            if line.strip():
                lines.append("\t" * depth + line.strip())
            depth, line = depth - 1, "}"
        elif part == "{":
            lines.append("\t" * depth + line.strip() + " {")
            depth, line = depth + 1, ""
        elif ends:
            lines.append("\t" * depth + line.strip() + part)
            line = ""
        else:
            line += part
    return "\n".join([*lines, line.strip() + ";"])


def _tables(headers: Headers, driver: list[str]) -> str:
    rows = [(base, exported, headers.per_thread(exported) or exported) for base, exported in _bases(headers, driver)]
    codes = headers.declarations["CUDA_SUCCESS"][0].text
    errors = re.findall(r"(CUDA_(?:SUCCESS|ERROR_\w+)) = (\d+)", codes)
    lines = [
        _intro(headers),
        "/* Each driver function by the name cuGetProcAddress knows, as it is exported, and for per-thread default streams. */",
        "#define SIMCUDA_DRIVER_FUNCTIONS(X) \\",
        " \\\n".join(f"\tX({', '.join(row)})" for row in rows),
        "",
        "/* Every CUresult. */",
        "#define SIMCUDA_RESULTS(X) \\",
        " \\\n".join(f"\tX({name}, {value})" for name, value in errors),
        "",
    ]
    return "\n".join(lines)


def main(arguments: list[str]) -> None:
    """Write the headers."""
    INCLUDE.mkdir(exist_ok=True)
    for name, text in generate(Path(arguments[0])).items():
        (INCLUDE / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
