# SPDX-License-Identifier: Apache-2.0
"""Attributes that plugins add to the spans of their activities, by the hook ``fencepath_span_attributes``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from fencepath.analysis import Analysis, Path
from fencepath.plugin import AttributeValue
from fencepath.report import Segment

__all__ = ["PluginAttributes"]

HOOK = "fencepath_span_attributes"


class PluginAttributes:
    """Asks the plugin of an activity, which is isolated if it raises, for the activities of one path."""

    def __init__(self, analysis: Analysis, path: Path) -> None:
        self._analysis = analysis
        activities = np.unique(path.columns.activity)
        self._activities = {analysis.table.id(a): a for a in activities[activities >= 0].tolist()}

    def of(self, segment: Segment) -> Mapping[str, AttributeValue]:
        """Return the attributes of what a segment shows; none if that is nothing, or its plugin has no such hook."""
        activity = self._activities.get(segment.activity_id)
        if activity is None:
            return {}
        kind, row = self._analysis.table.locate(activity)
        registry = self._analysis.registry
        plugin = registry.of_kind(kind)
        if plugin is None or not plugin.implements(HOOK):
            return {}
        columns = self._analysis.view.batch(kind).columns
        values = {name: column[row : row + 1].tolist()[0] for name, column in columns.items()}
        call = partial(plugin.call, HOOK, kind=kind, row=values)
        return registry.guard(plugin, HOOK, partial(_checked, call), {})


def _checked(call: partial[Any]) -> Mapping[str, AttributeValue]:
    attributes: dict[str, Any] = dict(call() or {})
    wrong = [name for name, value in attributes.items() if not isinstance(value, (str, bool, int, float))]
    if wrong:
        raise TypeError(f"{', '.join(wrong)}: an attribute is a text, a bool or a number")
    return attributes
