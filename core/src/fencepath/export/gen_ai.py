# SPDX-License-Identifier: Apache-2.0
"""What OpenTelemetry's conventions for generative AI, and the servers that came before them, call things.

The conventions: open-telemetry/semantic-conventions-genai. ``gen_ai.latency.*`` (seconds) and ``gen_ai.request.id`` are what
vLLM and SGLang write on their spans and their dashboards read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from fencepath.requests import Request, RequestState

__all__ = ["gen_ai_attributes", "span_name"]

_PHASES = {
    "queue": "gen_ai.latency.time_in_queue",
    "prefill": "gen_ai.latency.time_in_model_prefill",
    "decode": "gen_ai.latency.time_in_model_decode",
}
_NUMBERS = ("gen_ai.usage.", "gen_ai.latency.", "gen_ai.request.", "gen_ai.response.time_to_")


def span_name(request: Request) -> str:
    """Return ``{operation} {model}`` as the conventions want it, as far as the program said so, else ``llm_request``."""
    said = request.attributes
    words = [said[name] for name in ("gen_ai.operation.name", "gen_ai.request.model") if said.get(name)]
    return " ".join(words) or "llm_request"


def gen_ai_attributes(request: Request) -> dict[str, str | int | float]:
    """Return what is known of a request under its conventional names; what the program said itself goes first."""
    known: dict[str, str | int | float] = {"gen_ai.request.id": request.key}
    if request.token_ns:
        known["gen_ai.usage.output_tokens"] = max(request.token_ns)
    if request.first_token_ns is not None and request.state is not RequestState.BEGIN_UNKNOWN:
        known["gen_ai.latency.time_to_first_token"] = (request.first_token_ns - request.start_ns) / 1e9
    if request.state is RequestState.COMPLETE:
        known["gen_ai.latency.e2e"] = (request.end_ns - request.start_ns) / 1e9
    spent: Counter[str] = Counter()
    for span in request.phases:
        spent[span.phase] += span.end_ns - span.begin_ns
    known |= {_PHASES[phase]: time_ns / 1e9 for phase, time_ns in spent.items() if phase in _PHASES}
    return known | _said(request.attributes)


def _said(attributes: Mapping[str, str]) -> dict[str, str | int | float]:
    return {
        name: _number(value) if name.startswith(_NUMBERS) else value
        for name, value in attributes.items()
        if name.startswith("gen_ai.")
    }


def _number(text: str) -> str | int | float:
    """Marks carry text only; the conventions want numbers as numbers."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
