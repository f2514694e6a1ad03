# SPDX-License-Identifier: Apache-2.0
"""The layer ``xe`` where its module is loaded, which needs no hardware: every program attaches."""

from __future__ import annotations

import pytest
from tests.core.driver_live import attaches_everything

from fencepath.testing import LiveRecording


@pytest.mark.bpf
def test_every_program_attaches(live_recording: LiveRecording) -> None:
    attaches_everything("xe", live_recording)
