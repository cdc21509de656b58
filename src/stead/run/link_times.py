"""Links of this machine: how long messages of many sizes take between every two workers, and what follows from it.

A message is copied into shared memory by its producer and read there, every line of it, by its consumer; one way is
half of a round trip. `latency + bytes / rate` is fitted so that relative errors are small at every size:

    minimise    sum over sizes b of ((latency + b / rate) / seconds[b] - 1)^2    with latency >= 0
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stead.cluster import Link, link_both_ways
from stead.costs.error_bars import ErrorBar
from stead.costs.machine_profile import LinkSample
from stead.errors import RunFailed
from stead.run.probes import Probes

SIZES = (2**10, 2**14, 2**16, 2**18, 2**20, 2**22, 2**24)
ROUNDS = 4
SHARED_BYTES = 2**12 + 2 * SIZES[-1]
_BURST_SECONDS = 0.4
_MOST_MESSAGES, _LEAST_MESSAGES = 400, 6
_SLOWEST_RATE = 1e9  # to guess how many messages fit into a burst


@dataclass(frozen=True, slots=True)
class MeasuredLink:
    """Two workers and how messages travel between them, the same both ways."""

    first: str
    second: str
    seconds: Mapping[int, ErrorBar]  # by bytes, one way
    latency_seconds: float
    bytes_per_second: float
    residual: float  # root mean square of the relative error of the fit
    lost: int = 0  # bursts that say nothing

    @property
    def links(self) -> tuple[Link, Link]:
        """As a cluster has it."""
        return link_both_ways(
            self.first,
            self.second,
            bytes_per_second=float(f"{self.bytes_per_second:.3g}"),  # more digits would be noise
            latency_seconds=float(f"{self.latency_seconds:.3g}"),
        )

    @property
    def samples(self) -> tuple[LinkSample, ...]:
        """As a profile has it."""
        ways = ((self.first, self.second), (self.second, self.first))
        return tuple(
            LinkSample(source, target, size, bar.quartile_seconds, bar.samples)
            for source, target in ways
            for size, bar in sorted(self.seconds.items())
        )


def measure_links(
    probes: Probes, *, sizes: Sequence[int] = SIZES, rounds: int = ROUNDS, on_step: Callable[[str], None] | None = None
) -> tuple[MeasuredLink, ...]:
    """Every pair of workers at every size, in rounds over all pairs and sizes so that a disturbance spreads."""
    pairs = list(itertools.combinations(range(len(probes.workers)), 2))
    timed: dict[tuple[int, int, int], list[float]] = {}
    lost = dict.fromkeys(pairs, 0)
    sequence = 1
    for number in range(rounds):
        for (first, second), size in itertools.product(pairs, sizes):
            if on_step is not None:
                on_step(f"links, round {number + 1} of {rounds}")
            count = _messages(size)
            seconds = _ping_pong(probes, first, second, size, count, sequence, max(sizes))
            sequence += count
            timed.setdefault((first, second, size), []).extend(seconds)
            lost[first, second] += not seconds
    return tuple(_link(probes, pair, timed, lost[pair]) for pair in pairs)


def fit_link(seconds: Mapping[int, float]) -> tuple[float, float, float]:
    """Latency, bytes per second and the relative error that is left.

    >>> latency, rate, residual = fit_link({1000: 2e-6, 1_000_000: 1e-6 + 1e-3})
    >>> f"{latency:.1e} {rate:.2e} {residual:.0e}"
    '1.0e-06 1.00e+09 0e+00'
    """
    sizes = np.array(sorted(seconds), dtype=np.float64)
    known = np.array([seconds[int(size)] for size in sizes])
    rows = np.stack([1.0 / known, sizes / known], axis=1)
    (latency, per_byte), *_ = np.linalg.lstsq(rows, np.ones(len(sizes)), rcond=None)
    if latency < 0:
        latency, per_byte = 0.0, float(rows[:, 1].sum() / (rows[:, 1] ** 2).sum())
    if per_byte <= 0:
        latency, per_byte = float(known.mean()), 0.0
    left = rows @ np.array([latency, per_byte]) - 1.0
    rate = math.inf if per_byte == 0 else 1.0 / float(per_byte)
    residual = float(np.sqrt(np.mean(left**2)))
    return float(latency), rate, 0.0 if residual < 1e-9 else residual


def _messages(size: int) -> int:
    fit = _BURST_SECONDS / 2 / (20e-6 + 2 * size / _SLOWEST_RATE)
    return int(min(_MOST_MESSAGES, max(_LEAST_MESSAGES, fit)))


def _ping_pong(
    probes: Probes, first: int, second: int, size: int, count: int, sequence: int, most: int
) -> list[float]:
    """One-way seconds of messages; none if the burst was lost."""
    request = {
        "do": "ping", "bytes": size, "count": count, "sequence": sequence, "descriptor": probes.descriptor,
        "most_bytes": most, "deadline": 2 * _BURST_SECONDS,
    }  # fmt: skip
    answers = probes.ask({first: {**request, "end": 0}, second: {**request, "end": 1}}, seconds=30.0)
    if any("lost" in answer for answer in answers.values()):
        return []
    seconds: list[float] = answers[first]["seconds"]
    return seconds


def _link(
    probes: Probes, pair: tuple[int, int], timed: Mapping[tuple[int, int, int], list[float]], lost: int
) -> MeasuredLink:
    first, second = (probes.workers[d].name for d in pair)
    bars = {size: ErrorBar.of(seconds) for (a, b, size), seconds in timed.items() if (a, b) == pair and seconds}
    if len(bars) < 2:
        raise RunFailed(
            f"the link between {first} and {second} could not be measured: {lost} bursts were lost; try again when "
            "the machine is less busy"
        )
    latency, rate, residual = fit_link({size: bar.quartile_seconds for size, bar in bars.items()})
    return MeasuredLink(first, second, bars, latency, rate, residual, lost)
