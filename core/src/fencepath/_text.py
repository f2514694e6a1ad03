# SPDX-License-Identifier: Apache-2.0
"""Sentences for people; imports nothing, so that it can be used before signals are blocked."""

from __future__ import annotations

import re

__all__ = ["absent_groups", "absent_modules", "cut_list", "no_group", "no_module"]

_KIND = re.compile(r"[a-z0-9_.]+ cannot be recorded: ")
_NO_GROUP = re.compile(r"(?:^|: )no group (\S+) \(is its module loaded\?\)")
_NO_MODULE = re.compile(r"no module (\S+) is loaded")


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


def no_module(module: str) -> str:
    """Return why no function of a module can be probed."""
    return f"no module {module} is loaded"


def absent_modules(why: str) -> list[str]:
    """Return the modules whose absence is all that `why` says, sorted; [] if it says more."""
    reasons = [part for part in _KIND.sub("", why).split("; ") if part]
    found = [match[1] for part in reasons if (match := _NO_MODULE.fullmatch(part))]
    return sorted(set(found)) if len(found) == len(reasons) else []


def absent_groups(why: str) -> list[str]:
    """Return the groups of tracepoints whose absence is all that `why` says, sorted; [] if it says more."""
    groups = _NO_GROUP.findall(why)
    reasons = [part for part in _KIND.sub("", why).split("; ") if part]
    return sorted(set(groups)) if len(groups) == len(reasons) else []
