# SPDX-License-Identifier: Apache-2.0
"""The wheels, as somebody gets them: what is in them, and fencepath with the template's plugin in a clean environment."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from tests.packaging.installed import ROOT, TEMPLATE, Environment, build, metadata_of, requirements_of, run

pytestmark = pytest.mark.packaging

LAYERS = sorted(folder.name for folder in (ROOT / "plugins").iterdir() if (folder / "src").is_dir())
CORE_LAYERS = ["mark", "process"]
HOW_TO = ROOT / "docs" / "how-to" / "write-a-plugin.md"
HEAVY = ("bcc", "msgspec", "networkx", "numpy", "opentelemetry", "pluggy", "pyarrow", "rich", "typer")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder outside of the checkout."""
    return tmp_path_factory.mktemp("packaging")


@pytest.fixture(scope="module")
def wheel(folder: Path) -> Path:
    """fencepath's wheel, built from its sdist."""
    return build(ROOT, folder / "dist")


@pytest.fixture(scope="module")
def template_wheel(folder: Path) -> Path:
    """The template's."""
    return build(TEMPLATE, folder / "template-dist")


@pytest.fixture(scope="module")
def installed(folder: Path, wheel: Path, template_wheel: Path) -> Environment:
    """Both, with what they and the template's tests need."""
    requirements = [*requirements_of(wheel), *requirements_of(template_wheel, "test")]
    return Environment(folder / "venv", [wheel, template_wheel], requirements)


def files_below(*roots: Path) -> dict[str, bytes]:
    """Every file of some packages, by its path in a wheel."""
    return {
        str(path.relative_to(root.parent)): path.read_bytes()
        for root in roots
        for path in sorted(root.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def files_in(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}


def assert_same(found: dict[str, bytes], wanted: dict[str, bytes]) -> None:
    assert sorted(found) == sorted(wanted)
    assert [name for name in wanted if found[name] != wanted[name]] == []


def test_the_wheel_holds_every_file_of_the_packages(wheel: Path) -> None:
    """BPF sources and other data too: a line of .gitignore can leave them out without a word."""
    wanted = files_below(
        ROOT / "core/src/fencepath", *(ROOT / f"plugins/{layer}/src/fencepath_{layer}" for layer in LAYERS)
    )
    assert_same(files_in(wheel), wanted)
    assert {name.split("/")[0] for name in wanted} == {"fencepath", *(f"fencepath_{layer}" for layer in LAYERS)}
    assert len([name for name in wanted if name.endswith(".c")]) > len(CORE_LAYERS)


def test_the_templates_wheel_holds_every_file(template_wheel: Path) -> None:
    assert_same(files_in(template_wheel), files_below(TEMPLATE / "src/fencepath_acme"))


def test_the_sdist_is_all_that_is_needed_to_test(wheel: Path) -> None:
    (sdist,) = wheel.parent.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "LICENSE", "README.md", "Makefile", "tests/packaging/test_packaging.py"} <= names
    assert {f"plugins/{layer}/src/fencepath_{layer}/plugin.py" for layer in LAYERS} <= names
    assert "examples/plugin-template/pyproject.toml" in names


def test_metadata(wheel: Path) -> None:
    text = metadata_of(wheel, "METADATA")
    required = {requirement.name for requirement in requirements_of(wheel)}
    assert "bcc" not in required, "the bcc of PyPI is another project"
    assert "\nLicense-File: LICENSE" in text
    points = metadata_of(wheel, "entry_points.txt")
    assert re.findall(r"^(\w+) = fencepath_\w+\.plugin$", points, re.MULTILINE) == LAYERS


def test_everything_is_installed_and_can_be_read(installed: Environment, folder: Path) -> None:
    code = """
import importlib.metadata, fencepath
files = importlib.metadata.distribution("fencepath").files
print(fencepath.__file__, len(files), sum(len(file.read_binary()) for file in files if file.suffix != ".pyc"))
"""
    where, count, size = installed.run("-c", code, cwd=folder).split()
    assert where.startswith(str(folder))
    assert int(count) > 100
    assert int(size) > 100_000


def test_all_layers_are_listed(installed: Environment, folder: Path) -> None:
    found = installed.json("plugins", cwd=folder)
    assert found["problems"] == []
    # `zeta` is there once its test has run
    assert {row["name"] for row in found["plugins"]} - {"zeta"} == {*LAYERS, *CORE_LAYERS, "acme"}
    (acme,) = (row for row in found["plugins"] if row["name"] == "acme")
    assert acme["distribution"].startswith("fencepath-acme ")


def test_the_templates_own_tests(installed: Environment, folder: Path) -> None:
    """All of them, live ones too; where BPF is not required, those are skipped with the reason."""
    copy = folder / "template"
    shutil.copytree(TEMPLATE, copy, ignore=shutil.ignore_patterns("src", "__pycache__", ".*"))
    output = installed.run("-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=copy)
    assert re.search(r"\d+ passed", output), output
    if os.environ.get("FENCEPATH_REQUIRE_BPF") == "1":
        assert "skipped" not in output


def test_check_plugin(installed: Environment, folder: Path) -> None:
    formats, source = TEMPLATE / "tests" / "formats" / "6.18", TEMPLATE / "tests" / "libacme" / "libacme.c"
    library = folder / "libacme.so"
    run(["cc", "-shared", "-fPIC", "-pthread", "-o", str(library), str(source)], cwd=folder)
    options = ["--formats", str(formats), "--library", str(library)]
    checks = installed.json("check-plugin", "acme", *options, cwd=folder)
    assert {check["name"]: check["evidence"] for check in checks if check["verdict"] != "ok"} == {}


def test_a_copy_by_another_name(installed: Environment, folder: Path) -> None:
    """The commands are those of the how-to; what comes of them is another plugin, installed beside the first."""
    home = folder / "home"
    home.mkdir()
    run(["sh", "-eu", "-c", how_to_rename()], cwd=ROOT, environ={**os.environ, "HOME": str(home)})
    copy = home / "fencepath-zeta"
    left = subprocess.run(["grep", "-rnIi", "acme", str(copy)], capture_output=True, text=True, check=False).stdout
    assert left == ""
    assert [path for path in copy.rglob("*acme*") if "__pycache__" not in path.parts] == []
    installed.install(build(copy, folder / "zeta-dist"))
    assert {"acme", "zeta"} <= {row["name"] for row in installed.json("plugins", cwd=folder)["plugins"]}
    shutil.rmtree(copy / "src")
    output = installed.run("-m", "pytest", "-q", "-p", "no:cacheprovider", "--deselect", "tests/test_live.py", cwd=copy)
    assert re.search(r"\d+ passed", output), output


def how_to_rename() -> str:
    """The block of the how-to that copies and renames the template."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", HOW_TO.read_text(), re.MULTILINE | re.DOTALL)
    (block,) = (str(block) for block in blocks if "sed" in block)
    return block


def test_types_reach_a_plugin(installed: Environment, folder: Path) -> None:
    """The wheels say that they are typed, and the template is strictly so against them."""
    copy = folder / "typed"
    shutil.copytree(TEMPLATE, copy, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    run([sys.executable, "-m", "mypy", "--python-executable", str(installed.python)], cwd=copy)
    run([sys.executable, "-m", "pyright", "-p", ".", "--pythonpath", str(installed.python)], cwd=copy)


def test_importing_fencepath_loads_nothing_heavy(installed: Environment, folder: Path) -> None:
    code = "import sys, {}; print(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    for module in ("fencepath", "fencepath.mark"):
        loaded = installed.run("-c", code.format(module), cwd=folder).split()
        assert sorted(set(HEAVY).intersection(loaded)) == []


def test_the_pytest_plugin_loads_nothing_heavy(installed: Environment, folder: Path) -> None:
    """It is loaded by every pytest run of an environment that has fencepath."""
    code = "import sys, pytest; before = set(sys.modules); import fencepath.testing.pytest_plugin; print(*set(sys.modules) - before)"
    loaded = {name.split(".")[0] for name in installed.run("-c", code, cwd=folder).split()}
    assert sorted(set(HEAVY) & loaded) == []


def test_marks_need_nothing_else(wheel: Path, folder: Path) -> None:
    """``pip install --no-deps``, and no other package in sight: -I and -S leave the standard library alone."""
    target = folder / "alone"
    run(
        [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-index",
            "--no-deps",
            "--target",
            str(target),
            str(wheel),
        ]
    )
    code = f"""
import sys
sys.path.insert(0, {str(target)!r})
from fencepath import mark
with mark.request("alone"), mark.phase("prefill"):
    pass
print(mark.__file__)
"""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(target / "fencepath" / "mark.py")
