# SPDX-License-Identifier: Apache-2.0
"""Requirements on a plugin's module: its hooks, and what importing it does."""

from __future__ import annotations

import difflib
import inspect
import os
import subprocess
import sys
from pathlib import Path

from fencepath.plugin import LayerSpecs

__all__ = ["hooks_are_known", "imports_without_root"]

_PREFIX = "fencepath_"
_SPECS = {name: value for name, value in vars(LayerSpecs).items() if name.startswith(_PREFIX)}


def hooks_are_known(module: object) -> None:
    """Everything called ``fencepath_*`` in the plugin is a hook, takes what the hook gives, and is marked as one."""
    hooks = [name for name in dir(module) if name.startswith(_PREFIX) and inspect.isroutine(getattr(module, name))]
    for name in hooks:
        if name not in _SPECS:
            close = difflib.get_close_matches(
                name.removeprefix(_PREFIX), [known.removeprefix(_PREFIX) for known in _SPECS], 1
            )
            hint = f"did you mean {_PREFIX}{close[0]}?" if close else f"the hooks are {', '.join(sorted(_SPECS))}"
            raise AssertionError(f"there is no hook {name}; {hint}")
        _check_arguments(name, getattr(module, name))
        marked = hasattr(getattr(module, name), "fencepath_impl")
        assert marked, f"{name} would never be called; put @hookimpl from fencepath.plugin above it"
    assert "fencepath_layer" in hooks, "fencepath_layer is not implemented; it says who the plugin is"


def _check_arguments(name: str, hook: object) -> None:
    assert callable(hook)
    given = [argument for argument in inspect.signature(_SPECS[name]).parameters if argument != "self"]
    for argument, parameter in inspect.signature(hook).parameters.items():
        optional = parameter.default is not parameter.empty
        known = argument in given and not optional
        what = f"{name} gives {', '.join(given)}" if given else f"{name} gives no argument"
        assert known, (
            f"{name} asks for {argument}{' with a default' if optional else ''}, but {what}; take what you need by those names"
        )


def imports_without_root(module: str) -> None:
    """The plugin's module is imported, and its hooks that do no I/O are called, by a user who may do nothing.

    That is nobody or, where nobody may not read this Python, root without a capability. Nothing below /proc, /sys and /dev
    may be opened, no program started and BCC not imported: all that is for ``fencepath_probes`` and ``fencepath_checks``,
    which run when somebody records.
    """
    done = _import_as(module, "nobody")
    if done.returncode == _UNREADABLE:
        done = _import_as(module, "root")
    last = (done.stderr.strip().splitlines() or ["no message"])[-1]
    assert done.returncode == 0, (
        f"importing {module} as an unprivileged user failed: {last}\n"
        "do it in fencepath_probes or fencepath_checks, not while the module is imported or in another hook\n"
        f"{done.stderr}"
    )


def _import_as(module: str, user: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(str(Path(entry).resolve()) for entry in sys.path if entry)
    environ = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", _CHILD, module, user]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)


_UNREADABLE = 77

# fencepath and numpy are imported before the watch begins: what they open is not the plugin's doing. The capabilities are
# given up by capset(2) with no bit in any set (version 3 of its header, include/uapi/linux/capability.h).
_CHILD = f"""
import ctypes, os, sys
module, user = sys.argv[1:]
if os.geteuid() == 0 and user == "nobody":
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    import importlib, fencepath.testing.requirements
except ImportError as error:
    sys.exit(print(error, file=sys.stderr) or {_UNREADABLE})
if os.geteuid() == 0:
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    if ctypes.CDLL(None).capset(header, (ctypes.c_uint32 * 6)()):
        sys.exit("the capabilities cannot be given up")

def watch(event, arguments):
    if event == "open" and str(arguments[0]).startswith(("/proc/", "/sys/", "/dev/")):
        raise PermissionError(f"it opens {{arguments[0]}}")
    if event in ("subprocess.Popen", "os.system", "socket.connect"):
        raise PermissionError(f"it calls {{event}}")

sys.addaudithook(watch)
loaded = importlib.import_module(module)
for hook in ("layer", "event_kinds", "call_tables", "rules"):
    if hasattr(loaded, f"fencepath_{{hook}}"):
        getattr(loaded, f"fencepath_{{hook}}")()
if "_fencepath_bcc" in sys.modules or "bcc" in sys.modules:
    sys.exit("it imports bcc")
"""
