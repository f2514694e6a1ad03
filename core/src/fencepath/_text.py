# SPDX-License-Identifier: Apache-2.0
"""Sentences for people; imports nothing, so that it can be used before signals are blocked."""

from __future__ import annotations

import re

__all__ = ["absent_groups", "cut_list", "no_group"]

_KIND = re.compile(r"[a-z0-9_.]+ cannot be recorded: ")
_NO_GROUP = re.compile(r"(?:^|: )no group (\S+) \(is its module loaded\?\)")


def cut_list(text: str, most: int = 3) -> str:
    """Return a sentence that ends in a list of names with the first few of them: "absent: a, b, c and 5 more"."""
    head, separator, names = text.rpartition(": ")
    parts = names.split(", ")
    if len(parts) <= most + 1:
        return text
    return f"{head}{separator}{', '.join(parts[:most])} and {len(parts) - most} more"


def no_group(group: str) -> str:
    """Return why no event of a group of tracepoints can be recorded."""
    return f"no group {group} (is its module loaded?)"


def absent_groups(why: str) -> list[str]:
    """Return the groups of tracepoints whose absence is all that `why` says, sorted; [] if it says more."""
    groups = _NO_GROUP.findall(why)
    reasons = [part for part in _KIND.sub("", why).split("; ") if part]
    return sorted(set(groups)) if len(groups) == len(reasons) else []
