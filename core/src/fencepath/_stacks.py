# SPDX-License-Identifier: Apache-2.0
"""Which links of a path there are on which stack: the declarations of all layers put together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from fencepath.plugin import LayerInfo, Link, LinkState, StackLink

__all__ = ["Stack", "stack_table", "stacks_of", "wrong_links"]

_TITLES: Mapping[Link, str] = {
    "call": "API call",
    "submit": "submission",
    "queue": "job queue, dependency",
    "execute": "on the device",
    "signal": "done",
    "wake": "waiter woken",
}
_STATES: tuple[LinkState, ...] = ("seen", "built", "no")


class Stack(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the support matrix.

    Attributes:
        name: of the stack.
        links: of each link that any layer declares, the layers with what they say, by name.
    """

    name: str
    links: Mapping[Link, Sequence[tuple[str, StackLink]]]

    def state(self, link: Link) -> LinkState:
        """The best that any layer says; "no" if none says anything."""
        said: list[LinkState] = [declared.state for _, declared in self.links.get(link, ())]
        return min(said, key=_STATES.index) if said else "no"

    def count(self, state: LinkState) -> int:
        """How many links have a state."""
        return sum(self.state(link) == state for link in _TITLES)


def stacks_of(layers: Iterable[LayerInfo]) -> list[Stack]:
    """Put the declarations of layers together: the stacks with most links seen first, then those with most built, then by name."""
    found: dict[str, dict[Link, list[tuple[str, StackLink]]]] = {}
    for layer in sorted(layers, key=lambda layer: layer.name):
        for declared in layer.links:
            found.setdefault(declared.stack, {}).setdefault(declared.link, []).append((layer.name, declared))
    stacks = [Stack(name=name, links=links) for name, links in found.items()]
    return sorted(stacks, key=lambda stack: (-stack.count("seen"), -stack.count("built"), stack.name))


def stack_table(layers: Iterable[LayerInfo]) -> str:
    """The declarations of layers as a table of Markdown."""
    head = ["stack", *_TITLES.values()]
    rows = [[stack.name, *(_cell(stack, link) for link in _TITLES)] for stack in stacks_of(layers)]
    lines = [head, ["---"] * len(head), *([text.replace("|", "\\|") for text in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(stack: Stack, link: Link) -> str:
    """What is said of a link; that layers cannot have it only where no other has."""
    best = stack.state(link)
    shown = _STATES if best == "no" else _STATES[:-1]
    said = stack.links.get(link, ())
    parts = [_of_state(state, [pair for pair in said if pair[1].state == state]) for state in shown]
    return "; ".join(part for part in parts if part) or best


def _of_state(state: LinkState, said: Sequence[tuple[str, StackLink]]) -> str:
    if state == "no":
        texts = dict.fromkeys(declared.text for _, declared in said if declared.text)
    else:
        texts = dict.fromkeys(f"{layer} ({one.text})" if one.text else layer for layer, one in said)
    return f"{state}: {', '.join(texts)}" if texts else ""


def wrong_links(links: Iterable[object]) -> Iterator[str]:
    """What is wrong with a layer's declarations; types are not checked when such an object is made."""
    seen: set[tuple[str, Link]] = set()
    for declared in links:
        if not isinstance(declared, StackLink):
            yield f"links of LayerInfo holds {declared!r}; each must be a StackLink"
            continue
        where = f"link {declared.link!r} of the stack {declared.stack!r}"
        if declared.link not in _TITLES:
            yield f"unknown {where}; it is one of {', '.join(_TITLES)}"
        elif declared.state not in _STATES:
            yield f"unknown state {declared.state!r} of the {where}; it is one of {', '.join(_STATES)}"
        elif not declared.stack or "\n" in declared.stack + declared.text:
            yield f"the {where}: a stack has a name, and name and text are of one line"
        elif (declared.stack, declared.link) in seen:
            yield f"the {where} is declared twice; say it once, all in one text"
        seen.add((declared.stack, declared.link))
