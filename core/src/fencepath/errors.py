# SPDX-License-Identifier: Apache-2.0
"""Every exception fencepath raises on purpose.

One root, :class:`FencepathError`; each subclass says who can mend it. Messages are lower case and say what to do.
Only the command line turns an error into an exit code.
"""

from __future__ import annotations

__all__ = [
    "AttachError",
    "FencepathError",
    "LoadError",
    "MachineError",
    "NewerFormatError",
    "NotARecordingError",
    "PluginError",
    "RecordingDamagedError",
    "UsageError",
]


class FencepathError(Exception):
    """Root of all errors of this project."""


class UsageError(FencepathError):
    """What was asked for makes no sense (a dead pid, two targets at once). Exit code 2."""


class MachineError(FencepathError):
    """This machine lacks something. Exit code 3.

    Attributes:
        remedy: one line that says how to get what is missing, or "" if nothing can be done here.
    """

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(f"{message}; {remedy}" if remedy else message)
        self.remedy = remedy


class LoadError(MachineError):
    """A BPF program was refused by the compiler or the verifier.

    Attributes:
        program: C function name, or "" when the whole file did not compile.
        log: what clang or the verifier said.
    """

    def __init__(self, program: str, log: str) -> None:
        tail = log.strip().splitlines()[-1:] or ["no message"]
        super().__init__(f"bpf program {program or '(file)'} was refused: {tail[0]}")
        self.program = program
        self.log = log


class AttachError(MachineError):
    """A loaded program could not be attached.

    Attributes:
        probe: what it was meant for, such as ``libcuda.so.1:cuLaunchKernel`` or ``sched:sched_switch``.
        errno: the kernel's error number, or 0.
    """

    def __init__(self, probe: str, message: str, errno: int = 0, remedy: str = "") -> None:
        super().__init__(f"cannot attach to {probe}: {message}", remedy)
        self.probe = probe
        self.errno = errno


class PluginError(FencepathError):
    """A plugin broke a contract or raised; it is isolated and the rest goes on.

    Attributes:
        plugin: the layer's name.
        stage: import, register, attach, decode, entities, rule, findings.
    """

    def __init__(self, plugin: str, stage: str, message: str) -> None:
        super().__init__(f"plugin {plugin} failed at {stage}: {message}")
        self.plugin = plugin
        self.stage = stage


class NotARecordingError(FencepathError):
    """The path holds no fencepath recording. Exit code 2."""


class NewerFormatError(FencepathError):
    """The recording was written by a newer fencepath than this one can read. Exit code 3."""


class RecordingDamagedError(FencepathError):
    """The part of a recording that was asked for cannot be read. Exit code 4."""
