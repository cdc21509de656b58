"""Pipelines over hosts, predicted and measured, in network namespaces with limited links.

    python -m experiments.hosts.run [--rates 200 800] [--samples 40]

Two or three hosts, one core each; every host sends at so many Mbit/s at most. Costs are a profile on the workers
themselves and links as `stead devices --measure --hosts` measures them; the prediction is the simulator's, with the
load "duplex": sends and receives go on beside compute, each way by itself. Needs the right to make network namespaces.
Nothing leaves them.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from stead import Placement, Problem, Throughput, simulate
from stead.cluster import Cluster, Device, Host, Link
from stead.costs import Costs
from stead.run.hosts.host_crew import HostCrew
from stead.run.hosts.host_executor import agents_on, executor_on_hosts
from stead.run.hosts.host_links import measure_host_links
from stead.run.hosts.host_tolls import measure_tolls, with_tolls
from stead.run.link_times import MeasuredLink
from stead.run.predict import on_problem
from stead.run.subject import captured
from stead.run.torch_executor import TorchExecutor
from stead.testing.namespaces import Namespaces, unavailable

LAYERS, WIDTH, ROWS = 12, 1024, 128
REPEATS, BURSTS = 6, 5


@dataclass(frozen=True, slots=True)
class Row:
    """One cut at one rate."""

    rate: float  # Mbit/s
    cut: str  # layers per host
    stages: tuple[float, ...]  # seconds of each
    sending: float  # seconds of one crossing
    tolls: tuple[float, float]  # seconds of computing that one crossing takes from its sender and its receiver
    predicted: float
    measured: tuple[float, ...]  # seconds per sample, by burst
    mode: str

    def line(self) -> str:
        """A row of the table."""
        stages = " / ".join(f"{1e3 * one:.1f}" for one in self.stages)
        best, middle = min(self.measured), float(np.median(self.measured))
        return (
            f"| {self.rate:g} | {self.cut} | {stages} | {1e3 * self.sending:.1f} | "
            f"{1e3 * self.tolls[0]:.1f} / {1e3 * self.tolls[1]:.1f} | {1e3 * self.predicted:.1f} | "
            f"{1e3 * best:.1f} | {1e3 * middle:.1f} | {best / self.predicted:.2f} | {middle / self.predicted:.2f} | "
            f"{self.mode} |"
        )


def module() -> nn.Module:
    """Layers of equal size, half a MiB between any two."""
    torch.manual_seed(0)
    return nn.Sequential(*(part for _ in range(LAYERS) for part in (nn.Linear(WIDTH, WIDTH), nn.ReLU()))).eval()


def cluster_of(network: Namespaces, links: Sequence[MeasuredLink]) -> Cluster:
    """One device per host, with the links that were measured."""
    names = {host: f"{host}/core" for host in network.names}
    both: list[Link] = [
        Link(names[way.source], names[way.target], way.bytes_per_second, way.latency_seconds)
        for one in links
        for way in one.links
    ]
    devices = tuple(Device(name, kind="cpu") for name in names.values())
    return Cluster(devices, tuple(both), hosts=tuple(Host(host, (name,)) for host, name in names.items()))


def cuts(count: int, hosts: int) -> Iterator[tuple[str, list[int]]]:
    """Some ways to cut a chain of so many operators: even, and with most of it on the first host."""
    even = [hosts * v // count for v in range(count)]
    yield " + ".join(str(LAYERS // hosts) for _ in range(hosts)), even
    if hosts == 2:
        most = [int(v >= 3 * count // 4) for v in range(count)]
        yield f"{3 * LAYERS // 4} + {LAYERS - 3 * LAYERS // 4}", most


def measured_seconds(executor: TorchExecutor, placement: Placement, samples: int) -> tuple[list[float], str]:
    """Seconds per sample of every burst: from the first result to the last, by their number."""
    found: list[float] = []
    modes = set()
    for _ in range(BURSTS):
        burst = executor.pipeline(placement, samples=samples)
        found.append(float(np.mean(burst.seconds)))
        modes.add(burst.timing_mode)
    return found, "/".join(sorted(modes))


def rows(rate: float, hosts: int, samples: int) -> Iterator[Row]:
    """All cuts at one rate."""
    prepared = captured(module(), (torch.randn(ROWS, WIDTH),), export=True, name="layers")
    with Namespaces(hosts, bits_per_second=1e6 * rate) as network:
        agents = agents_on(network.text, launch="ip netns exec {host} {command}")
        shared = hosts > len(os.sched_getaffinity(0))
        host_of = tuple(range(hosts))
        with executor_on_hosts(prepared, agents, host_of, [None] * hosts, oversubscribe=shared) as executor:
            crew = executor.crew
            assert isinstance(crew, HostCrew)
            links = measure_host_links(crew)
            cluster = cluster_of(network, links)
            tolls = measure_tolls(crew)
            profiles = [executor.profile(w, repeats=REPEATS).min(axis=0) for w in host_of]
            seconds: NDArray[np.float64] = np.stack(profiles, axis=1)
            problem = Problem(
                executor.graph, cluster, Costs(executor.graph, cluster, seconds), objective=Throughput("duplex")
            )
            for name, devices in cuts(len(problem.graph), hosts):
                placement = Placement(problem, devices)
                assert executor.check(placement).max_abs == 0.0
                found, mode = measured_seconds(executor, placement, samples)
                stages = np.bincount(devices, weights=seconds[np.arange(len(devices)), devices])
                size = 4 * ROWS * WIDTH
                sending = links[0].latency_seconds + size / links[0].bytes_per_second
                paying = with_tolls(problem, placement, tolls, host_of)
                predicted = simulate(paying, on_problem(paying, placement)).objective_seconds
                ends = (size * tolls[0].sending, size * tolls[0].receiving)
                yield Row(rate, name, tuple(stages.tolist()), sending, ends, predicted, tuple(found), mode)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rates", type=float, nargs="+", default=[100.0, 400.0], help="Mbit/s")
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--samples", type=int, default=30)
    given = parser.parse_args()
    if why := unavailable():
        raise SystemExit(f"no network namespaces: {why}")
    print(
        "| Mbit/s | layers | stages ms | sending ms | tolls ms | predicted ms | min | median | by min | by median "
        "| timing |"
    )
    print("|---:|---|---|---:|---|---:|---:|---:|---:|---:|---|")
    for rate in given.rates:
        for row in rows(rate, given.hosts, given.samples):
            print(row.line(), flush=True)
    print(f"\nload average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
