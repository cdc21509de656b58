"""Unrolled networks in which weights are operators: who uses them, and which backward operator belongs to which step.

In such graphs (of formats that know no weights) an operator without inputs writes a weight that all steps read, and
nothing says of what forward operator a backward one is the twin. It can be told from the tensors that both read, since
what is computed last is differentiated first: of the forward operators that read a tensor the last one belongs to the
first backward operator that does. What reads gradients alone belongs to where the first of them comes from.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stead.graph import FORWARD, Graph

LEAST_STEPS = 8  # forward readers of a weight
LEAST_SHARE = 0.5  # of the bytes that operators without inputs write and forward ones read


def weight_tensors(graph: Graph) -> NDArray[np.bool_]:  # [tensor]
    """Weights that are written by operators and read by many steps; none unless most bytes from outside are theirs."""
    from_outside = (np.diff(graph.read_first) == 0) & (graph.phases == FORWARD)  # [operator]
    outside = from_outside[graph.tensor_producer]
    forward = graph.phases[graph.readers] == FORWARD
    steps = np.bincount(graph.tensor_of_read[forward], minlength=len(graph.tensor_bytes))
    outside &= steps > 0
    found = outside & (steps >= LEAST_STEPS)
    size = graph.tensor_bytes.astype(np.float64)
    return found if found.any() and size[found].sum() >= LEAST_SHARE * size[outside].sum() else np.zeros_like(found)


def first_readers(graph: Graph, tensors: NDArray[np.bool_]) -> NDArray[np.int64]:  # [(producer, reader), tensor]
    """For each of these tensors the operator that writes it and the first forward one that reads it."""
    tensor, reader = graph.tensor_of_read, graph.readers.astype(np.int64)
    counts = tensors[tensor] & (graph.phases[reader] == FORWARD)
    first = np.full(len(tensors), len(graph), dtype=np.int64)
    np.minimum.at(first, tensor[counts], reader[counts])
    which = np.flatnonzero(first < len(graph))
    return np.stack([graph.tensor_producer[which].astype(np.int64), first[which]])


def steps_of(graph: Graph) -> NDArray[np.int64]:  # [operator]
    """The forward operator that each operator belongs to, by the tensors that both read; itself for forward ones."""
    anchors = _by_common_tensors(graph)
    is_forward = (graph.phases == FORWARD).tolist()
    producers = graph.tensor_producer[graph.read_tensors].tolist()
    first = graph.read_first.tolist()
    for v in np.flatnonzero((anchors < 0) & (np.diff(graph.read_first) > 0)).tolist():  # producers come first
        read = producers[first[v] : first[v + 1]]
        anchors[v] = anchors[next((u for u in read if not is_forward[u]), read[0])]
    return np.where(anchors < 0, np.arange(len(graph)), anchors)


def _by_common_tensors(graph: Graph) -> NDArray[np.int64]:  # [operator]
    """Anchors of what reads tensors of forward operators, by most of these tensors; -1 for others."""
    is_forward, count = graph.phases == FORWARD, len(graph.tensor_bytes)
    producer = graph.tensor_producer.astype(np.int64)
    by_reader = np.lexsort((graph.readers, graph.tensor_of_read))
    tensor, reader = graph.tensor_of_read[by_reader], graph.readers[by_reader].astype(np.int64)
    forward = is_forward[reader]
    own = (graph.colocation[reader] >= 0) & (graph.colocation[reader] == graph.colocation[producer[tensor]])
    late = ~forward & is_forward[producer[tensor]] & ~own  # an update stays with its weight
    readers, lates = (np.bincount(tensor[one], minlength=count) for one in (forward, late))
    # The producer is the first that may be meant, where more read the tensor backward than forward.
    inputs = np.diff(graph.read_first)[producer] > 0
    with_producer = ((lates > readers) & inputs) | (readers == 0)
    candidates = readers + with_producer
    begins = np.cumsum(readers) - readers
    meant = tensor[late]
    rank = np.arange(len(meant)) - (np.cumsum(lates) - lates)[meant]  # among the late readers of its tensor
    place = candidates[meant] - 1 - np.minimum(candidates[meant] - 1, rank * candidates[meant] // lates[meant])
    among = reader[forward]
    index = begins[meant] + place - with_producer[meant]
    is_producer = with_producer[meant] & (place == 0)
    chosen = np.where(is_producer, producer[meant], among[np.where(is_producer, 0, index)] if among.size else -1)
    votes, times = np.unique(np.stack([reader[late], chosen]), axis=1, return_counts=True)
    best = np.lexsort((votes[1], times, votes[0]))
    anchors = np.where(is_forward, np.arange(len(graph)), -1)
    anchors[votes[0][best]] = votes[1][best]  # the last one of each counts: most votes, then the latest
    return anchors

