# SPDX-License-Identifier: Apache-2.0
"""The table of what each interface needs and gives, from the declarations of the plugins."""

from __future__ import annotations

from fencepath._interfaces import interfaces
from fencepath._loader import load_plugins
from fencepath.testing._matrix import saved_kernels, shipped_kernels

SYSTEM = next(system for system in saved_kernels(shipped_kernels()) if system.kernel.startswith("7.3"))


def test_every_kind_that_is_recorded_is_given_by_one() -> None:
    registry = load_plugins()
    given = {(one.layer, kind) for one in interfaces(registry, SYSTEM) for kind in one.gives}
    declared = {
        (plugin.name, kind)
        for plugin in registry.plugins.values()
        for kind, event in plugin.kinds.items()
        if not event.info.derived
    }
    assert declared <= given


def test_needs_are_those_of_the_probes() -> None:
    found = {(one.layer, one.probe_set, one.way): one for one in interfaces(load_plugins(), SYSTEM)}
    requests = found["nvidia", "requests", 1]
    assert requests.needs == ("tracepoints of ioctl(2)", "BTF, by which the device behind a file descriptor is read")
    assert "nvidia.alloc" in requests.gives
    assert found["cuda", "calls", 1].needs[0].startswith("uprobes on libcuda.so")
    jobs = [one for (layer, name, _), one in found.items() if (layer, name) == ("drm", "jobs")]
    assert len(jobs) > 2
    assert "gpu_scheduler:drm_sched_job_queue or gpu_scheduler:drm_sched_job," in jobs[0].needs[0]
    assert jobs[0].needs[1:] == ("BTF, by which arguments of tracepoints are read",)
    assert not jobs[0].loses
    assert all(one.loses for one in jobs[1:])
