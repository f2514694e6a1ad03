# SPDX-License-Identifier: Apache-2.0
"""The support matrix is made of what the plugins declare."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.core.synthetic import plugins
from typer.testing import CliRunner

from fencepath import _loader
from fencepath._loader import load_plugins
from fencepath._stacks import stack_table, stacks_of
from fencepath.cli.application import app
from fencepath.plugin import API_VERSION, LayerInfo, Link, LinkState, StackLink, hookimpl

ROOT = Path(__file__).resolve().parents[2]
ACME = "libacme on its device"
SHIPPED = ("amdgpu", "cuda", "drm", "host", "i915", "nvidia", "xe")


def link(link: Any = "call", state: Any = "built", text: str = "", stack: str = ACME) -> StackLink:
    return StackLink(stack=stack, link=link, state=state, text=text)


def info(*links: Any, name: str = "acme") -> LayerInfo:
    return LayerInfo(name=name, title="", version="1", api=API_VERSION, links=links)


def layer(*links: Any, name: str = "acme") -> object:
    class Layer:
        @hookimpl
        def fencepath_layer(self) -> LayerInfo:
            return info(*links, name=name)

    return Layer()


def cells(*layers: LayerInfo) -> list[list[str]]:
    lines = stack_table(layers).splitlines()
    assert all(line.startswith("| ") and line.endswith(" |") for line in lines)
    return [re.split(r"(?<!\\) \| ", line[2:-2]) for line in lines]


def shipped() -> dict[str, LayerInfo]:
    registry = load_plugins()
    assert registry.problems == []
    return {name: registry.plugins[name].info for name in SHIPPED}


# Of the shipped layers.


@pytest.fixture(scope="module")
def page() -> dict[str, list[str]]:
    """Rows of the page by stack, as the docs build makes them."""
    generate = importlib.import_module("docs.generate")
    text: str = generate.on_page_markdown((ROOT / "docs" / "support.md").read_text(), None, None, None)
    assert "<!--" not in text
    section = text.partition("\n## Links from a call to its return\n")[2]
    head, line, *rows = [row[2:-2].split(" | ") for row in section.splitlines() if row.startswith("| ")]
    assert head == [
        *("stack", "API call", "submission", "job queue, dependency", "on the device", "done", "waiter woken")
    ]
    assert {len(row) for row in rows} == {len(line)} == {7}
    return {row[0]: row[1:] for row in rows}


def test_the_page_has_a_row_for_each_stack_that_there_is(page: dict[str, list[str]]) -> None:
    assert list(page) == [
        "simulated CUDA on the mock GPU driver",
        "CUDA on NVIDIA",
        "OpenCL on Mesa (rusticl)",
        "Vulkan on amdgpu (RADV)",
        "Vulkan on nouveau (NVK)",
        "Vulkan, OpenGL, Level Zero on xe",
        "Vulkan, OpenGL on i915",
        "OpenGL on nouveau (PUSHBUF)",
        "long-running queues on xe",
        "ROCm on KFD",
    ]


def test_the_page_says_which_links_there_are(page: dict[str, list[str]]) -> None:
    states = {stack: [cell.partition(":")[0] for cell in row] for stack, row in page.items()}
    assert states["simulated CUDA on the mock GPU driver"] == ["seen"] * 6
    assert states["CUDA on NVIDIA"] == ["seen", "no", "no", "no", "no", "seen"]
    assert states["ROCm on KFD"] == ["no", "no", "no", "no", "no", "built"]
    assert states["Vulkan on amdgpu (RADV)"] == ["no", *["built"] * 5]
    assert states["Vulkan, OpenGL on i915"] == ["no", "built", "no", "built", "built", "built"]
    assert page["CUDA on NVIDIA"][1] == "no: a launch makes no system call"
    assert page["Vulkan on amdgpu (RADV)"][1] == "built: amdgpu (`amdgpu.cs`, with the job's fence), drm (AMDGPU_CS)"
    assert page["OpenGL on nouveau (PUSHBUF)"][3] == "no"


def test_what_is_seen_was_seen_somewhere() -> None:
    """No stack on hardware that this project never had is said to be seen."""
    seen = {one.stack for layer in shipped().values() for one in layer.links if one.state == "seen"}
    assert seen == {"simulated CUDA on the mock GPU driver", "CUDA on NVIDIA"}


def test_kinds_that_declarations_name_exist() -> None:
    registry = load_plugins()
    named = [
        (name, kind)
        for name in SHIPPED
        for one in registry.plugins[name].info.links
        for kind in re.findall(r"`(\w+\.[\w.]+)`", one.text)
    ]
    assert len(named) >= 7
    assert [kind for name, kind in named if kind not in registry.plugins[name].kinds] == []


# Put together.


def test_layers_that_name_one_stack_share_its_row() -> None:
    first = info(link("call", "seen"), link("submit", "built", "ACME_SUBMIT"), link("queue", "no", "a doorbell"))
    second = info(link("submit", "seen", "`zeta.submit`"), link("queue"), link("wake", "no", "it | spins"), name="zeta")
    _, _, row = cells(first, second)
    assert row == [
        *(ACME, "seen: acme", "seen: zeta (`zeta.submit`); built: acme (ACME_SUBMIT)"),
        *("built: zeta", "no", "no", "no: it \\| spins"),
    ]
    assert cells(second, first) == cells(first, second)


def test_why_not_is_said_once_where_layers_say_the_same() -> None:
    _, _, row = cells(info(link("call", "no", "no layer")), info(link("call", "no", "no layer"), name="zeta"))
    assert row[1] == "no: no layer"


def test_stacks_with_most_links_come_first_and_then_by_name() -> None:
    names = [
        stack.name
        for stack in stacks_of(
            [
                info(link("call", "no", stack="d"), link("call", stack="c"), link("call", stack="b")),
                info(link("wake", "seen", stack="z"), name="zeta"),
                info(link("call", stack="b"), link("wake", stack="y"), link("call", stack="y"), name="other"),
            ]
        )
    ]
    assert names == ["z", "y", "b", "c", "d"]


def test_without_declarations_the_table_has_no_rows() -> None:
    assert len(cells(info())) == 2


# Refused.


@pytest.mark.parametrize(
    ("links", "message"),
    [
        (
            (link("sumbit"),),
            f"unknown link 'sumbit' of the stack '{ACME}'; it is one of call, submit, queue, execute, signal, wake",
        ),
        ((link(state="maybe"),), f"unknown state 'maybe' of the link 'call' of the stack '{ACME}'; it is one of seen, built, no"),
        ((link(), link(state="seen")), f"the link 'call' of the stack '{ACME}' is declared twice; say it once, all in one text"),
        ((link(stack=""),), "the link 'call' of the stack '': a stack has a name, and name and text are of one line"),
        ((link(text="a\nb"),), f"the link 'call' of the stack '{ACME}': a stack has a name, and name and text are of one line"),
        (("call",), "links of LayerInfo holds 'call'; each must be a StackLink"),
    ],
)  # fmt: skip
def test_a_declaration_that_makes_no_sense_is_refused(links: tuple[Any, ...], message: str) -> None:
    registry = plugins(layer(*links))
    (problem,) = registry.problems
    assert (problem.stage, problem.message) == ("register", message)
    assert "acme" not in registry.plugins


def test_all_links_and_states_are_taken() -> None:
    states: tuple[LinkState, ...] = ("seen", "built", "no")
    names: tuple[Link, ...] = ("call", "submit", "queue", "execute", "signal", "wake")
    assert plugins(layer(*(link(name, state, stack=state) for name in names for state in states))).problems == []


# Shown.


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another plugin beside the shipped ones."""
    registry = plugins(layer(link("call", "seen"), link("submit", "no", "by [a] doorbell")))
    monkeypatch.setattr(_loader, "load_plugins", lambda: registry)


@pytest.mark.usefixtures("installed")
def test_a_layer_is_shown_with_its_links() -> None:
    shown = CliRunner().invoke(app, ["plugins", "acme"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0
    rows = [re.split(r"\s{2,}", line.strip()) for line in shown.output.splitlines() if line.startswith(ACME)]
    assert [" ".join(row).split() for row in rows] == [
        [*ACME.split(), "call", "seen"],
        [*ACME.split(), "submit", "no", "by", "[a]", "doorbell"],
    ]


@pytest.mark.usefixtures("installed")
def test_a_layers_links_are_in_its_json() -> None:
    (told,) = json.loads(CliRunner().invoke(app, ["plugins", "acme", "--json"]).output)["plugins"]
    assert told["links"] == [
        {"stack": ACME, "link": "call", "state": "seen", "text": ""},
        {"stack": ACME, "link": "submit", "state": "no", "text": "by [a] doorbell"},
    ]


@pytest.mark.usefixtures("installed")
def test_a_layer_without_links_has_no_such_table() -> None:
    assert "by what, or why not" not in CliRunner().invoke(app, ["plugins", "toy"], env={"COLUMNS": "200"}).output
