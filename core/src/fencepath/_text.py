# SPDX-License-Identifier: Apache-2.0
"""Sentences for people; imports nothing, so that it can be used before signals are blocked."""

from __future__ import annotations

__all__ = ["cut_list"]


def cut_list(text: str, most: int = 3) -> str:
    """Return a sentence that ends in a list of names with the first few of them: "absent: a, b, c and 5 more"."""
    head, separator, names = text.rpartition(": ")
    parts = names.split(", ")
    if len(parts) <= most + 1:
        return text
    return f"{head}{separator}{', '.join(parts[:most])} and {len(parts) - most} more"
