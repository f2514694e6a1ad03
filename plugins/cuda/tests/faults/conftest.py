# SPDX-License-Identifier: Apache-2.0
"""The simulated library and the command line, loaded once, for all tests of faults."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from plugins.cuda.tests.faults.workbench import Bench
from tests.faults.commandline import ForkServer

from fencepath_cuda.simcuda import SimCuda, build


@pytest.fixture(scope="session")
def simcuda(tmp_path_factory: pytest.TempPathFactory) -> SimCuda:
    """The simulated library."""
    return build(tmp_path_factory.mktemp("simcuda"))


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory, simcuda: SimCuda) -> Iterator[Bench]:
    """What records programs on it."""
    server = ForkServer(tmp_path_factory.mktemp("commands"), {"LD_LIBRARY_PATH": str(simcuda.folder)})
    yield Bench(simcuda, server, tmp_path_factory.mktemp("recordings"))
    server.close()
