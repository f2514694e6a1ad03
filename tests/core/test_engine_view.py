# SPDX-License-Identifier: Apache-2.0
"""What a rule or a script sees of a kind that was not recorded."""

from __future__ import annotations

import numpy as np
from tests.core.planted import PING, Ping

from fencepath._engine.activities import ActivityTable
from fencepath._engine.view import EngineView
from fencepath.entities import Entities
from fencepath.events import HEAD_COLUMNS


def test_a_kind_without_events_has_the_columns_of_its_class() -> None:
    view = EngineView({}, ActivityTable({}, {}, Entities()), 0, {PING: Ping})
    batch = view.batch(PING)
    assert len(batch) == 0
    assert {*batch.columns} == {*HEAD_COLUMNS, "process", "thread", "door", "to", "wakee_tid"}
    assert (batch["to"].dtype, batch["door"].dtype) == (np.dtype(np.uint32), np.dtype(np.int64))
    assert list(batch.events(Ping)) == []


def test_a_kind_that_no_plugin_has_is_empty_as_well() -> None:
    view = EngineView({}, ActivityTable({}, {}, Entities()), 0)
    assert (len(view.batch("other.kind")), "thread" in view.batch("other.kind")) == (0, True)
