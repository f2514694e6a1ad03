# SPDX-License-Identifier: Apache-2.0
"""Reads the package's data: requests with their layouts, names of classes, commands and statuses, Xid codes.

The files are comma-separated, with their sources in lines that begin with #.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

__all__ = ["class_groups", "class_names", "control_names", "read_rows", "status_names"]

_DATA = Path(__file__).parent / "data"


def read_rows(name: str) -> list[dict[str, str]]:
    """Return the rows of a data file as texts by column."""
    with (_DATA / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


@cache
def class_names() -> Mapping[int, str]:
    """Names of object classes by number."""
    return _numbered("classes.csv", "class", "name")


@cache
def class_groups() -> Mapping[int, str]:
    """What the objects of a class are, such as ``channel`` or ``memory``, by number."""
    return _numbered("classes.csv", "class", "group")


@cache
def control_names() -> Mapping[int, str]:
    """Names of commands of NV_ESC_RM_CONTROL by number."""
    return _numbered("controls.csv", "command", "name")


@cache
def status_names() -> Mapping[int, str]:
    """Names of NV_STATUS by number."""
    return _numbered("statuses.csv", "status", "name")


def _numbered(file: str, key: str, value: str) -> Mapping[int, str]:
    return MappingProxyType({int(row[key], 0): row[value] for row in read_rows(file)})
