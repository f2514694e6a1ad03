# SPDX-License-Identifier: Apache-2.0
"""The simulated driver answers as a real one did: data/h200.txt has programs and what each step of them returned there.

To make such a file anew, run ``simcuda-program --results FILE`` on a machine with a GPU, where it finds the real libcuda,
and write the results behind the steps.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.simcuda.truths import Interpret

PROGRAMS = Path(__file__).parent / "data/h200.txt"


def read_programs() -> list[tuple[str, str, list[str]]]:
    """Return each program's name, text and results as they are written."""
    _, *blocks = PROGRAMS.read_text().split("\nprogram\n")
    found: list[tuple[str, str, list[str]]] = []
    for block in blocks:
        name, *steps = block.splitlines()
        found.append(
            (name.removeprefix("# "), block, [step.partition("#")[2].strip() for step in steps if "#" in step])
        )
    return found


@pytest.mark.parametrize("part", range(8))
def test_results_are_those_of_a_real_gpu(interpret: Interpret, part: int) -> None:
    programs = read_programs()[part::8]
    assert len(programs) > 20
    runs = interpret([text for _, text, _ in programs])
    for run, (name, _, expected) in zip(runs, programs, strict=True):
        found = [str(step.result) for step in run.steps if step.name not in ("barrier", "sleep")]
        known = [there if there == "?" else here for here, there in zip(found, expected, strict=True)]
        assert known == expected, (name, [step.name for step in run.steps])
