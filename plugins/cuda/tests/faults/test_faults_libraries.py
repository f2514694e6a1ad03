# SPDX-License-Identifier: Apache-2.0
"""Libraries that are not as usual: two copies of the runtime in one process, and an old driver that lacks functions."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from plugins.cuda.tests.faults.programs.twins import TURNS
from plugins.cuda.tests.faults.workbench import Bench, Recorded
from tests.faults.commandline import fencepath

import fencepath_cuda.simcuda as source
from fencepath_cuda.functions import TABLE
from fencepath_cuda.rules import RUNTIME_RULES

pytestmark = pytest.mark.bpf

COPY = "libcudart-5e3f0a1b.so.13"
"""What auditwheel makes of a library's name."""
LACKED = ("cuLaunchKernelEx", "cuLaunchKernelEx_ptsz", "cuCtxSynchronize_v2")
"""Of what older drivers do not have yet."""


@pytest.fixture(scope="module")
def copy(bench: Bench) -> Path:
    """A copy of the runtime where nobody looks for it."""
    return Path(shutil.copy2(bench.library.libcudart, bench.folder() / COPY))


@pytest.fixture(scope="module")
def twins(bench: Bench, copy: Path) -> Recorded:
    """Of one copy it is known before the command starts, of the other only once it is loaded."""
    return bench.record(*bench.python("twins", bench.library.libcudart, copy))


def test_both_copies_of_the_runtime_have_probes(bench: Bench, copy: Path, twins: Recorded) -> None:
    assert twins.said == [{"probed": [True, True]}]
    assert twins.lost == 0
    images = {fact.data["path"]: fact.data["functions"] for fact in twins.recording.facts("image")}
    assert images[str(bench.library.libcudart)] == images[str(copy)] > 50
    assert not [missing for missing in twins.recording.manifest.layers["cuda"].missing if "cudart" in missing.why]


def test_each_call_of_both_copies_is_recorded_once(twins: Recorded) -> None:
    (truth,) = twins.truths.values()
    one = twins.compared(truth.pid)
    assert len(truth.named("cudaMemsetAsync")) == 2 * TURNS
    assert set(one.operations.values()) == set(one.ops())


def test_driver_calls_are_joined_to_the_copy_that_made_them(twins: Recorded) -> None:
    (truth,) = twins.truths.values()
    one = twins.compared(truth.pid)
    by_number = {call.number: call for call in truth.calls}
    rules = {rule.name: rule.effect.kind for rule in RUNTIME_RULES}
    known = {symbol: function.kind for function in TABLE.functions for symbol in function.symbols}
    wanted = {
        (call.outer, call.number)
        for call in truth.calls
        if call.outer is not None
        and known.get(call.name) in rules.values()
        and known.get(by_number[call.outer].name) == "cuda.runtime.call"
    }
    edges = twins.analysis.edges
    rows = zip(edges.rule.tolist(), edges.cause.tolist(), edges.effect.tolist(), strict=True)
    found = [
        (one.number_of[cause], one.number_of[effect]) for rule, cause, effect in rows if edges.rules[rule] in rules
    ]
    assert Counter(found) == dict.fromkeys(wanted, 1)
    assert len(wanted) > 4 * TURNS


def exports(library: Path) -> set[str]:
    done = subprocess.run(["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True)
    return {line.split()[-1] for line in done.stdout.splitlines()}


def link(target: Path, sources: Sequence[Path], script: str) -> None:
    """Link a driver library that has the symbols that a version script exports, and no others, as NVIDIA's."""
    versions = target.with_suffix(".map")
    versions.write_text(script)
    folder = Path(source.__path__[0])
    flags = [*source._common_flags(folder), "-O1", *source._entry_flags(endbr64=False)]
    linking = ["-shared", "-s", "-Wl,-soname,libcuda.so.1", f"-Wl,--version-script={versions}"]
    subprocess.run(["cc", *flags, *map(str, sources), *linking, "-o", str(target)], check=True)


@pytest.fixture(scope="module")
def old(bench: Bench) -> Path:
    """A folder with an old driver and a program.

    It has every function of the table but those it lacks: those that the simulated one does not have either return
    CUDA_ERROR_NOT_SUPPORTED.
    """
    folder = bench.folder()
    have = exports(bench.library.libcuda)
    table = [function.name for function in TABLE.functions if function.api == "driver"]
    stubs = folder / "stubs.c"
    define = '__attribute__((visibility("default"))) int {0}(void);\nint {0}(void)\n{{\n\treturn 801;\n}}\n'
    stubs.write_text("".join(define.format(name) for name in table if name not in have))
    script = f"{{ global: cu*; simcuda_calls; local: {'; '.join(LACKED)}; *; }};\n"
    files = [Path(source.__path__[0]) / f"{name}.c" for name in source._DRIVER]
    link(folder / "libcuda.so.1", [*files, stubs], script)
    assert have - exports(folder / "libcuda.so.1") == set(LACKED)
    for file in (bench.library.workload, bench.library.libcudart):
        shutil.copy2(file, folder)
    return folder


@pytest.fixture(scope="module")
def stripped(bench: Bench, old: Path) -> Recorded:
    folder = bench.folder()
    environ = {"LD_LIBRARY_PATH": str(old), "SIMCUDA_TRUTH": f"{folder}/truth-%p"}
    options = ["--layers", "cuda", "--detail", "launch", "--as-root"]
    words = (old / bench.library.workload.name, "--threads", "2", "--launches", "211")
    done = fencepath("record", "-o", folder / "run.fencepath", *options, "--", *words, environ=environ)
    assert done.code == 0, done.errors
    return Recorded(folder, done)


def test_a_driver_that_lacks_functions_is_recorded(stripped: Recorded) -> None:
    assert stripped.lost == 0
    (truth,) = stripped.truths.values()
    one = stripped.compared(truth.pid)
    ops = one.ops()
    assert len(ops) == 2 * 211
    assert set(one.operations.values()) == set(ops)


def test_what_it_lacks_is_named(bench: Bench, stripped: Recorded) -> None:
    """In the manifest, by the recorder, in both forms of the report."""
    (missing,) = stripped.recording.manifest.layers["cuda"].missing
    assert missing.probe == "functions"
    assert set(missing.why.removeprefix("not in its libraries: ").split(", ")) == set(LACKED)
    assert f"not recorded: cuda: {missing.why}" in stripped.done.errors
    text, plain = bench.commands.run("report", stripped.path), bench.commands.run("report", stripped.path, "--json")
    assert (text.code, plain.code) == (0, 0)
    assert missing.why in " ".join(text.output.split())
    layers = msgspec.json.decode(plain.output)["recording"]["layers"]
    assert layers["cuda"]["missing"] == [{"probe": "functions", "why": missing.why}]
