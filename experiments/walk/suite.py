"""What the walk is judged on: graphs of families that nothing was trained on, on clusters that came up nowhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from stead.cluster import Cluster, Device, link_all
from stead.costs import Roofline
from stead.learn.walk.made_problems import Scope, made_problem
from stead.placing.loading import load
from stead.problem import Latency, Problem
from stead.workloads.synthetic import synthetic

ZOO = (
    "rnnlm-2", "rnnlm-4", "gnmt-2", "transformer-xl-2", "transformer-xl-4", "inception-v3", "amoebanet",
    "nasnet-mobile", "wavenet-2x18", "t5-small", "bert-base", "resnet-50",
)  # fmt: skip
LARGE = ("gnmt-8", "rnnlm-8", "transformer-xl-8", "nasnet-large", "amoebanet", "t5-large")
RECURRENT = ("rnnlm", "gnmt", "nmt")
OWN = ("towers", "cholesky", "butterfly", "wavefront", "heavy-tails")
OWN_SEEDS = range(20_000_000, 20_000_008)


def cluster(flops: list[float], rates: list[float], *, links: float = 12e9, latency: float = 20e-6) -> Cluster:
    """Devices by their FLOP/s and bytes/s with ample memory; the latency of a link occupies it."""
    names = [f"g{d}" for d in range(len(flops))]
    devices = tuple(
        Device(
            name, memory_bytes=2**45, flops_per_second={"fp32": f}, bytes_per_second=r, launch_seconds=5e-6
        )
        for name, f, r in zip(names, flops, rates, strict=True)
    )  # fmt: skip
    return Cluster(devices, link_all(names, bytes_per_second=links, latency_seconds=latency, gap_seconds=latency))


CLUSTERS = {
    "4 equal": cluster([4.6e12] * 4, [500e9] * 4),
    "2 unequal": cluster([9e12, 4.6e12], [700e9, 500e9]),
    "8 unequal": cluster([14e12] * 4 + [5e12] * 4, [900e9] * 4 + [400e9] * 4, links=25e9, latency=10e-6),
}


@dataclass(frozen=True, slots=True)
class Case:
    """A problem with a name."""

    name: str
    family: str
    where: str
    problem: Problem

    @property
    def key(self) -> str:
        """Graph and cluster."""
        return f"{self.name} | {self.where}"

    @property
    def part(self) -> str:
        """The row of the table that it counts in."""
        if self.where == "own":
            return "own random families"
        return "recurrent" if self.family in RECURRENT else "others"


def zoo_cases(
    names: tuple[str, ...] = ZOO, clusters: tuple[str, ...] = tuple(CLUSTERS), options: str = ""
) -> Iterator[Case]:
    """Training graphs of the zoo, with options of the zoo, and three of the family nmt, on every cluster."""
    for name in names:
        for where in clusters:
            chosen = ",".join(filter(None, ("phase=train", options)))
            problem = load(f"zoo:{name}?{chosen}", CLUSTERS[where]).problem(Latency())
            yield Case(f"{name} {options}".strip(), name.partition("-")[0], where, problem)
    for seed in (1, 2, 3) if names is ZOO else ():
        graph = synthetic("nmt", seed=seed)
        for where in clusters:
            costs = Roofline().costs(graph, CLUSTERS[where])
            yield Case(f"nmt:{seed}", "nmt", where, Problem(graph, CLUSTERS[where], costs, objective=Latency()))


def own_cases() -> Iterator[Case]:
    """Random problems of families with other statistics than those of training."""
    for family in OWN:
        scope = Scope(families=(family,), least=100, most=2000)
        for seed in OWN_SEEDS:
            yield Case(f"{family}:{seed}", family, "own", made_problem(seed, scope).problem)
