# SPDX-License-Identifier: Apache-2.0
"""What this machine lacks for recording: read and tried once (:class:`MachineState`), judged by rules that look at nothing else."""

from __future__ import annotations

from fencepath._doctor.judge import examine, judge, judge_layers, look
from fencepath._doctor.state import MachineState, ProcessState, load_state, save_state

__all__ = ["MachineState", "ProcessState", "examine", "judge", "judge_layers", "load_state", "look", "save_state"]
