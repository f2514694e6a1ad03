# SPDX-License-Identifier: Apache-2.0
"""Outputs for other tools: tracing backends, trace viewers, graph libraries, data frames.

Each module has ``export(analysis, requests, endpoint=..., output=...)``, which returns a line that says what was done. They
are imported when they are used, and what they need beyond fencepath itself is an extra: without it they raise a
:class:`~fencepath.errors.MachineError` with the line that installs it.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from fencepath.analysis import Analysis
    from fencepath.requests import Request

__all__ = ["EXPORTERS", "Exporter"]


class Exporter(Protocol):
    """Writes or sends what an analysis found."""

    def __call__(
        self,
        analysis: Analysis,
        requests: Sequence[Request],
        *,
        endpoint: str | None = None,
        output: Path | None = None,
    ) -> str:
        """Export some requests.

        Args:
            analysis: of the recording.
            requests: some of ``analysis.requests``, at least one.
            endpoint: URL to send to; only ``otlp`` has one.
            output: file (for ``parquet``: folder) to write; None means one in the current folder, named after the recording.

        Returns:
            One line that says what was done.

        Raises:
            UsageError: an endpoint for what is a file, or neither where one is needed.
            MachineError: an extra is not installed, or nobody listens at the endpoint.
        """
        ...


def _export(
    module: str,
    analysis: Analysis,
    requests: Sequence[Request],
    *,
    endpoint: str | None = None,
    output: Path | None = None,
) -> str:
    exporter = cast("Exporter", importlib.import_module(f"fencepath.export.{module}").export)
    return exporter(analysis, requests, endpoint=endpoint, output=output)


EXPORTERS: Mapping[str, Exporter] = {
    name: partial(_export, name) for name in ("chrome", "graphml", "otlp", "parquet", "perfetto")
}
"""By the name that ``fencepath export --to`` takes."""
