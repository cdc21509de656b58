"""ResNet-50 with kernel times measured on one core: small instances whose optimum is known to the microsecond.

Batch 1, 224 x 224, the stride in the 3x3 convolution; every convolution is followed by the addition of its bias. Only
what a runtime executes as a kernel takes time: a convolution stands for its bias and activation, everything fused into
it takes none. A tensor takes 60 us and its bytes at 5 GB/s to each other device that reads it.

Devices    f32, bf16    as measured, in f32 and in bf16
           mixed        bf16 where f32 takes over 1000 us, else twice f32 and 100 us: good at large kernels alone
           third        0.6 f32 from block 8 on, 1.6 f32 before
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stead.cluster import Cluster, Device, link_all
from stead.costs import Costs, Source
from stead.errors import BadInput, did_you_mean
from stead.graph import Graph, GraphBuilder, TensorId

Times = tuple[int, int]  # us in f32 and in bf16
Shape = tuple[int, int]  # channels, side

STEM, POOL, MEAN, LAST = (2370, 1580), (199, 125), (32, 34), (659, 384)
BLOCKS: tuple[tuple[Times, ...], ...] = (  # conv1, conv2, conv3, shortcut
    ((256, 135), (2024, 1025), (990, 531), (954, 477)),
    ((927, 479), (2006, 1014), (1011, 527)),
    ((922, 469), (2005, 1014), (1006, 521)),
    ((1838, 927), (2066, 1048), (988, 505), (1903, 948)),
    ((924, 470), (1999, 1050), (976, 495)),
    ((920, 464), (1977, 1002), (986, 495)),
    ((924, 467), (1983, 999), (982, 497)),
    ((1850, 936), (2114, 1065), (985, 506), (1973, 986)),
    ((965, 478), (1964, 1011), (989, 499)),
    ((951, 482), (1961, 1013), (971, 514)),
    ((939, 484), (1969, 975), (979, 505)),
    ((943, 461), (1970, 991), (973, 501)),
    ((947, 475), (1942, 979), (974, 495)),
    ((1891, 940), (2341, 1113), (1047, 540), (2116, 1064)),
    ((1057, 524), (1961, 1032), (1039, 555)),
    ((1039, 551), (1983, 984), (1044, 547)),
)
TAIL = len(BLOCKS)  # the block that the operators after the last one count for
STAGES = (3, 7, 13)  # blocks that halve the picture
FIRST_OF_THIRD = 8
SEND_SECONDS, SEND_RATE = 60e-6, 5e9
FREE: Times = (0, 0)


def resnet50_measured(devices: str = "f32 mixed") -> tuple[Graph, Cluster, Costs]:
    """The instance with some of the devices above; `Problem(*...)` with sequential latency is additive.

    >>> graph, cluster, costs = resnet50_measured("f32 bf16")
    >>> len(graph), [round(total * 1e3, 3) for total in costs.seconds.sum(axis=0).tolist()]
    (178, [75.704, 38.888])
    """
    made = _Resnet()
    names = devices.split()
    table = device_times(np.array(made.us, dtype=np.float64), np.array(made.blocks))
    for name in names:
        if name not in table:
            raise BadInput(f"there are no times for {name!r}{did_you_mean(name, list(table))}")
    links = link_all(names, bytes_per_second=SEND_RATE, latency_seconds=SEND_SECONDS)
    cluster = Cluster(tuple(Device(name) for name in names), links)
    seconds = np.stack([table[name] for name in names], axis=1) * 1e-6
    sources = np.full(seconds.shape, Source.MEASURED, dtype=np.uint8)
    return made.graph, cluster, Costs(made.graph, cluster, seconds, sources=sources)


def device_times(us: NDArray[np.float64], block: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
    """Microseconds of operators on every device, from those in f32 and bf16 [operator, 2] and their blocks."""
    f32, bf16 = us.T
    return {
        "f32": f32,
        "bf16": bf16,
        "mixed": np.where(f32 > 1000, bf16, np.where(f32 > 0, 2 * f32 + 100, 0)),
        "third": np.where(block >= FIRST_OF_THIRD, 0.6, 1.6) * f32,
    }


class _Resnet:
    """The graph, and us and block of every operator."""

    def __init__(self) -> None:
        self.build = GraphBuilder("resnet50-measured")
        self.us: list[Times] = []
        self.blocks: list[int] = []
        x = self._add("Parameter", [], (3, 224), 0)
        x = self._add("Relu", [self._convolution(x, 3, (64, 112), 7, STEM, 0)], (64, 112), 0)
        x = self._add("MaxPool", [x], (64, 56), 0, POOL)
        inputs = 64
        for number, times in enumerate(BLOCKS):
            x, inputs = self._block(x, inputs, number, times)
        x = self._add("ReduceMean", [x], (2048, 1), TAIL, MEAN)
        x = self._add("Reshape", [x], (2048, 1), TAIL)
        x = self._add("MatMul", [x], (1000, 1), TAIL, flops=2.0 * 2048 * 1000, weights=2048 * 1000)
        x = self._add("Add", [x], (1000, 1), TAIL, LAST, weights=1000)
        self._add("Result", [x], (1000, 1), TAIL)
        self.graph = self.build.build()

    def _add(
        self,
        kind: str,
        reads: list[TensorId],
        shape: Shape,
        block: int,
        us: Times = FREE,
        *,
        flops: float = 0.0,
        weights: int = 0,
    ) -> TensorId:
        channels, side = shape
        elements = channels * side * side
        name = f"{kind.lower()}{len(self.us)}"
        moved = 4.0 * (elements * (1 + len(reads)) + weights)
        operator = self.build.operator(
            name, kind=kind, reads=reads, flops=flops or float(elements), moved_bytes=moved
        )
        if weights:
            self.build.weight(f"{name}.weight", size_bytes=4 * weights, users=[operator])
        self.us.append(us)
        self.blocks.append(block)
        return self.build.tensor(operator, size_bytes=4 * elements, shape=(1, channels, side, side))

    def _convolution(
        self, x: TensorId, inputs: int, shape: Shape, window: int, us: Times, block: int
    ) -> TensorId:
        channels, side = shape
        weights = inputs * channels * window * window
        y = self._add(
            "Convolution", [x], shape, block, us, flops=2.0 * weights * side * side, weights=weights
        )
        return self._add("Add", [y], shape, block, weights=channels)

    def _block(self, x: TensorId, inputs: int, number: int, times: tuple[Times, ...]) -> tuple[TensorId, int]:
        stage = sum(number >= first for first in STAGES)
        inner, side = 64 * 2**stage, 56 // 2**stage
        before = side * 2 if number in STAGES else side
        y = self._convolution(x, inputs, (inner, before), 1, times[0], number)
        y = self._add("Relu", [y], (inner, before), number)
        y = self._convolution(y, inner, (inner, side), 3, times[1], number)
        y = self._add("Relu", [y], (inner, side), number)
        y = self._convolution(y, inner, (4 * inner, side), 1, times[2], number)
        if len(times) == 4:
            x = self._convolution(x, inputs, (4 * inner, side), 1, times[3], number)
        y = self._add("Add", [y, x], (4 * inner, side), number)
        return self._add("Relu", [y], (4 * inner, side), number), 4 * inner
