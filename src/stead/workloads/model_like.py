"""Synthetic graphs in the likeness of models: unrolled LSTMs, Inception, transformers.

Module paths, FLOPs, bytes and parameters are those of real layers; their number is free.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from stead.graph import Graph
from stead.workloads.draft import Draft
from stead.workloads.random_dags import at_least, forward_count

FP32 = 4


def put(
    draft: Draft, path: str, kind: str, reads: Sequence[int], values: int, flops: float = 0.0, *,
    weights: Sequence[int] = (),
) -> int:  # fmt: skip
    """Write down an operator that makes so many numbers; its module is the path before the last `/`, or else `.`."""
    module = path.rpartition("/")[0] or path.rpartition(".")[0] or path
    return draft.add(path, kind, reads, size_bytes=values * FP32, flops=flops, module=module, weights=weights)


@dataclass(frozen=True, slots=True)
class LstmGrid:
    """A language model of LSTM layers, unrolled over as many steps as the number of operators allows.

    Weights are shared by all steps. Cell `cells.1#7` is layer 1 at step 7; the embedding is looked up once, every
    step has a projection.
    """

    operators: int = 1000
    seed: int = 0
    training: bool = False
    layers: int = 4
    steps: int = 0  # 0: as many as operators allow
    hidden: int = 1024
    batch: int = 64
    vocabulary: int = 10_000

    def graph(self) -> Graph:
        """The graph; nothing about it is random."""
        for what in ("layers", "hidden", "batch", "vocabulary"):
            at_least(what, getattr(self, what), 1)
        forward = forward_count(self.operators, self.training, 0)
        steps = self.steps or max(1, (forward - 1) // (CELL_OPERATORS * self.layers + 2))
        draft = Draft("lstm-grid")
        row_bytes = self.batch * self.hidden * FP32
        table = draft.weight("embed.weight", self.vocabulary * self.hidden * FP32)
        embedded = lookup(draft, "embed#0", table, steps, row_bytes)
        cells = [
            LstmCell(draft, f"cells.{n}", self.hidden, self.hidden, self.batch) for n in range(self.layers)
        ]
        head = Projection(draft, "proj", self.hidden, self.vocabulary, self.batch)
        for step, x in enumerate(embedded):
            for cell in cells:
                x = cell.step(step, (x,))
            head.step(step, x)
        return draft.graph(training=self.training)


CELL_OPERATORS = 4


class LstmCell:
    """One layer of an unrolled LSTM, its state carried from step to step."""

    def __init__(self, draft: Draft, module: str, inputs: int, hidden: int, batch: int) -> None:
        self.draft, self.module, self.hidden, self.batch = draft, module, hidden, batch
        self.inputs = inputs
        self.matrix = draft.weight(f"{module}.weight", ((inputs + hidden) * 4 * hidden + 4 * hidden) * FP32)
        self.state: tuple[int, ...] = ()  # (c, h)

    def step(self, number: int, reads: tuple[int, ...]) -> int:
        """Write down one call; its output."""
        draft, module = self.draft, f"{self.module}#{number}"
        values = self.batch * self.hidden
        work = 2.0 * self.batch * (self.inputs + self.hidden) * 4 * self.hidden
        inputs = (*reads, *self.state[1:])
        gates = put(draft, f"{module}/gates", "MatMul", inputs, 4 * values, work, weights=(self.matrix,))
        active = put(draft, f"{module}/active", "Sigmoid", (gates,), 4 * values, 16.0 * values)
        c = put(draft, f"{module}/c", "Mul", (active, *self.state[:1]), values, 3.0 * values)
        h = put(draft, f"{module}/h", "Mul", (active, c), values, 5.0 * values)
        self.state = (c, h)
        return h


class Projection:
    """The projection onto the vocabulary and the loss of every step."""

    def __init__(self, draft: Draft, module: str, width: int, vocabulary: int, batch: int) -> None:
        self.draft, self.module = draft, module
        self.width, self.vocabulary, self.batch = width, vocabulary, batch
        self.matrix = draft.weight(f"{module}.weight", (width * vocabulary + vocabulary) * FP32)

    def step(self, number: int, x: int) -> int:
        """Write down one call; its loss."""
        draft, module, values = self.draft, f"{self.module}#{number}", self.batch * self.vocabulary
        work = 2.0 * values * self.width
        logits = put(draft, f"{module}/logits", "MatMul", (x,), values, work, weights=(self.matrix,))
        return put(draft, f"{module}/loss", "Loss", (logits,), self.batch, 5.0 * values)


def lookup(draft: Draft, module: str, table: int, steps: int, row_bytes: int) -> list[int]:
    """An embedding of all steps at once, one output per step; a lookup reads rows, not the table."""
    first = draft.add(
        f"{module}/rows", "Embedding", (), size_bytes=row_bytes, module=module, weights=(table,),
        moved_bytes=2.0 * steps * row_bytes,
    )  # fmt: skip
    owner = len(draft) - 1
    return [first, *(draft.output(owner, row_bytes) for _ in range(steps - 1))]


@dataclass(frozen=True, slots=True)
class Transformer:
    """A stack of transformer blocks `layers.0`, `layers.1`, ... between an embedding and a head."""

    operators: int = 1000
    seed: int = 0
    training: bool = False
    layers: int = 0  # 0: as many as operators allow
    width: int = 1024
    heads: int = 16
    batch: int = 8
    length: int = 512
    vocabulary: int = 32_000

    def graph(self) -> Graph:
        """The graph; nothing about it is random."""
        for what in ("width", "heads", "batch", "length", "vocabulary"):
            at_least(what, getattr(self, what), 1)
        forward = forward_count(self.operators, self.training, 8 / 14)
        layers = self.layers or max(1, (forward - 4) // 14)
        draft = Draft("transformer")
        table = draft.weight("embed.weight", self.vocabulary * self.width * FP32)
        (x,) = lookup(draft, "embed", table, 1, self._values(self.width) * FP32)
        for layer in range(layers):
            x = self._block(draft, f"layers.{layer}", x)
        x = self._norm(draft, "norm", x)
        Projection(draft, "head", self.width, self.vocabulary, self.batch * self.length).step(0, x)
        return draft.graph(training=self.training)

    def _values(self, width: int) -> int:
        return self.batch * self.length * width

    def _block(self, draft: Draft, module: str, x: int) -> int:
        pairs = self.batch * self.heads * self.length * self.length
        product_flops = 2.0 * self.batch * self.length * self.length * self.width
        attention, mlp = f"{module}.attention", f"{module}.mlp"
        normed = self._norm(draft, f"{attention}.norm", x)
        q, k, v = (
            self._linear(draft, f"{attention}.{part}", normed, self.width, self.width) for part in "qkv"
        )
        scores = put(draft, f"{attention}.scores", "BatchMatMul", (q, k), pairs, product_flops)
        shares = put(draft, f"{attention}.softmax", "Softmax", (scores,), pairs, 5.0 * pairs)
        mixed = put(draft, f"{attention}.mixed", "BatchMatMul", (shares, v), self._values(self.width), product_flops)
        x = self._sum(
            draft, f"{attention}.sum", x, self._linear(draft, f"{attention}.out", mixed, self.width, self.width)
        )
        normed = self._norm(draft, f"{mlp}.norm", x)
        wide = self._linear(draft, f"{mlp}.up", normed, self.width, 4 * self.width)
        inner = self._values(4 * self.width)
        active = put(draft, f"{mlp}.gelu", "Gelu", (wide,), inner, 8.0 * inner)
        return self._sum(
            draft, f"{mlp}.sum", x, self._linear(draft, f"{mlp}.down", active, 4 * self.width, self.width)
        )

    def _linear(self, draft: Draft, name: str, x: int, width_in: int, width_out: int) -> int:
        matrix = draft.weight(f"{name}.weight", (width_in * width_out + width_out) * FP32)
        work = 2.0 * self._values(width_in) * width_out
        return put(draft, name, "MatMul", (x,), self._values(width_out), work, weights=(matrix,))

    def _norm(self, draft: Draft, name: str, x: int) -> int:
        scale = draft.weight(f"{name}.weight", 2 * self.width * FP32)
        values = self._values(self.width)
        return put(draft, name, "LayerNorm", (x,), values, 8.0 * values, weights=(scale,))

    def _sum(self, draft: Draft, name: str, x: int, y: int) -> int:
        values = self._values(self.width)
        return put(draft, name, "Add", (x, y), values, float(values))


@dataclass(frozen=True, slots=True)
class Inception:
    """Blocks of parallel branches of convolutions, pooled or not, whose outputs are joined; the seed draws them."""

    operators: int = 1000
    seed: int = 0
    training: bool = False
    batch: int = 32

    def graph(self) -> Graph:
        """The graph of this seed."""
        at_least("batch", self.batch, 1)
        count = forward_count(self.operators, self.training, 0.63)
        shape = random.Random(self.seed)
        draft = Draft(f"inception-{self.seed}")
        images = draft.add(
            "images", "Input", (), size_bytes=self.batch * 3 * 299 * 299 * FP32, module="", moved_bytes=0.0
        )
        x, side, channels = self._convolution(draft, "stem.0", images, 3, 64, 7, 73), 73, 64
        x = self._convolution(draft, "stem.1", x, 64, 192, 3, 35)
        side, channels, block = 35, 192, 0
        sides = {1: 17, 2: 8}
        while len(draft) < count - 30 or block == 0:
            side = min(side, sides.get(3 * len(draft) // max(count, 1), side))
            x, channels = self._block(draft, f"blocks.{block}", x, channels, side, shape)
            block += 1
        Projection(draft, "head", channels, 1000, self.batch).step(0, x)
        return draft.graph(training=self.training)

    def _block(
        self, draft: Draft, module: str, x: int, channels: int, side: int, shape: random.Random
    ) -> tuple[int, int]:
        ends, widths = [], []
        base = {35: 64, 17: 192, 8: 320}[side]
        for branch in range(shape.randint(3, 5)):
            path, y, width = f"{module}.branch{branch}", x, channels
            if branch == 1:
                y = self._pool(draft, f"{path}.pool", x, channels, side)
            for n in range(shape.randint(1, 4)):
                width_out = shape.choice((base // 2, base, base * 3 // 2))
                y = self._convolution(
                    draft, f"{path}.{n}", y, width, width_out, shape.choice((1, 1, 3, 3, 5)), side
                )
                width = width_out
            ends.append(y)
            widths.append(width)
        joined = sum(widths)
        return put(draft, f"{module}/concat", "Concat", ends, self.batch * joined * side * side), joined

    def _convolution(
        self, draft: Draft, module: str, x: int, channels_in: int, channels_out: int, kernel: int, side: int
    ) -> int:
        values = self.batch * channels_out * side * side
        matrix = draft.weight(f"{module}.conv.weight", channels_in * channels_out * kernel * kernel * FP32)
        scale = draft.weight(f"{module}.norm.weight", 4 * channels_out * FP32)
        work = 2.0 * values * channels_in * kernel * kernel
        y = put(draft, f"{module}/conv", "Conv", (x,), values, work, weights=(matrix,))
        y = put(draft, f"{module}/norm", "BatchNorm", (y,), values, 4.0 * values, weights=(scale,))
        return put(draft, f"{module}/relu", "Relu", (y,), values, 1.0 * values)

    def _pool(self, draft: Draft, module: str, x: int, channels: int, side: int) -> int:
        values = self.batch * channels * side * side
        return put(draft, f"{module}/pool", "Pool", (x,), values, 9.0 * values)
