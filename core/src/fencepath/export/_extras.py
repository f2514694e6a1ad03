# SPDX-License-Identifier: Apache-2.0
"""Libraries that only some exports need."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from fencepath.errors import MachineError

__all__ = ["needs_extra"]


@contextmanager
def needs_extra(name: str, packages: tuple[str, ...]) -> Generator[None]:
    """Turn a failed import of one of the top-level `packages` into the line that installs the extra `name`.

    Raises:
        MachineError: one of them is missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in packages:
            raise
        raise MachineError(f"{error.name} is not installed", f"pip install 'fencepath[{name}]'") from error
