"""Profiles and records of a small model on worker processes; no test here believes a clock."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest

from stead import Latency, Placement, Problem
from stead.cluster import Cluster, Device, link_all
from stead.costs import Fitted, Source
from stead.run.executor import Executor
from stead.run.measure import Candidate, measure
from stead.run.predict import predict
from stead.run.profile import Timings, take_timings
from stead.run.session import opened, versions_of, workers_on

pytest.importorskip("torch")
pytestmark = pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="needs two cores")
MODEL = "zoo:gpt2-small?batch=1,layers=1,width=64,heads=2,length=16,vocabulary=200"


@pytest.fixture(scope="module")
def executor() -> Iterator[Executor]:
    with opened(MODEL, workers_on("core 0 + core 1")) as running:
        yield running


@pytest.fixture(scope="module")
def timings(executor: Executor) -> tuple[Timings, ...]:
    return take_timings(executor, repeats=3, bursts=2)


@pytest.fixture(scope="module")
def problem(executor: Executor, timings: tuple[Timings, ...]) -> Problem:
    names = [worker.name for worker in executor.workers]
    devices = tuple(
        Device(name, kind="cpu", flops_per_second={"fp32": 1e11}, bytes_per_second=1e10) for name in names
    )
    cluster = Cluster(devices, link_all(names, bytes_per_second=6e9, latency_seconds=3e-6))
    profiles = tuple(one.profile(executor.graph) for one in timings)
    return Problem(executor.graph, cluster, Fitted(profiles).costs(executor.graph, cluster), objective=Latency())


def test_every_operator_is_timed_on_every_device(executor: Executor, timings: tuple[Timings, ...]) -> None:
    assert [one.device for one in timings] == ["core 0", "core 1"]
    assert timings[0].seconds.shape == (6, len(executor.graph))
    assert (timings[0].totals > 0).all()


def test_costs_of_a_profile_are_measured_ones(problem: Problem) -> None:
    assert problem.costs.source == Source.MEASURED


def test_a_real_record_has_right_results_and_says_how_it_was_timed(executor: Executor, problem: Problem) -> None:
    placement = Placement(problem, np.arange(len(problem.graph)) % 2)
    one = Candidate("every second", placement, predict(problem, placement))
    (record,) = measure(
        executor, [one], bursts=5, circumstances={"versions": versions_of(executor)},
        open_on=lambda others: opened(MODEL, others),
    )  # fmt: skip
    assert record.alternatives.threads is not None
    assert record.alternatives.replicas is not None
    assert record.numerics.passed
    assert record.numerics.relative == 0.0
    data = record.as_dict()
    assert data["timing_mode"] in ("fifo", "quiet", "cputime")
    timed, lost = data["measured"]["bursts"], data["measured"]["discarded"]
    assert timed <= 5 <= timed + lost <= 10  # a lost burst is run once more in its round
    assert "torch" in data["versions"]
    assert (record.gain is None) or not record.measured.insufficient
