# SPDX-License-Identifier: Apache-2.0
"""Who may import what, and that every list of layers is the same list. Read from the sources; nothing is imported."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
LAYERS = sorted(folder.name for folder in (ROOT / "plugins").iterdir() if (folder / "src").is_dir())
TEMPLATE = ROOT / "examples" / "plugin-template"
PLUGIN_ROOTS = {
    **{f"fencepath_{layer}": ROOT / "plugins" / layer / "src" / f"fencepath_{layer}" for layer in LAYERS},
    "fencepath_acme": TEMPLATE / "src" / "fencepath_acme",
}


def settings(path: Path = ROOT / "pyproject.toml") -> dict[str, Any]:
    return tomllib.loads(path.read_text())


def imports(source: Path) -> Iterator[str]:
    """Every module and every name of a module that a file imports, wherever in it, as a dotted name."""
    for node in ast.walk(ast.parse(source.read_text(), str(source))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{source}: relative import"
            yield from (f"{node.module}.{name.name}" for name in node.names)


def sources(root: Path) -> list[Path]:
    found = sorted(root.rglob("*.py"))
    assert found, f"there is no source in {root}"
    return found


def is_private(name: str) -> bool:
    """Whether a part of a dotted name begins with an underscore; ``__version__`` is public."""
    return any(part.startswith("_") and not part.endswith("__") for part in name.split("."))


def test_every_list_of_layers_is_the_same() -> None:
    about = settings()
    packages = about["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    paths = [f"plugins/{layer}/src" for layer in LAYERS]
    assert sorted(about["project"]["entry-points"]["fencepath.plugins"]) == LAYERS
    assert about["project"]["entry-points"]["fencepath.plugins"] == {
        name: f"fencepath_{name}.plugin" for name in LAYERS
    }
    assert packages == [
        "core/src/fencepath",
        *(f"{path}/fencepath_{name}" for path, name in zip(paths, LAYERS, strict=True)),
    ]
    assert about["tool"]["ruff"]["src"] == ["core/src", *paths]
    mypy = [entry.removeprefix("$MYPY_CONFIG_FILE_DIR/") for entry in about["tool"]["mypy"]["mypy_path"]]
    assert mypy == ["typings", "core/src", *paths]


@pytest.mark.parametrize("package", PLUGIN_ROOTS)
def test_a_plugin_has_the_files_of_every_plugin(package: str) -> None:
    root = PLUGIN_ROOTS[package]
    for name in ("__init__.py", "plugin.py", "py.typed"):
        assert (root / name).is_file(), f"{package} has no {name}"


@pytest.mark.parametrize("package", PLUGIN_ROOTS)
def test_a_plugin_imports_only_what_is_public_and_no_other_plugin(package: str) -> None:
    for source in sources(PLUGIN_ROOTS[package]):
        for name in imports(source):
            top = name.split(".")[0]
            assert not (top == "fencepath" and is_private(name)), f"{source} imports {name}, which is core's own"
            assert top == package or not top.startswith("fencepath_"), f"{source} imports {name}, another plugin"


def test_core_imports_no_plugin() -> None:
    for source in sources(ROOT / "core" / "src" / "fencepath"):
        plugins = [name for name in imports(source) if name.startswith("fencepath_")]
        assert not plugins, f"{source} imports {', '.join(plugins)}"


def test_the_template_uses_what_a_stranger_may() -> None:
    """Its tests too: they are what authors copy."""
    for source in sources(TEMPLATE / "tests"):
        private = [name for name in imports(source) if name.startswith("fencepath.") and is_private(name)]
        assert not private, f"{source} imports {', '.join(private)}"


@pytest.mark.parametrize(
    ("name", "private"),
    [("fencepath.plugin.hookimpl", False), ("fencepath.__version__", False), ("fencepath._loader.Registry", True)],
)
def test_what_counts_as_private(name: str, private: bool) -> None:
    assert is_private(name) == private


@pytest.mark.parametrize("module", ["events", "records"])
def test_every_member_of_an_enum_is_documented(module: str) -> None:
    """The pages made of the code leave out what has no docstring."""
    tree = ast.parse((ROOT / "core" / "src" / "fencepath" / f"{module}.py").read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and any(
            "Enum" in ast.unparse(b) or "Flag" in ast.unparse(b) for b in node.bases
        ):
            for member, after in zip(node.body, [*node.body[1:], None], strict=True):
                documented = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
                assert documented or not isinstance(member, ast.Assign), f"{node.name}: {ast.unparse(member)}"
