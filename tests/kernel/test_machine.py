# SPDX-License-Identifier: Apache-2.0
"""The emulated machine computes right: what it analyses itself is worth nothing otherwise."""

from __future__ import annotations

import numpy as np
import pytest

pytestmark = [pytest.mark.kernel, pytest.mark.bpf]


@pytest.mark.parametrize("dtype", ["i4", "i8", "u8", "f8"])
def test_numbers_are_sorted(dtype: str) -> None:
    for count in range(2, 150):
        numbers = np.random.default_rng(count).integers(0, count // 2 + 1, count)
        expected = np.array(sorted(numbers.tolist()), dtype)
        column = numbers.astype(dtype)
        assert (np.sort(column) == expected).all(), count
        assert (column[np.argsort(column)] == expected).all(), count
