# SPDX-License-Identifier: Apache-2.0
"""Which function an address that the driver hands out is."""

from __future__ import annotations

import pytest

from fencepath_cuda.code import asked_function, code_for
from fencepath_cuda.functions import table_for


@pytest.mark.parametrize(
    ("name", "flags", "function"),
    [
        (b"cuLaunchKernel", 0, "cuLaunchKernel"),
        (b"cuLaunchKernel", 2, "cuLaunchKernel_ptsz"),
        (b"cuMemcpyHtoD", 2, "cuMemcpyHtoD_v2_ptds"),
        (b"cuMemAlloc", 2, "cuMemAlloc_v2"),
        (b"cuMemcpyBatchAsync", 0, None),
        (b"cuCtxGetDevice", 0, None),
        (b"\xff\xfe", 0, None),
        ("cuEventQuery", 0, "cuEventQuery"),
    ],
)
def test_it_is_named_if_it_can_be_only_one(name: bytes | str, flags: int, function: str | None) -> None:
    assert asked_function({"name": name, "lookup_flags": flags}) == function


def test_what_is_not_recorded_is_nobodys() -> None:
    (handed_out,) = code_for(table_for("launch")).handed_out
    assert handed_out.function({"name": b"cuEventQuery", "lookup_flags": 0}) is None
    assert handed_out.function({"name": b"cuGraphLaunch", "lookup_flags": 0}) == "cuGraphLaunch"
