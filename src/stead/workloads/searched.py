"""Families of graphs as architecture search makes them, in place of the sets Placeto was trained on.

Addanki et al. (NeurIPS 2019) used 32 graphs each of `cifar10`, `ptb` and `nmt`, which are not available. Here graph
number i of a family is its seed; 0 to 31 are meant for training, 1000 to 1031 for tests.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from stead.graph import Graph
from stead.workloads.draft import Draft
from stead.workloads.model_like import FP32, LstmCell, Projection, lookup, put
from stead.workloads.random_dags import FLOPS_PER_MICROSECOND, at_least


@dataclass(frozen=True, slots=True)
class SearchedCnn:
    """Like `cifar10`: convolutional cells of a random wiring, stacked in three stages.

    6 to 12 cells; a cell has 5 to 7 nodes, each the sum of two operations (separable convolution, pooling, identity)
    on earlier nodes or on the two cells before; loose ends are joined; channels double at the two reductions.
    """

    seed: int = 0
    training: bool = True

    def graph(self) -> Graph:
        """Graph number `seed` of the family."""
        rng = random.Random(f"searched-cnn {self.seed}")
        batch, channels = rng.choice((32, 64, 96, 128)), rng.choice((24, 36, 48, 64))
        cells = rng.randint(6, 12)
        normal, reduction = _Wiring(rng), _Wiring(rng)
        draft = Draft(f"enas-cnn-{self.seed}")
        images = draft.add("images", "Input", (), size_bytes=batch * 3 * 32 * 32 * FP32, moved_bytes=0.0)
        layer = _Convolutions(draft, batch)
        side = 32
        before, now = (layer.convolution(f"stem.{n}", images, 3, channels, 3, side) for n in range(2))
        width_before = width = channels
        for cell in range(cells):
            reduces = cell > 0 and 3 * cell // cells > 3 * (cell - 1) // cells
            if reduces:
                channels, side = 2 * channels, side // 2
            wiring = reduction if reduces else normal
            inputs = (
                layer.convolution(f"cells.{cell}.before", before, width_before, channels, 1, side),
                layer.convolution(f"cells.{cell}.now", now, width, channels, 1, side),
            )
            before, now = now, wiring.write(layer, f"cells.{cell}", inputs, channels, side)
            width_before, width = width, channels
        Projection(draft, "head", channels, 10, batch).step(0, now)
        return draft.graph(training=self.training)


class _Wiring:
    """Two inputs and two operations for every node of a cell; nodes 0 and 1 are the cell's inputs."""

    KINDS = ("separable3", "separable5", "average", "maximum", "identity")

    def __init__(self, rng: random.Random) -> None:
        self.nodes = [
            [(rng.randrange(node), rng.choice(self.KINDS)) for _ in range(2)]
            for node in range(2, 2 + rng.randint(5, 7))
        ]

    def write(
        self, layer: _Convolutions, module: str, inputs: tuple[int, int], channels: int, side: int
    ) -> int:
        """Write the cell down; its output."""
        outputs = list(inputs)
        for number, sources in enumerate(self.nodes):
            path = f"{module}.node{number}"
            parts = [
                layer.operation(kind, f"{path}.{letter}", outputs[source], channels, side)
                for letter, (source, kind) in zip("ab", sources, strict=True)
            ]
            outputs.append(layer.sum(path, parts, channels, side))
        used = {source for sources in self.nodes for source, _ in sources}
        loose = [output for node, output in enumerate(outputs) if node >= 2 and node not in used]
        return layer.join(module, loose, channels, side)


class _Convolutions:
    """The operations of convolutional cells on square images."""

    def __init__(self, draft: Draft, batch: int) -> None:
        self.draft, self.batch = draft, batch

    def _values(self, channels: int, side: int) -> int:
        return self.batch * channels * side * side

    def convolution(self, module: str, x: int, width_in: int, width_out: int, kernel: int, side: int) -> int:
        """Convolution and, as one operator, normalisation with activation."""
        draft, values = self.draft, self._values(width_out, side)
        matrix = draft.weight(f"{module}.weight", width_in * width_out * kernel * kernel * FP32)
        work = 2.0 * values * width_in * kernel * kernel
        y = put(draft, f"{module}/conv", "Conv", (x,), values, work, weights=(matrix,))
        return put(draft, f"{module}/norm", "BatchNorm", (y,), values, 5.0 * values)

    def operation(self, kind: str, module: str, x: int, channels: int, side: int) -> int:
        """One operation of a cell; the identity is no operator."""
        draft, values = self.draft, self._values(channels, side)
        if kind == "identity":
            return x
        if kind in ("average", "maximum"):
            return put(draft, f"{module}/pool", "Pool", (x,), values, 9.0 * values)
        kernel = 3 if kind == "separable3" else 5
        filters = draft.weight(f"{module}.filters", channels * kernel * kernel * FP32)
        work = 2.0 * values * kernel * kernel
        depthwise = put(draft, f"{module}/depthwise", "DepthwiseConv", (x,), values, work, weights=(filters,))
        return self.convolution(module, depthwise, channels, channels, 1, side)

    def sum(self, module: str, parts: list[int], channels: int, side: int) -> int:
        """The sum of two results."""
        values = self._values(channels, side)
        return put(self.draft, f"{module}/sum", "Add", parts, values, float(values))

    def join(self, module: str, parts: list[int], channels: int, side: int) -> int:
        """Loose ends side by side, brought back to the width of the cell."""
        joined = put(self.draft, f"{module}/concat", "Concat", parts, len(parts) * self._values(channels, side))
        return self.convolution(f"{module}.out", joined, len(parts) * channels, channels, 1, side)


@dataclass(frozen=True, slots=True)
class SearchedRnn:
    """Like `ptb`: a recurrent cell that is a random tree of 8 to 12 gated nodes, unrolled over 20 to 35 steps."""

    seed: int = 0
    training: bool = True
    vocabulary: int = 10_000

    def graph(self) -> Graph:
        """Graph number `seed` of the family."""
        at_least("vocabulary", self.vocabulary, 1)
        rng = random.Random(f"searched-rnn {self.seed}")
        steps, hidden, batch = rng.randint(20, 35), rng.randrange(512, 1501, 4), rng.choice((32, 64, 128))
        kinds = ("Tanh", "Relu", "Sigmoid", "Identity")
        nodes = [
            (rng.randrange(node) if node else 0, rng.choice(kinds)) for node in range(rng.randint(8, 12))
        ]
        draft = Draft(f"enas-rnn-{self.seed}")
        values = batch * hidden
        table = draft.weight("embed.weight", self.vocabulary * hidden * FP32)
        matrices = [
            draft.weight(f"cell.{node}.weight", (2 if node == 0 else 1) * hidden * 2 * hidden * FP32)
            for node in range(len(nodes))
        ]
        head = Projection(draft, "proj", hidden, self.vocabulary, batch)
        state: tuple[int, ...] = ()
        for step, x in enumerate(lookup(draft, "embed#0", table, steps, values * FP32)):
            module = f"cell#{step}"
            outputs: list[int] = []
            for node, (source, kind) in enumerate(nodes):
                reads = (x, *state) if node == 0 else (outputs[source],)
                work = 2.0 * values * 2 * hidden * len(reads)
                own = (matrices[node],)
                linear = put(draft, f"{module}/linear{node}", "MatMul", reads, 2 * values, work, weights=own)
                applied = kind if kind != "Identity" else "Mul"
                both = (linear, reads[-1])
                outputs.append(put(draft, f"{module}/node{node}", applied, both, values, 12.0 * values))
            used = {source for source, _ in nodes[1:]}
            loose = [output for node, output in enumerate(outputs) if node not in used]
            mean = put(draft, f"{module}/mean", "Mean", loose, values, float(values * len(loose)))
            state = (mean,)
            head.step(step, mean)
        return draft.graph(training=self.training)


@dataclass(frozen=True, slots=True)
class Translation:
    """Like `nmt`: a recurrent encoder and decoder with attention; what is 0 is drawn by the seed.

    The first encoder layer reads both ways (`enc.0.fwd`, `enc.0.bwd`), further layers have residual sums from the
    third on; attention follows the first decoder cell, its context goes to every decoder cell.
    """

    seed: int = 0
    training: bool = True
    layers: int = 0
    source_steps: int = 0
    target_steps: int = 0
    hidden: int = 0
    batch: int = 0
    vocabulary: int = 32_000

    def graph(self) -> Graph:
        """Graph number `seed` of the family."""
        rng = random.Random(f"translation {self.seed}")
        layers, source = rng.randint(2, 4), rng.randint(16, 48)
        target, hidden, batch = rng.randint(16, 48), rng.randrange(512, 1025, 64), rng.randrange(64, 257, 32)
        return _Translation(
            Draft(f"nmt-{self.seed}"), self.layers or layers, self.source_steps or source, self.target_steps or target,
            self.hidden or hidden, self.batch or batch, self.vocabulary,
        ).draft.graph(training=self.training)  # fmt: skip


class _Translation:
    def __init__(
        self, draft: Draft, layers: int, source: int, target: int, hidden: int, batch: int, vocabulary: int
    ) -> None:
        self.draft, self.layers, self.hidden, self.batch = draft, layers, hidden, batch
        self.row_bytes = batch * hidden * FP32
        words = draft.weight("enc_embed.weight", vocabulary * hidden * FP32)
        memory = self._encoder(lookup(draft, "enc_embed#0", words, source, self.row_bytes))
        keys = self._keys(memory)
        words = draft.weight("dec_embed.weight", vocabulary * hidden * FP32)
        head = Projection(draft, "proj", hidden, vocabulary, batch)
        self._decoder(lookup(draft, "dec_embed#0", words, target, self.row_bytes), keys, source, head)

    def _encoder(self, rows: list[int]) -> list[int]:
        hidden, batch = self.hidden, self.batch
        ways = [LstmCell(self.draft, f"enc.0.{way}", hidden, hidden, batch) for way in ("fwd", "bwd")]
        forth = [ways[0].step(t, (x,)) for t, x in enumerate(rows)]
        back = [ways[1].step(t, (x,)) for t, x in enumerate(reversed(rows))][::-1]
        pairs: list[tuple[int, ...]] = list(zip(forth, back, strict=True))
        for layer in range(1, self.layers):
            cell = LstmCell(self.draft, f"enc.{layer}", hidden * len(pairs[0]), hidden, batch)
            outputs = [cell.step(t, x) for t, x in enumerate(pairs)]
            if layer > 1:
                both = zip(outputs, pairs, strict=True)
                outputs = [self._residual(f"enc.{layer}#{t}", h, x[0]) for t, (h, x) in enumerate(both)]
            pairs = [(h,) for h in outputs]
        return [x for pair in pairs for x in pair]

    def _residual(self, module: str, h: int, x: int) -> int:
        values = self.batch * self.hidden
        return put(self.draft, f"{module}/sum", "Add", (h, x), values, float(values))

    def _keys(self, memory: list[int]) -> int:
        matrix = self.draft.weight("keys.weight", self.hidden * self.hidden * FP32)
        values = self.batch * len(memory) * self.hidden
        return put(
            self.draft, "keys#0/keys", "MatMul", memory, values, 2.0 * values * self.hidden, weights=(matrix,)
        )

    def _decoder(self, rows: list[int], keys: int, source: int, head: Projection) -> None:
        hidden, batch = self.hidden, self.batch
        cells = [LstmCell(self.draft, f"dec.{n}", 2 * hidden, hidden, batch) for n in range(self.layers)]
        query = self.draft.weight("attention.weight", (hidden * hidden + hidden) * FP32)
        context: tuple[int, ...] = ()
        for t, x in enumerate(rows):
            h = cells[0].step(t, (x, *context))
            context = (self._attention(f"attention#{t}", h, keys, query, source),)
            for layer, cell in enumerate(cells[1:], start=1):
                y = cell.step(t, (h, *context))
                h = self._residual(f"dec.{layer}#{t}", y, h) if layer > 1 else y
            head.step(t, h)

    def _attention(self, module: str, h: int, keys: int, matrix: int, source: int) -> int:
        draft, hidden = self.draft, self.hidden
        values, pairs = self.batch * hidden, self.batch * source
        query = put(draft, f"{module}/query", "MatMul", (h,), values, 2.0 * values * hidden, weights=(matrix,))
        scores = put(draft, f"{module}/scores", "Tanh", (query, keys), pairs, 8.0 * pairs * hidden)
        share = put(draft, f"{module}/softmax", "Softmax", (scores,), pairs, 5.0 * pairs)
        return put(draft, f"{module}/context", "BatchMatMul", (share, keys), values, 2.0 * pairs * hidden)


@dataclass(frozen=True, slots=True)
class Branches:
    """Blocks of parallel chains with drawn costs: the small graphs on which Placeto policies are tried out.

    One FLOP per 1/4.6 picosecond: on a device of 4.6 TFLOP/s the operators take whole microseconds.
    """

    seed: int = 1
    training: bool = False
    blocks: int = 5
    branches: int = 3
    depth: int = 2

    def graph(self) -> Graph:
        """The graph of this seed; with the defaults 50 operators and 11,957 microseconds."""
        for what in ("blocks", "branches", "depth"):
            at_least(what, getattr(self, what), 1)
        rng = random.Random(self.seed)
        draft = Draft(f"branches-{self.seed}")

        def add(kind: str, reads: list[int], microseconds: int, size_bytes: int) -> int:
            flops = microseconds * FLOPS_PER_MICROSECOND
            return draft.add(
                f"v{len(draft)}", kind, reads, size_bytes=size_bytes, flops=flops, moved_bytes=0.0
            )

        last = add("Input", [], 50, 4 * 2**20)
        for _ in range(self.blocks):
            ends = []
            for _ in range(self.branches):
                end = last
                for _ in range(rng.randint(1, self.depth)):
                    for low, high in ((40, 900), (5, 40)):
                        microseconds = rng.randint(low, high)
                        end = add("Compute", [end], microseconds, rng.randint(2**18, 2**22))
                ends.append(end)
            last = add("Concat", ends, 30, 6 * 2**20)
        return draft.graph(training=self.training)


@dataclass(frozen=True, slots=True)
class Towers:
    """Chains of equal operators between a source and a sink: one device per chain is best, whatever it is called."""

    seed: int = 0
    training: bool = False
    towers: int = 2
    height: int = 6

    def graph(self) -> Graph:
        """The graph; nothing about it is random."""
        for what in ("towers", "height"):
            at_least(what, getattr(self, what), 1)
        draft = Draft("towers")

        def add(name: str, reads: list[int], microseconds: int) -> int:
            flops = microseconds * FLOPS_PER_MICROSECOND
            return draft.add(name, "Compute", reads, size_bytes=76_000, flops=flops, moved_bytes=0.0)

        source = add("source", [], 10)
        ends = []
        for tower in range(self.towers):
            end = source
            for floor in range(self.height):
                end = add(f"tower{tower}.{floor}", [end], 100)
            ends.append(end)
        add("sink", ends, 10)
        return draft.graph(training=self.training)
