# SPDX-License-Identifier: Apache-2.0
"""The files of ``deploy/`` ask for what SECURITY.md says, and no more."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # it has no stubs of its own

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNIT = DEPLOY / "systemd" / "fencepath@.service"


def needed() -> set[str]:
    """What SECURITY.md says that recording a cgroup, a container or a pod takes."""
    match = re.search(
        r"^\| a process of another user, a cgroup, [^|]*\| ([^|]+) \|", (ROOT / "SECURITY.md").read_text(), re.MULTILINE
    )
    assert match is not None
    return set(match[1].split(", "))


def unit() -> configparser.SectionProxy:
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # keys of units have capitals
    parser.read(UNIT)
    return parser["Service"]


def daemon_set() -> dict[str, Any]:
    documents = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "daemonset.yaml").read_text()))
    assert [document["kind"] for document in documents] == ["Namespace", "DaemonSet"]
    pod: dict[str, Any] = documents[1]["spec"]["template"]["spec"]
    assert documents[1]["spec"]["selector"]["matchLabels"] == documents[1]["spec"]["template"]["metadata"]["labels"]
    return pod


@pytest.mark.parametrize("key", ["AmbientCapabilities", "CapabilityBoundingSet"])
def test_the_unit_asks_for_no_more(key: str) -> None:
    assert set(unit()[key].split()) == needed()


def test_the_unit_is_understood(tmp_path: Path) -> None:
    """By systemd itself. Where fencepath is installed is not asked: it is not, here."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not there; apt install systemd")
    copy = tmp_path / UNIT.name
    copy.write_text(re.sub(r"^ExecStart=fencepath", "ExecStart=/bin/true", UNIT.read_text(), flags=re.MULTILINE))
    instance = tmp_path / "fencepath@vllm.service"
    instance.symlink_to(copy)
    done = subprocess.run(["systemd-analyze", "verify", str(instance)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_unit_runs_a_command_line_that_is_understood() -> None:
    words = unit()["ExecStart"].split()
    options = unit()["Environment"].partition("=")[2].strip('"').split()
    assert words[:2] == ["fencepath", "record"]
    understood(["--cgroup", *options])


def test_the_pod_asks_for_no_more() -> None:
    (container,) = daemon_set()["containers"]
    security = container["securityContext"]
    assert security["capabilities"]["drop"] == ["ALL"]
    assert {f"CAP_{name}" for name in security["capabilities"]["add"]} == needed()
    assert "privileged" not in security
    assert daemon_set()["hostPID"] is True


def test_every_mount_has_its_volume() -> None:
    pod = daemon_set()
    (container,) = pod["containers"]
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    assert set(mounts) == {volume["name"] for volume in pod["volumes"]}
    of_host = {volume["name"] for volume in pod["volumes"] if "hostPath" in volume} - {"recordings"}
    assert of_host == {"tracing", "cgroup"}
    for name in of_host:
        assert mounts[name]["readOnly"] is True


def test_the_image_has_everything_that_is_installed() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = re.search(r"/src\[([a-z,]+)\]", text)
    assert extras is not None
    assert set(extras[1].split(",")) <= set(project["project"]["optional-dependencies"])
    copied = {word for words in re.findall(r"^COPY (.+) \S+$", text, re.MULTILINE) for word in words.split()}
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert {folder.split("/")[0] for folder in wheel} <= copied
    assert all((ROOT / name).exists() for name in copied)


@pytest.mark.parametrize("page", ["containers.md", "doctor.md"])
def test_pages_name_options_that_there_are(page: str) -> None:
    text = (ROOT / "docs" / "how-to" / page).read_text()
    for line in re.findall(r"fencepath (?:record|doctor) [^\n`|]*", text):
        understood(re.findall(r"--[a-z-]+", line.partition(" -- ")[0]))


def understood(options: list[str]) -> None:
    """The command line has all options."""
    from typer.main import get_command

    from fencepath.cli.application import app

    commands = get_command(app).commands  # type: ignore[attr-defined]  # of a group
    known = {
        name for command in (commands["record"], commands["doctor"]) for param in command.params for name in param.opts
    }
    assert {option for option in options if option.startswith("--")} <= known
