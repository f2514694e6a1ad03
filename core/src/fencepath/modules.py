# SPDX-License-Identifier: Apache-2.0
"""Whose code an address is: the executables and libraries of recorded processes, and names of functions in them.

While recording, what each target has mapped is kept. Afterwards, on any machine, addresses in records lead to modules::

    modules = Modules(recording)
    located = modules.locate(batch["tgid"], batch["begin_ns"], batch["caller_ip"])
    [modules[index].name if index >= 0 else "unknown" for index in located.module.tolist()]

A layer that records addresses of functions declares them with :class:`CodeUse` in its call probe, and finds their names by
:meth:`Modules.names`::

    CodeUse(
        addresses=(CodeAddresses("hip.launch", ("host_function",)),),
        registrations=(Registration("__hipRegisterFunction", address=1, name=3),),
        handed_out=(HandedOut("hip.proc_address", "address", function=asked_function),),
    )
"""

from fencepath._modules.declared import CodeAddresses, CodeUse, HandedOut, NamedFunction, Registration
from fencepath._modules.table import NO_MODULE, CodeName, Located, Module, ModuleKind, Modules

__all__ = [
    "NO_MODULE",
    "CodeAddresses",
    "CodeName",
    "CodeUse",
    "HandedOut",
    "Located",
    "Module",
    "ModuleKind",
    "Modules",
    "NamedFunction",
    "Registration",
]
