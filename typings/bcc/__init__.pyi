# SPDX-License-Identifier: Apache-2.0
# The part of BCC's Python bindings that fencepath uses.

from collections.abc import Sequence

class BPF:
    def __init__(self, *, text: bytes, cflags: Sequence[str] = ..., debug: int = ...) -> None: ...
    def dump_func(self, func_name: bytes) -> bytes: ...
    def cleanup(self) -> None: ...

__version__: str
