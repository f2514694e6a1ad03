# SPDX-License-Identifier: Apache-2.0
# The part of BCC's Python bindings that fencepath uses.

from collections.abc import Sequence

class _Library:
    def bpf_num_functions(self, module: object) -> int: ...
    def bpf_function_name(self, module: object, index: int) -> bytes: ...

lib: _Library

class BPF:
    module: object
    def __init__(self, *, text: bytes, cflags: Sequence[str] = ..., debug: int = ...) -> None: ...
    def dump_func(self, func_name: bytes) -> bytes: ...
    def cleanup(self) -> None: ...

__version__: str
