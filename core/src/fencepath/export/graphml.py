# SPDX-License-Identifier: Apache-2.0
"""The causal graph around some requests, as GraphML or, to a file named ``.json``, as node-link JSON.

``networkx.read_graphml`` and ``networkx.node_link_graph`` read them, as do Gephi, yEd and igraph the first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import networkx as nx

from fencepath.export._files import count, output_path

if TYPE_CHECKING:
    from fencepath.analysis import Analysis
    from fencepath.requests import Request

__all__ = ["export", "graph_of"]


def export(
    analysis: Analysis, requests: Sequence[Request], *, endpoint: str | None = None, output: Path | None = None
) -> str:
    """Write the graph of some requests; see :class:`fencepath.export.Exporter`."""
    path = output_path(analysis, output, endpoint, ".graphml")
    graph = graph_of(analysis, requests)
    if path.suffix == ".json":
        path.write_bytes(msgspec.json.encode(nx.node_link_data(graph, edges="edges")) + b"\n")
    else:
        nx.write_graphml(_flat(graph), path)
    nodes, edges = count(graph.number_of_nodes(), "node"), count(graph.number_of_edges(), "edge")
    return f"{count(len(requests), 'request')}, {nodes}, {edges}: {path}"


def graph_of(analysis: Analysis, requests: Sequence[Request]) -> nx.MultiDiGraph[str]:
    """Return the graphs of some requests as one; ``on_path`` names the requests on whose path a node is."""
    whole: nx.MultiDiGraph[str] = nx.MultiDiGraph(recording=analysis.recording.manifest.id)
    for request in requests:
        graph = analysis.graph(request)
        for node, data in graph.nodes(data=True):
            before = whole.nodes[node]["on_path"] if node in whole else ()
            on_path = (*before, request.id) if data["on_path"] else before
            whole.add_node(node, **{**data, "on_path": on_path})
        for cause, effect, rule, data in graph.edges(keys=True, data=True):
            whole.add_edge(cause, effect, key=rule, **data)
    return whole


def _flat(graph: nx.MultiDiGraph[str]) -> nx.MultiDiGraph[str]:
    """GraphML has scalars only: several texts become one, with spaces between them."""
    flat: nx.MultiDiGraph[str] = nx.MultiDiGraph(**graph.graph)
    flat.add_nodes_from((node, _scalars(data)) for node, data in graph.nodes(data=True))
    for cause, effect, rule, data in graph.edges(keys=True, data=True):
        flat.add_edge(cause, effect, key=rule, **_scalars(data))
    return flat


_NOT_IN_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


def _scalars(data: dict[str, Any]) -> dict[str, Any]:
    """Texts without what XML 1.0 cannot hold: a thread's name can be any bytes."""
    plain = {name: " ".join(value) if isinstance(value, tuple) else value for name, value in data.items()}
    return {name: _NOT_IN_XML.sub("?", value) if isinstance(value, str) else value for name, value in plain.items()}
