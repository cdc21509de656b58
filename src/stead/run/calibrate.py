"""Costs corrected by measured times of whole placements, through the simulator.

Notation    v operator, k its kind, d device, l class of equal links, i measured placement
    s[v, d]   seconds as they were believed;  s'[v, d] = s[v, d] exp(a[d] + b[k, d])
    link l    latency * exp(p[l]),  bandwidth / exp(q[l])
    x         all of a, b, p, q; 0 is what was believed, and each has a prior N(0, width^2)
    T_i(x)    seconds of placement i in the simulator with corrected costs;  m_i as measured, with error e_i
    x*        least squares of (log m_i - log T_i(x)) / e_i and x / width: damped Gauss-Newton, finite differences
    C         (J' J + 1 / width^2)^-1 at x*: how sure the correction is, and what `drawn` draws other beliefs from
Operators that a profile has measured have no b, and the a of a device that was profiled can only be drift. Kinds that
take little time have no b either.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stead.cluster import Cluster, Link
from stead.costs import Costs, Source
from stead.errors import BadInput
from stead.problem import Placement, Priority, Problem
from stead.sim import simulate, simulate_many

DEVICE_WIDTH = 1.0  # a machine that was never seen may well be three times as fast
KIND_WIDTH = 0.35
LINK_WIDTH = 0.7
DRIFT_WIDTH = 0.1  # of a device that was profiled
LEAST_SHARE = 0.01  # of all seconds on a device, of a kind that has a factor of its own
MOST_KINDS = 16
MODEL_ERROR = 0.01  # relative; no simulator is nearer to a machine
STEP = 0.02  # of finite differences
MOST_ROUNDS = 8
DONE = 1e-3  # change of x

What = Literal["device", "kind", "latency", "bandwidth", "transfers"]


@dataclass(frozen=True, slots=True)
class Seen:
    """A placement and how long it was measured to take."""

    placement: Placement
    seconds: float
    error: float = MODEL_ERROR  # relative, one standard deviation


@dataclass(frozen=True, slots=True)
class Factor:
    """What a group of costs is multiplied by (a bandwidth: divided), and how sure that is."""

    what: What
    name: str
    value: float
    error: float  # one standard deviation of its logarithm
    prior_error: float  # before anything was measured

    @property
    def source(self) -> str:
        """Whether measurements had something to say about it."""
        return "measured" if self.error < 0.7 * self.prior_error else "prior"

    def as_dict(self) -> dict[str, object]:
        """Plain data."""
        return {"what": self.what, "name": self.name, "value": self.value, "error": self.error, "source": self.source}


@dataclass(frozen=True, slots=True, eq=False)
class Calibrated:
    """A problem with corrected costs and links, and all that was learnt about them."""

    problem: Problem
    factors: tuple[Factor, ...]
    error: float  # root mean square of log(measured / predicted) that is left
    prior_error: float  # of the same before
    samples: int
    logs: NDArray[np.float64]  # [factor]
    _spread: NDArray[np.float64]  # [factor, factor]; its lower triangle times standard normals is a draw
    _model: _Model

    def drawn(self, rng: np.random.Generator) -> Problem:
        """The problem as it may be just as well, given what was measured."""
        return self._model.corrected(self.logs + self._spread @ rng.standard_normal(len(self.logs)))


def calibrated(
    problem: Problem, seen: Sequence[Seen], *, start: NDArray[np.float64] | None = None
) -> Calibrated:
    """`problem` corrected so that the simulator agrees with what was seen, as far as its priors let it.

    `start` are the logs of an earlier fit of the same problem, to go on from.
    """
    for one in seen:
        if not 0 < one.seconds < math.inf:
            raise BadInput(f"a measured time must be a positive number of seconds, got {one.seconds}")
    model = _Model(problem)
    placements = [_own(problem, one.placement) for one in seen]
    measured = np.log([one.seconds for one in seen])
    weight = 1.0 / np.hypot([one.error for one in seen], MODEL_ERROR)
    widths = model.widths
    x = np.zeros(len(widths)) if start is None or len(start) != len(widths) else start.copy()
    first = measured - model.log_seconds(np.zeros(len(widths)), placements)
    if not np.isfinite(first).all():
        raise BadInput("a placement was measured that the simulator says cannot run; check devices and supported kinds")
    left = measured - model.log_seconds(x, placements)
    jacobian, damping = np.zeros((len(seen), len(widths))), 1e-3

    def worth(x: NDArray[np.float64], left: NDArray[np.float64]) -> float:
        return float(((left * weight) ** 2).sum() + ((x / widths) ** 2).sum())

    for _ in range(MOST_ROUNDS if seen else 0):
        jacobian = model.jacobian(x, placements, measured - left)
        weighted = jacobian * weight[:, None]
        normal = weighted.T @ weighted + np.diag(widths**-2)
        slope = weighted.T @ (left * weight) - x / widths**2
        now, moved = worth(x, left), False
        for _ in range(6):
            step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), slope)
            tried = measured - model.log_seconds(x + step, placements)
            if worth(x + step, tried) < now:
                x, left, moved, damping = x + step, tried, True, damping / 5
                break
            damping *= 5
        if not moved or np.abs(step).max(initial=0.0) < DONE:
            break
    weighted = jacobian * weight[:, None]
    covariance = np.linalg.inv(weighted.T @ weighted + np.diag(widths**-2))
    errors = np.sqrt(np.diag(covariance))
    factors = tuple(
        Factor(what, name, math.exp(log), float(error), float(width))
        for (what, name), log, error, width in zip(model.names, x.tolist(), errors, widths, strict=True)
    )
    return Calibrated(
        model.corrected(x), factors, _rms(left), _rms(first), len(seen), x, np.linalg.cholesky(covariance), model
    )


class _Model:
    """What can be wrong with a problem, as numbers; all 0 is the problem as it is."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.names: list[tuple[What, str]] = []
        widths: list[float] = []
        names, costs = problem.cluster.names, problem.costs
        measured = costs.sources == Source.MEASURED
        finite = np.where(np.isfinite(costs.seconds), costs.seconds, 0.0)
        profiled = (finite * measured).sum(axis=0) > 0.5 * finite.sum(axis=0)
        for d, name in enumerate(names):
            self.names.append(("device", name))
            widths.append(DRIFT_WIDTH if profiled[d] else DEVICE_WIDTH)
        self.kind = np.full(costs.seconds.shape, -1)  # [operator, device]; the number of its factor
        for kind, rows in _kinds(problem, finite):
            for d, name in enumerate(names):
                own = rows[(finite[rows, d] > 0) & ~measured[rows, d]]
                if own.size:
                    self.kind[own, d] = len(widths)
                    self.names.append(("kind", f"{kind} on {name}"))
                    widths.append(KIND_WIDTH)
        self.tensors = len(widths) if costs.tensor_seconds is not None else -1
        if self.tensors >= 0:
            self.names.append(("transfers", "given transfer times"))
            widths.append(LINK_WIDTH)
        self.links: dict[tuple[float, float, str], tuple[int, int]] = {}  # latency and bandwidth of a class of links
        for link in problem.cluster.links:
            if _class(link) not in self.links:
                numbers = [-1, -1]
                where = f"{link.source} -> {link.target}"
                if link.latency_seconds > 0:
                    numbers[0] = len(widths)
                    self.names.append(("latency", where))
                    widths.append(LINK_WIDTH)
                if math.isfinite(link.bytes_per_second) and self.tensors < 0:
                    numbers[1] = len(widths)
                    self.names.append(("bandwidth", where))
                    widths.append(LINK_WIDTH)
                self.links[_class(link)] = (numbers[0], numbers[1])
        self.widths = np.array(widths)

    def corrected(self, x: NDArray[np.float64]) -> Problem:
        """The problem with factors exp(x)."""
        problem, costs = self.problem, self.problem.costs
        devices = len(problem.cluster)
        own = np.where(self.kind >= 0, x[self.kind], 0.0) + x[:devices]
        tensor_seconds = costs.tensor_seconds
        if tensor_seconds is not None:
            tensor_seconds = tensor_seconds * math.exp(x[self.tensors])
        cluster = self._cluster(x)
        made = Costs(
            problem.graph, cluster, costs.seconds * np.exp(own), workspace_bytes=costs.workspace_bytes,
            sources=costs.sources, tensor_seconds=tensor_seconds, reasons=costs.reasons,
        )  # fmt: skip
        return Problem(
            problem.graph, cluster, made, objective=problem.objective, constraints=problem.constraints
        )

    def _cluster(self, x: NDArray[np.float64]) -> Cluster:
        cluster = self.problem.cluster
        links = []
        for link in cluster.links:
            latency, bandwidth = self.links[_class(link)]
            if latency >= 0:
                link = replace(link, latency_seconds=link.latency_seconds * math.exp(x[latency]))
            if bandwidth >= 0:
                link = replace(link, bytes_per_second=link.bytes_per_second / math.exp(x[bandwidth]))
            links.append(link)
        return replace(cluster, links=tuple(links))

    def log_seconds(self, x: NDArray[np.float64], placements: Sequence[Placement]) -> NDArray[np.float64]:
        """Of placements, predicted with factors exp(x)."""
        return np.log(np.maximum(seconds_of(self.corrected(x), placements), 1e-12))

    def jacobian(
        self, x: NDArray[np.float64], placements: Sequence[Placement], here: NDArray[np.float64]
    ) -> NDArray[np.float64]:  # [placement, factor]
        """How log seconds change with each factor; differences to both sides would cost twice as much."""
        columns = np.zeros((len(placements), len(x)))
        for j in range(len(x)):
            moved = x.copy()
            moved[j] += STEP
            columns[:, j] = (self.log_seconds(moved, placements) - here) / STEP
        return columns


def seconds_of(problem: Problem, placements: Sequence[Placement]) -> NDArray[np.float64]:
    """Seconds of placements in the simulator; those that are served alike are simulated at once."""
    found = np.full(len(placements), math.inf)
    free = [i for i, one in enumerate(placements) if one.order is None and not one.replicas]
    ranked = [
        i for i, one in enumerate(placements)
        if isinstance(one.order, Priority) and one.order.position is not None and one.order.transfer_position is None
    ]  # fmt: skip
    if free:
        rows = np.stack([placements[i].devices for i in free])
        found[free] = simulate_many(problem, rows, memory="off", threads=1).seconds
    if ranked:
        rows = np.stack([placements[i].devices for i in ranked])
        positions = np.stack([_positions(placements[i]) for i in ranked])
        found[ranked] = simulate_many(problem, rows, positions=positions, memory="off", threads=1).seconds
    for i in sorted(set(range(len(placements))) - {*free, *ranked}):
        one = placements[i]
        if one.replicas:
            found[i] = simulate(problem, _own(problem, one), memory="off").objective_seconds
        else:
            row = one.devices[None, :]
            found[i] = simulate_many(problem, row, policy=one.order, memory="off", threads=1).seconds[0]
    return found


def _positions(placement: Placement) -> NDArray[np.int32]:
    assert isinstance(placement.order, Priority)
    assert placement.order.position is not None
    return placement.order.position


def _own(problem: Problem, placement: Placement) -> Placement:
    """The same placement of a problem with other costs."""
    if placement.problem is problem:
        return placement
    return Placement(problem, placement.devices, placement.order, placement.replicas)


def _kinds(problem: Problem, seconds: NDArray[np.float64]) -> list[tuple[str, NDArray[np.int64]]]:
    """(kind, its operators) for kinds that take their share of the time on some device, the heaviest first."""
    rows: dict[str, list[int]] = {}
    for v, kind in enumerate(problem.graph.kinds):
        rows.setdefault(kind, []).append(v)
    total = np.maximum(seconds.sum(axis=0), 1e-30)
    shares = {kind: float((seconds[own].sum(axis=0) / total).max()) for kind, own in rows.items()}
    heavy = [kind for kind in sorted(rows, key=lambda kind: -shares[kind]) if shares[kind] >= LEAST_SHARE]
    return [(kind, np.array(rows[kind])) for kind in heavy[:MOST_KINDS]] if len(rows) > 1 else []


def _class(link: Link) -> tuple[float, float, str]:
    return link.latency_seconds, link.bytes_per_second, link.carried_by


def _rms(values: NDArray[np.float64]) -> float:
    return float(np.sqrt(np.mean(values**2))) if values.size else 0.0
