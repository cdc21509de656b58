"""Graphs of operators: values, builder, arrays, module paths, orders, and the graph of groups."""

from stead.graph.builder import GraphBuilder, OperatorId, TensorId
from stead.graph.graph import (
    BACKWARD,
    BUFFER,
    FORWARD,
    KV_CACHE,
    MAX_BYTES,
    MAX_OPERATORS,
    NOT_PARAMETERS,
    PHASES,
    UPDATE,
    Graph,
    Operator,
    Phase,
    Tensor,
)
from stead.graph.refresh import REFRESH, refreshed

__all__ = [
    "BACKWARD",
    "BUFFER",
    "FORWARD",
    "KV_CACHE",
    "MAX_BYTES",
    "MAX_OPERATORS",
    "NOT_PARAMETERS",
    "PHASES",
    "REFRESH",
    "UPDATE",
    "Graph",
    "GraphBuilder",
    "Operator",
    "OperatorId",
    "Phase",
    "Tensor",
    "TensorId",
    "refreshed",
]
