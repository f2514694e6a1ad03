# SPDX-License-Identifier: Apache-2.0
"""Kernels with names that nobody would give them, launched in one marked request; a prime number of times each."""

from __future__ import annotations

import sys

from plugins.cuda.tests.faults.programs.library import Library

from fencepath import mark

__all__ = ["LAUNCHES", "NAMES"]

NAMES = {
    "plain": b"_Z6kernelPfi",
    "empty": b"",
    "not UTF-8": b"caf\xe9 \xff\xfe\x80",
    "UTF-8": "caf\u00e9 \u6838\u5fc3 \U0001f680".encode(),
    "cut in a character": b"c" * 382 + "\u00e9".encode(),
    "several lines": b"one\ntwo\r\nthree\tfour",
    "escape sequences": b"\x1b[31mred\x1b[0m\x1b]0;title\x07",
    "control characters": b"\x01\x02\x7f\xc2\x9b31m",
    "markup": b"[bold]<b>&amp;\"'{}%s[/bold]",
    "right to left": "abc\u202edef\u2028ghi".encode(),
    "very long": b"k" * 5003,
}
"""By what they are like. Bytes beyond 383 are not recorded."""

LAUNCHES = dict(zip(NAMES, (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31), strict=True))

_SHAPE = (7, 5, 3, 64, 1, 1, 0)


def use(cuda: Library, chosen: dict[str, bytes]) -> None:
    """Look kernels up in a context of their own, whose handles are free again afterwards, and launch them."""
    context = cuda.make("cuCtxCreate_v4", 0, 0, 0)
    stream, module = cuda.make("cuStreamCreate", 1), cuda.make("cuModuleLoadData", b"")
    for what, name in chosen.items():
        kernel = cuda.make("cuModuleGetFunction", module, name)
        for _ in range(LAUNCHES[what]):
            assert cuda.call("cuLaunchKernel", kernel, *_SHAPE, stream, 0, 0) == 0
    assert cuda.call("cuStreamSynchronize", stream) == 0
    assert cuda.call("cuCtxDestroy_v2", context) == 0


def main(path: str) -> None:
    """Launch all; then the one without a name by the handle that the first had."""
    cuda = Library(path)
    cuda.call("cuInit", 0)
    with mark.request("named"):
        use(cuda, {what: name for what, name in NAMES.items() if what != "empty"})
        use(cuda, {"empty": NAMES["empty"]})


if __name__ == "__main__":
    main(*sys.argv[1:])
