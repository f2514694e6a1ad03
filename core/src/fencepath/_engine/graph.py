# SPDX-License-Identifier: Apache-2.0
"""The causal graph of one request as a networkx.MultiDiGraph, built from the columns when asked for."""

from __future__ import annotations

import networkx as nx
import numpy as np
import numpy.typing as npt

from fencepath._engine.activities import CATEGORIES, CONFIDENCES, ActivityTable
from fencepath._engine.edges import ORDERS, EdgeTable
from fencepath.entities import NO_ENTITY

__all__ = ["PROGRAM_ORDER", "build_graph"]

PROGRAM_ORDER = "core.program_order"


def build_graph(
    table: ActivityTable,
    edges: EdgeTable,
    threads: npt.NDArray[np.int64],
    start_ns: int,
    end_ns: int,
    on_path: frozenset[int],
) -> nx.MultiDiGraph[str]:
    """Return the graph of what overlaps a window on the given threads, and of all that edges tie to it within it.

    Nodes are activity ids with ``kind``, ``name``, ``begin_ns``, ``end_ns``, ``category``, ``entities``, ``on_path``.
    Edges have the rule as key, and ``confidence``, ``order``, ``source_ns``, ``target_ns``, ``gap``, ``back_ns``.
    """
    within = (table.end >= start_ns) & (table.begin <= end_ns)
    chosen = within & np.isin(table.thread, threads)
    tied = within[edges.cause] & within[edges.effect]
    while True:
        reached = tied & (chosen[edges.cause] ^ chosen[edges.effect])
        if not reached.any():
            break
        chosen[edges.cause[reached]] = True
        chosen[edges.effect[reached]] = True
    graph: nx.MultiDiGraph[str] = nx.MultiDiGraph()
    names = {
        activity: _add_node(graph, table, activity, activity in on_path) for activity in np.flatnonzero(chosen).tolist()
    }
    for edge in np.flatnonzero(tied & chosen[edges.cause] & chosen[edges.effect]).tolist():
        graph.add_edge(
            names[int(edges.cause[edge])],
            names[int(edges.effect[edge])],
            key=edges.rules[int(edges.rule[edge])],
            confidence=CONFIDENCES[int(edges.confidence[edge])],
            order=str(ORDERS[int(edges.order[edge])]),
            source_ns=int(edges.source[edge]),
            target_ns=int(edges.arrival[edge]),
            gap=str(CATEGORIES[int(edges.gap[edge])]),
            back_ns=int(edges.back[edge]),
        )
    _add_program_order(graph, table, names)
    return graph


def _add_node(graph: nx.MultiDiGraph[str], table: ActivityTable, activity: int, on_path: bool) -> str:
    name = table.id(activity)
    category = int(table.category[activity])
    graph.add_node(
        name,
        kind=table.locate(activity)[0],
        name=table.name(activity),
        begin_ns=int(table.begin[activity]),
        end_ns=int(table.end[activity]),
        category=str(CATEGORIES[category]) if category >= 0 else "",
        entities=table.entities(activity),
        on_path=on_path,
    )
    return name


def _add_program_order(graph: nx.MultiDiGraph[str], table: ActivityTable, names: dict[int, str]) -> None:
    """What a thread did before what it did next: from each activity to the next that begins after it ended."""
    activities = np.array([a for a in names if table.thread[a] != NO_ENTITY], np.int64)
    for thread in np.unique(table.thread[activities]).tolist():
        mine = activities[table.thread[activities] == thread]
        mine = mine[np.lexsort((table.end[mine], table.begin[mine]))]
        following = np.searchsorted(table.begin[mine], table.end[mine], "left")
        for row, not_before in enumerate(following.tolist()):
            after = max(not_before, row + 1)
            if after < len(mine):
                cause, effect = int(mine[row]), int(mine[after])
                graph.add_edge(
                    names[cause], names[effect], key=PROGRAM_ORDER, confidence="exact", order="finish_start",
                    source_ns=int(table.end[cause]), target_ns=int(table.begin[effect]), gap="", back_ns=0,
                )  # fmt: skip
