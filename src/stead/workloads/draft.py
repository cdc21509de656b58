"""Draft: a forward graph written down quickly, and the training graph that belongs to it.

A draft holds operators in the order in which they run, as columns; a million of them take a few seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stead.graph import BACKWARD, FORWARD, UPDATE, Graph, refreshed
from stead.graph.arrays import distinct_pairs, graph_from_arrays

LIKE_FORWARD = 2.0  # a backward operator does twice the work of its forward operator: one gradient per factor
ADAM_FLOPS_PER_BYTE = 3.0  # a dozen operations per parameter of 4 bytes
ADAM_TRAFFIC = 7  # reads weight, gradient and two moments, writes weight and moments
ADAM_SLOTS = 2  # two moments beside each weight

# These hand gradients on without looking at their inputs again.
FORGETFUL_KINDS = frozenset({"Add", "Concat", "Identity", "Input", "Loss", "Split"})


class Draft:
    """Operators, each with its outputs, in the order in which they run."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.names: list[str] = []
        self.kinds: list[str] = []
        self.modules: list[str] = []
        self.flops: list[float] = []
        self.moved: list[float] = []
        self.reads: list[tuple[int, ...]] = []  # tensors
        self.producers: list[int] = []  # [tensor]
        self.sizes: list[int] = []  # [tensor]; bytes
        self.weight_names: list[str] = []
        self.weight_sizes: list[int] = []
        self.uses: list[tuple[int, int]] = []  # (weight, operator)

    def __len__(self) -> int:
        return len(self.names)

    def weight(self, name: str, size_bytes: int) -> int:
        """Add a weight; operators name it when they use it."""
        self.weight_names.append(name)
        self.weight_sizes.append(int(size_bytes))
        return len(self.weight_names) - 1

    def add(
        self,
        name: str,
        kind: str,
        reads: Sequence[int] = (),
        *,
        size_bytes: int,
        flops: float = 0.0,
        module: str = "",
        weights: Sequence[int] = (),
        moved_bytes: float | None = None,
    ) -> int:
        """Add an operator with one output; the output's number. It moves what it reads, uses and writes."""
        v = len(self.names)
        self.names.append(name)
        self.kinds.append(kind)
        self.modules.append(module)
        self.flops.append(flops)
        self.reads.append(tuple(reads))
        if moved_bytes is None:
            moved_bytes = size_bytes + sum([self.sizes[t] for t in reads])
            moved_bytes += sum([self.weight_sizes[w] for w in weights])
        self.moved.append(moved_bytes)
        self.uses += [(w, v) for w in weights]
        return self.output(v, size_bytes)

    def output(self, operator: int, size_bytes: int) -> int:
        """Add an output to the operator added last."""
        self.producers.append(operator)
        self.sizes.append(int(size_bytes))
        return len(self.producers) - 1

    def graph(self, *, training: bool = False) -> Graph:
        """The graph; for training with backward and update operators, bound to their forward operators.

        The update of a weight is bound to its first user; to its other users the updated weight is sent.
        """
        columns = self._columns()
        if training:
            return refreshed(_Training(self.name, columns).graph())
        return _graph(self.name, columns, {})

    def _columns(self) -> _Columns:
        counts = [len(tensors) for tensors in self.reads]
        tensor = np.fromiter(chain.from_iterable(self.reads), dtype=np.int64, count=sum(counts))
        reader = np.repeat(np.arange(len(self)), counts)
        producer = np.array(self.producers, dtype=np.int64)
        uses = np.array(self.uses, dtype=np.int64).reshape(-1, 2)
        return _Columns(
            self.names, self.kinds, self.modules, np.array(self.flops, dtype=np.float64),
            np.array(self.moved, dtype=np.float64), producer, np.array(self.sizes, dtype=np.int64),
            *distinct_pairs(tensor, reader), self.weight_names, np.array(self.weight_sizes, dtype=np.int64),
            *distinct_pairs(uses[:, 0], uses[:, 1]),
        )  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class _Columns:
    """A forward graph as columns."""

    names: list[str]
    kinds: list[str]
    modules: list[str]
    flops: NDArray[np.float64]
    moved: NDArray[np.float64]
    producer: NDArray[np.int64]  # [tensor]
    sizes: NDArray[np.int64]  # [tensor]
    tensor: NDArray[np.int64]  # [read]
    reader: NDArray[np.int64]  # [read]
    weight_names: list[str]
    weight_sizes: NDArray[np.int64]
    weight: NDArray[np.int64]  # [use]; sorted
    user: NDArray[np.int64]  # [use]

    @property
    def unread(self) -> NDArray[np.bool_]:  # [tensor]
        """Outputs of the graph: what nobody reads."""
        return np.asarray(np.bincount(self.tensor, minlength=len(self.producer)) == 0)


def _graph(name: str, columns: _Columns, more: dict[str, Any]) -> Graph:
    parts: dict[str, Any] = {
        "operator_names": columns.names,
        "kinds": columns.kinds,
        "modules": columns.modules,
        "flops": columns.flops,
        "moved_bytes": columns.moved,
        "tensor_producer": columns.producer,
        "tensor_bytes": columns.sizes,
        "tensor_kept": columns.unread,
        "reads": (columns.tensor, columns.reader),
        "weight_names": columns.weight_names,
        "weight_bytes": columns.weight_sizes,
        "weight_uses": (columns.weight, columns.user),
    }
    return graph_from_arrays(name, **{**parts, **more})


class _Training:
    """Backward operators in reverse order, then one update per weight.

    The backward operator of v reads the gradients of v's outputs and, where it needs them, v's inputs; it writes a
    gradient for each input and adds to the gradient of each weight, which the other users of that weight pass on.
    """

    def __init__(self, name: str, columns: _Columns) -> None:
        self.name, self.columns = name, columns
        count = len(columns.names)
        learns = np.zeros(count, dtype=bool)
        learns[columns.reader] = True
        learns[columns.user] = True
        self.forward = np.flatnonzero(learns)[::-1]  # forward operators in the order of their backward ones
        self.backward = np.full(count, -1, dtype=np.int64)  # [operator]; its backward operator
        self.backward[self.forward] = count + np.arange(len(self.forward))
        self.first_update = count + len(self.forward)

    def graph(self) -> Graph:
        """Forward, backward and update operators."""
        columns, names = self.columns, self.columns.names
        first_user = columns.user[np.searchsorted(columns.weight, np.arange(len(columns.weight_sizes)))]
        order = self.forward.tolist()
        updates = len(columns.weight_sizes)
        none = np.full(len(names), -1, dtype=np.int64)
        twins = np.concatenate([none, self.forward, first_user])
        group = np.where(twins >= 0, twins, np.arange(len(twins)))
        sizes = columns.weight_sizes.astype(np.float64)
        more: dict[str, Any] = {
            "operator_names": [
                *names,
                *[f"{names[v]}.backward" for v in order],
                *[f"{weight}.update" for weight in columns.weight_names],
            ],
            "kinds": [*columns.kinds, *[f"{columns.kinds[v]}Backward" for v in order], *["Adam"] * updates],
            "modules": [
                *columns.modules,
                *[columns.modules[v] for v in order],
                *[columns.modules[v] for v in first_user.tolist()],
            ],
            "phases": np.repeat([FORWARD, BACKWARD, UPDATE], [len(names), len(order), updates]),
            "flops": np.concatenate(
                [columns.flops, LIKE_FORWARD * columns.flops[self.forward], ADAM_FLOPS_PER_BYTE * sizes]
            ),
            "moved_bytes": np.concatenate(
                [columns.moved, LIKE_FORWARD * columns.moved[self.forward], ADAM_TRAFFIC * sizes]
            ),
            "twins": twins,
            **self._tensors(),
            **self._weights(),
        }
        more |= {"colocation": group, "colocation_names": more["operator_names"]}
        return _graph(self.name, columns, more)

    def _tensors(self) -> dict[str, Any]:
        """Forward tensors, gradients of inputs, sums of gradients of weights."""
        columns = self.columns
        learned = self.backward[columns.producer[columns.tensor]] >= 0
        of_inputs, from_reader = columns.tensor[learned], columns.reader[learned]
        # The users of a weight pass its gradient on, from the last to the first, which hands it to the update.
        is_first = np.ones(len(columns.weight), dtype=bool)
        is_first[1:] = columns.weight[1:] != columns.weight[:-1]
        one_before = np.roll(self.backward[columns.user], 1)
        passed_to = np.where(is_first, self.first_update + columns.weight, one_before)
        producer = np.concatenate([columns.producer, self.backward[from_reader], self.backward[columns.user]])
        sizes = np.concatenate(
            [columns.sizes, columns.sizes[of_inputs], columns.weight_sizes[columns.weight]]
        )
        forward_count = len(columns.producer)
        gradient = forward_count + np.arange(len(of_inputs) + len(columns.weight))
        gradient_reader = np.concatenate([self.backward[columns.producer[of_inputs]], passed_to])
        saved, saved_for = self._saved()
        tensor = np.concatenate([columns.tensor, saved, gradient])
        reader = np.concatenate([columns.reader, self.backward[saved_for], gradient_reader])
        order = np.argsort(producer, kind="stable")
        number = np.empty(len(order), dtype=np.int64)
        number[order] = np.arange(len(order))
        kept = np.concatenate([columns.unread, np.zeros(len(gradient), dtype=bool)])
        return {
            "tensor_producer": producer[order],
            "tensor_bytes": sizes[order],
            "tensor_kept": kept[order],
            "reads": (number[tensor], reader),
        }

    def _saved(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(tensor, forward operator) of what backward operators read again; the last ones begin with the results."""
        columns = self.columns
        remembers = np.array([kind not in FORGETFUL_KINDS for kind in columns.kinds], dtype=bool)
        again = remembers[columns.reader]
        results = np.flatnonzero(columns.unread & (self.backward[columns.producer] >= 0))
        return (
            np.concatenate([columns.tensor[again], results]),
            np.concatenate([columns.reader[again], columns.producer[results]]),
        )

    def _weights(self) -> dict[str, Any]:
        """Weights are used backward and by their updates too; updates keep the moments of Adam."""
        columns, count = self.columns, len(self.columns.weight_sizes)
        update = self.first_update + np.arange(count)
        return {
            "weight_names": [*columns.weight_names, *[f"{name}.moments" for name in columns.weight_names]],
            "weight_bytes": np.concatenate([columns.weight_sizes, ADAM_SLOTS * columns.weight_sizes]),
            "weight_uses": (
                np.concatenate([columns.weight, columns.weight, np.arange(count), count + np.arange(count)]),
                np.concatenate([columns.user, self.backward[columns.user], update, update]),
            ),
        }
