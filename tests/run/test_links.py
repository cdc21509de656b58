"""Links and rates of this machine: the fit, what is made of it, and a few real messages."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stead import RunFailed, cluster_from
from stead.cluster.device_file import write_cluster
from stead.costs import ErrorBar
from stead.run.executor import Worker
from stead.run.link_times import SHARED_BYTES, MeasuredLink, fit_link, measure_links
from stead.run.machine_rates import MeasuredMachine, described
from stead.run.probes import MALLOC, Probes, worker_environment

TWO = (Worker("core 0", (0,)), Worker("core 1", (1,), isa="SSE41"))
has_two_cores = pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="needs two cores")


def test_latency_and_rate_are_found_again() -> None:
    latency, rate, residual = fit_link({size: 3e-6 + size / 6e9 for size in (2**10, 2**16, 2**20, 2**24)})
    assert latency == pytest.approx(3e-6)
    assert rate == pytest.approx(6e9)
    assert residual == pytest.approx(0.0, abs=1e-9)


def test_a_fit_never_has_a_negative_latency() -> None:
    latency, rate, residual = fit_link({1000: 1e-6, 1_000_000: 2e-3})  # slower per byte where larger
    assert latency == 0.0
    assert rate > 0
    assert residual > 0.1


def measured(together: float = 1.0) -> MeasuredMachine:
    bars = {1024: ErrorBar.of([3e-6]), 2**20: ErrorBar.of([1.8e-4])}
    link = MeasuredLink("core 0", "core 1", bars, 3.14159e-6, 6.02e9, 0.05)
    alone = {"gemm": (70e9, 60e9), "memcpy": (16e9, 15e9)}
    both = {what: tuple(rate * together for rate in rates) for what, rates in alone.items()}
    return MeasuredMachine(TWO, alone, both, (2e-6, 2e-6), (link,), "fifo", 16 * 2**30)


def test_workers_that_slow_each_other_down_are_said_to() -> None:
    assert measured().aggregate == {"gemm": 2.0, "memcpy": 2.0}
    assert not measured().not_independent
    assert measured(0.9).not_independent[0].startswith("not_independent: gemm on all 2 workers is 1.80x that of one")


def test_a_measured_machine_is_a_device_file(tmp_path: Path) -> None:
    cluster = measured().cluster
    write_cluster(cluster, tmp_path / "machine.toml")
    back, _ = cluster_from(tmp_path / "machine.toml")
    assert back.fingerprint == cluster.fingerprint
    assert back.devices[1].flops_per_second["fp32"] == 60e9
    assert back.devices[1].alias["stead"] == "core 1 @ sse41"
    assert back.links[0].latency_seconds == 3.14e-6
    assert {link.carried_by for link in back.links} == {"sender"}  # through shared memory
    assert back.devices[0].memory_bytes == 8 * 2**30


def test_a_worker_is_described_as_it_was_asked_for() -> None:
    assert described(Worker("pair", (2, 3))) == "cores 2-3"


def test_workers_start_with_their_threads_instructions_and_memory() -> None:
    environment = worker_environment(TWO[1])
    assert environment["OMP_NUM_THREADS"] == "1"
    assert environment["ONEDNN_MAX_CPU_ISA"] == "SSE41"
    assert MALLOC.items() <= environment.items()


@has_two_cores
def test_messages_pass_between_pinned_processes() -> None:
    with Probes(TWO, shared_bytes=SHARED_BYTES) as probes:
        back = probes.ask({d: {"do": "readback", "names": list(MALLOC)} for d in range(2)}, seconds=60)
        assert [back[d]["cores"] for d in range(2)] == [[0], [1]]
        assert back[1]["environment"] == MALLOC
        (link,) = measure_links(probes, sizes=(1024, 65536), rounds=4)
    assert (link.first, link.second) == ("core 0", "core 1")
    assert link.bytes_per_second > 0
    assert {one.size_bytes for one in link.samples} <= {1024, 65536}


@has_two_cores
def test_a_worker_that_dies_is_one_clear_line() -> None:
    with Probes(TWO) as probes:
        probes._running[1].kill()
        with pytest.raises(RunFailed, match=r"the process of core 1 ended"):
            probes.ask({1: {"do": "readback", "names": []}}, seconds=30)


def test_cores_that_are_not_there_are_one_clear_line() -> None:
    with pytest.raises(RunFailed, match="cannot be started on cores"), Probes((Worker("far", (4095,)),)):
        pass
