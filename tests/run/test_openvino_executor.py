"""OpenVINO as an executor: processes, HETERO, pipelines, profiles, and nothing left behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from small_files import save_ir, save_onnx

from stead import Placement
from stead.cluster import Cluster, Device, link_all
from stead.costs import Costs
from stead.errors import BadInput, RunFailed
from stead.graph import Graph
from stead.problem import Problem
from stead.run.crossing_times import drawn_together
from stead.run.executor import Executor, Worker
from stead.run.open import open_executor
from stead.run.openvino.executor import OpenVinoExecutor

pytest.importorskip("openvino")
pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two workers need two cores")


def two_workers() -> tuple[Worker, ...]:
    first, second, *_ = sorted(os.sched_getaffinity(0))
    return (Worker("c0", (first,)), Worker("c1", (second,)))


def problem_of(graph: Graph) -> Problem:
    names = ["c0", "c1"]
    links = link_all(names, bytes_per_second=6e9, latency_seconds=3e-6)
    cluster = Cluster(tuple(map(Device, names)), links)
    return Problem(graph, cluster, Costs(graph, cluster, np.full((len(graph), 2), 1e-3)))


def shared_memory() -> set[str]:
    return {name for name in os.listdir("/dev/shm") if name.startswith(f"stead-{os.getpid()}-")}


@pytest.fixture(scope="module")
def executor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenVinoExecutor]:
    path = save_ir("branching", tmp_path_factory.mktemp("models"))
    with OpenVinoExecutor(path, two_workers()) as opened:
        yield opened


def half(executor: Executor) -> Placement:
    count = len(executor.graph)
    return Placement(problem_of(executor.graph), (np.arange(count) >= count // 2).astype(int))


@pytest.mark.parametrize("seed", range(4))
def test_any_placement_runs_and_gives_the_results_of_one_worker(
    executor: OpenVinoExecutor, seed: int
) -> None:
    problem = problem_of(executor.graph)
    placement = Placement(problem, np.random.default_rng(seed).integers(0, 2, len(problem.graph)))
    burst = executor.burst(placement, runs=3)
    assert burst.lost or (len(burst.seconds) == 3 and min(burst.seconds) > 0)
    assert executor.check(placement).passed


def test_a_half_split_gives_the_same_bits(executor: OpenVinoExecutor) -> None:
    assert executor.check(half(executor)).max_abs == 0.0


def test_the_same_placement_is_compiled_once(executor: OpenVinoExecutor) -> None:
    executor.burst(half(executor), runs=1)
    before = shared_memory()
    executor.burst(half(executor), runs=1)
    assert shared_memory() == before


def test_placements_that_take_turns_stay_compiled_and_right(executor: OpenVinoExecutor) -> None:
    problem = problem_of(executor.graph)
    one, other = half(executor), Placement(problem, np.ones(len(problem.graph), dtype=int))
    for placement in (one, other):
        executor.burst(placement, runs=1)
    executor.pipeline(one, samples=3)
    before = shared_memory()
    for placement in (one, other, one):
        assert executor.check(placement).passed
        executor.burst(placement, runs=2)
    assert not executor.pipeline(one, samples=4).lost
    assert shared_memory() == before


def test_no_more_programs_are_kept_than_weights_allow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stead.run.segment_executor.KEPT_PROGRAMS", 2)
    before = shared_memory()
    with OpenVinoExecutor(save_ir("residual", tmp_path), two_workers()) as executor:
        problem = problem_of(executor.graph)
        for cut in range(1, 5):
            placement = Placement(problem, (np.arange(len(problem.graph)) >= cut).astype(int))
            assert executor.check(placement).passed
        assert len(shared_memory() - before) == 2
    assert shared_memory() == before


def test_stages_run_as_a_pipeline(executor: OpenVinoExecutor) -> None:
    burst = executor.pipeline(half(executor), samples=6)
    assert burst.lost or (len(burst.seconds) == 5 and burst.first_seconds > 0)


def test_a_profile_has_a_time_for_what_computes_and_none_for_inputs(executor: OpenVinoExecutor) -> None:
    seconds = executor.profile(1, repeats=2)
    assert seconds.shape == (2, len(executor.graph))
    assert (seconds[:, executor.graph.index("left")] > 0).all()
    assert (seconds[:, executor.graph.index("x")] == 0).all()


def test_what_runs_as_one_kernel_is_one_group_and_a_profile_has_its_time_once(executor: OpenVinoExecutor) -> None:
    graph = executor.as_kernels()
    assert graph.operator_names == executor.graph.operator_names
    seconds = executor.profile(0, repeats=2).sum(axis=0)
    groups = [np.flatnonzero(graph.colocation == g) for g in range(len(graph.colocation_names))]
    assert groups
    assert all((seconds[members] > 0).sum() <= 1 for members in groups)
    devices = drawn_together(graph, np.random.default_rng(3).integers(0, 2, len(graph)))
    assert executor.check(Placement(problem_of(graph), devices)).passed


def test_workers_tell_cores_precision_threads_and_allocator(executor: OpenVinoExecutor) -> None:
    executor.check(half(executor))
    for worker, facts in zip(executor.workers, executor.facts, strict=True):
        assert facts["cores"] == list(worker.cores)
        assert facts["environment"]["MALLOC_MMAP_THRESHOLD_"] == "1073741824"
        assert (facts["precision"], facts["threads"]) == ("f32", 1)


def test_hetero_tells_the_number_of_submodels(tmp_path: Path) -> None:
    with OpenVinoExecutor(save_ir("residual", tmp_path), two_workers(), mode="hetero") as executor:
        placement = half(executor)
        burst = executor.burst(placement, runs=2)
        assert burst.lost or len(burst.seconds) == 2
        assert executor.honoured is not None
        assert executor.honoured.submodels == 2
        assert executor.honoured.devices == ("CPU", "XCPU")
        assert executor.check(placement).max_abs == 0.0
        assert executor.profile(1, repeats=1).sum() > 0
        with pytest.raises(BadInput, match="HETERO runs submodels one after another"):
            executor.pipeline(placement, samples=4)


def test_an_onnx_file_can_be_run_by_openvino(tmp_path: Path) -> None:
    with open_executor(save_onnx(tmp_path), two_workers(), "openvino") as executor:
        assert executor.name == "openvino"
        assert executor.check(half(executor)).passed


def test_a_worker_that_is_killed_is_told_and_nothing_is_left_behind(tmp_path: Path) -> None:
    before = shared_memory()
    executor = OpenVinoExecutor(save_ir("residual", tmp_path), two_workers())
    placement = half(executor)
    executor.burst(placement, runs=1)
    processes = executor.process_ids
    os.kill(processes[1], signal.SIGKILL)
    with pytest.raises(RunFailed, match="worker c1 was killed by signal 9"):
        executor.burst(placement, runs=1)
    executor.close()
    assert not any(Path(f"/proc/{process}").exists() for process in processes)
    assert shared_memory() == before
    with pytest.raises(RunFailed, match="given back already"):
        executor.profile(0, repeats=1)


def test_a_stopped_worker_loses_the_burst_and_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stead.run.segment_executor._FIRST_SECONDS", 0.5)
    with OpenVinoExecutor(save_ir("residual", tmp_path), two_workers()) as executor:
        placement = half(executor)
        executor.burst(placement, runs=1)
        assert executor._slots is not None
        executor._slots.done[1] = -(10**6)  # as if the second worker had never finished
        lost = executor.burst(placement, runs=1)
        assert lost.lost == "a worker waited too long for another"
        assert lost.seconds == ()
        assert not executor.burst(placement, runs=1).lost


def test_workers_that_share_a_core_are_refused(tmp_path: Path) -> None:
    path, (first, _) = save_ir("residual", tmp_path), two_workers()
    with pytest.raises(BadInput, match="give each its own"):
        OpenVinoExecutor(path, (first, Worker("c1", first.cores)))


def test_a_placement_of_another_model_is_refused(executor: OpenVinoExecutor, tmp_path: Path) -> None:
    from stead.testing import chain3

    with pytest.raises(BadInput, match="knows no operator"):
        executor.burst(Placement(chain3(), [0, 1, 0]), runs=1)
