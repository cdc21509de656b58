"""Predicted beside measured: rounds, gains, verdicts and records, with executors whose truth is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stead import BadInput, Placement, Problem, RunFailed
from stead.cluster import Cluster, Device, link_all
from stead.costs import Costs, Source
from stead.graph import REFRESH, GraphBuilder
from stead.printing.look import PLAIN
from stead.run.executor import Burst, Contention, Numerics, Worker
from stead.run.measure import Candidate, measure, runs_per_burst
from stead.run.predict import Predicted, copy_seconds, predict
from stead.run.record import Gain, Measured, Record, records_text
from stead.run.timing import by_plain_clock
from stead.sim import simulate
from stead.testing import diamond, two_towers
from stead.testing.executors import SimulatedExecutor

SPLIT = [0, 1, 0, 1, 0]  # the towers side by side: 7.5 s, 9 s on the first device alone


class WrongResults(SimulatedExecutor):
    """Computes something else than one worker does."""

    def check(self, placement: Placement) -> Numerics:
        return Numerics(0.5, 0.25, 1e-4)


class OneWorker(SimulatedExecutor):
    """Refuses placements on more devices than it has."""

    def burst(self, placement: Placement, *, runs: int) -> Burst:
        assert len(placement.problem.cluster) == 1
        return super().burst(placement, runs=runs)


class Unlucky(SimulatedExecutor):
    """Loses every burst of placements on several devices."""

    def burst(self, placement: Placement, *, runs: int) -> Burst:
        if len(set(placement.devices.tolist())) > 1:
            return Burst((), "simulated", lost="lost on purpose")
        return super().burst(placement, runs=runs)


class Slowing(SimulatedExecutor):
    """A machine that takes 10 % more time with every round of four bursts."""

    def burst(self, placement: Placement, *, runs: int) -> Burst:
        found = super().burst(placement, runs=runs)
        factor = 1.1 ** ((self.bursts - 1) // 4)
        return replace(found, seconds=tuple(seconds * factor for seconds in found.seconds))


def candidate(problem: Problem, devices: list[int], name: str = "split", factor: float = 1.0) -> Candidate:
    placement = Placement(problem, devices)
    believed = predict(problem, placement, charge="overlapped")
    return Candidate(name, placement, replace(believed, seconds=factor * believed.seconds))


def one_device(problem: Problem) -> list[Predicted]:
    count = len(problem.graph)
    return [predict(problem, Placement(problem, [d] * count), charge="overlapped") for d in range(2)]


def test_a_machine_without_noise_takes_what_was_predicted() -> None:
    problem = two_towers()
    executor = SimulatedExecutor(problem)
    (record,) = measure(executor, [candidate(problem, SPLIT)], single_predicted=one_device(problem))
    assert record.predicted.seconds == 7.5
    assert record.measured.seconds is not None
    assert record.measured.seconds.minimum_seconds == 7.5
    assert record.ratio == 1.0
    assert record.gain is not None
    assert record.gain.middle == pytest.approx(9.0 / 7.5)
    assert record.ideal == pytest.approx(9.0 / 7.5)
    assert record.drift == 0.0
    assert record.verdict == "bit-identical"
    assert not record.warnings


def test_predicted_and_measured_are_never_swapped_when_one_is_twice_the_other() -> None:
    problem = two_towers()
    (record,) = measure(SimulatedExecutor(problem), [candidate(problem, SPLIT, factor=2.0)])
    data = record.as_dict()
    assert data["predicted"]["seconds"] == 15.0
    assert data["measured"]["min"] == 7.5
    assert data["ratio"] == 0.5
    row = records_text([record], PLAIN)[2].split()
    assert row[:3] == ["split", "15.0", "7.5"]
    with pytest.raises(BadInput, match="each in its own place"):
        replace(record, predicted=record.measured, measured=record.predicted)  # type: ignore[arg-type]


def test_a_record_has_every_field_that_a_reader_needs() -> None:
    problem = two_towers()
    (record,) = measure(SimulatedExecutor(problem), [candidate(problem, SPLIT)])
    data = record.as_dict()
    fields = (
        "placement_hash, model_hash, devices, transport, charge, objective, predicted, measured, ratio, timing_mode, "
        "composed, contention, numerics, baselines, versions, emulated, not_independent, warnings"
    )
    assert set(fields.split(", ")) <= set(data)
    assert {"median", "min", "iqr", "n", "discarded"} <= set(data["measured"])
    assert {"max_abs", "rel", "tol", "sensitive", "pass"} == set(data["numerics"])
    assert {"single", "replicas", "threads"} <= set(data["baselines"])
    assert {"name", "cores", "dtype", "env", "isa_readback", "threads_readback"} <= set(data["devices"][0])
    assert [one["device"] for one in data["baselines"]["single"]] == ["d0", "d1"]


def test_wrong_results_get_no_speed_up() -> None:
    problem = two_towers()
    (record,) = measure(WrongResults(problem), [candidate(problem, SPLIT)])
    assert record.gain is None
    assert record.verdict == "WRONG RESULTS"
    assert "its time means nothing" in record.warnings[0]
    assert "x" not in records_text([record], PLAIN)[2].replace("split", "")
    with pytest.raises(BadInput, match="no speed-up"):
        replace(record, gain=Gain(1.5, 1.5, 1.5))


def test_lost_bursts_are_missing_samples_and_too_few_are_insufficient() -> None:
    problem = two_towers()
    one = candidate(problem, SPLIT)
    (lucky,) = measure(SimulatedExecutor(problem, lose_every=23), [one])  # 4 bursts per round: the last split is lost
    assert (lucky.measured.bursts, lucky.measured.lost) == (6, 1)  # it was run again in its round
    assert lucky.gain is not None
    (unlucky,) = measure(Unlucky(problem), [one])
    assert unlucky.measured.seconds is None
    assert unlucky.measured.lost == 7
    assert unlucky.gain is None
    assert unlucky.verdict == "insufficient"
    assert "0 of 7 bursts count, 5 are needed (lost on purpose)" in unlucky.warnings[0]
    assert unlucky.as_dict()["measured"]["min"] is None


def test_drift_cancels_out_of_gains_and_is_said() -> None:
    problem = two_towers()
    (record,) = measure(Slowing(problem), [candidate(problem, SPLIT)], single_predicted=one_device(problem))
    assert record.drift == pytest.approx(1.1**5 - 1)
    assert record.gain is not None
    assert record.gain.middle == pytest.approx(9.0 / 7.5)
    assert any("drifted by 61%" in said for said in record.warnings)


def test_a_gain_below_the_noise_is_called_that() -> None:
    assert Gain(0.97, 1.02, 1.05).word == "in noise"
    assert Gain(1.31, 1.34, 1.36).word == "1.34x"
    assert Gain(0.80, 0.82, 0.83).word == "0.82x"
    assert Gain(1.05, 1.10, 1.12, noise=1.15).word == "in noise"


@pytest.mark.parametrize("seed", range(20))
def test_the_same_placement_is_never_faster_than_itself(seed: int) -> None:
    """Noise of 20 %, no difference: of twenty measurements none may print a speed-up."""
    problem = two_towers()
    executor = SimulatedExecutor(problem, noise=0.2, seed=seed)
    (record,) = measure(executor, [candidate(problem, [0] * 5, "again")], bursts=7)
    assert record.gain is not None
    assert record.gain.within_noise


def test_more_than_the_ideal_is_no_reason_to_celebrate() -> None:
    problem = two_towers()
    pessimist = [replace(one, seconds=7.6) for one in one_device(problem)]
    (record,) = measure(SimulatedExecutor(problem), [candidate(problem, SPLIT)], single_predicted=pessimist)
    assert any("1.20x is more than the 1.01x that were predicted" in said for said in record.warnings)


def test_replicas_and_threads_stand_beside() -> None:
    problem = two_towers()

    def open_on(workers: tuple[Worker, ...]) -> SimulatedExecutor:
        assert len(workers) == 1
        return OneWorker(problem)  # with two cores as slow as with one

    (record,) = measure(SimulatedExecutor(problem), [candidate(problem, SPLIT)], open_on=open_on)
    replicas, threads = record.alternatives.replicas, record.alternatives.threads
    assert replicas is not None
    assert replicas.seconds is not None
    assert replicas.seconds.minimum_seconds == 4.5  # two results in 9 s
    assert threads is not None
    assert threads.seconds is not None
    assert threads.seconds.median_seconds == 9.0
    text = "\n".join(records_text([record], PLAIN))
    assert "all as replicas" in text
    assert "one process, all cores" in text
    assert max(map(len, text.splitlines())) <= 80


def test_alternatives_that_fail_do_not_end_a_measurement() -> None:
    class Dying(SimulatedExecutor):
        def burst(self, placement: Placement, *, runs: int) -> Burst:
            raise RunFailed("killed")

    problem = two_towers()
    (record,) = measure(SimulatedExecutor(problem), [candidate(problem, SPLIT)], open_on=lambda workers: Dying(problem))
    assert record.alternatives.threads is not None
    assert record.alternatives.threads.lost == 7
    assert record.alternatives.threads.reasons == ("killed",)
    assert record.gain is not None


def test_without_a_way_to_start_others_the_reason_is_kept() -> None:
    problem = two_towers()
    (record,) = measure(SimulatedExecutor(problem), [candidate(problem, SPLIT)])
    assert record.as_dict()["baselines"]["left_out"]["replicas"] == "nobody asked for other processes"


def test_pipelines_are_measured_between_results() -> None:
    problem = two_towers()
    one = replace(candidate(problem, SPLIT), objective="throughput")
    (record,) = measure(SimulatedExecutor(problem), [one])
    assert record.measured.seconds is not None
    assert record.as_dict()["objective"] == "throughput"


def test_bursts_stay_below_the_limit_of_real_time_scheduling() -> None:
    assert [runs_per_burst(seconds) for seconds in (0.001, 0.141, 0.25, 0.5, 3.0)] == [5, 5, 2, 1, 1]


def test_the_weakest_timing_mode_of_all_bursts_is_told() -> None:
    bursts = [Burst((1.0,), "fifo"), Burst((1.0,), "quiet"), Burst((), "cputime", lost="killed")]
    assert Measured.of(bursts).timing_mode == "quiet"


def test_the_producer_pays_for_one_copy_of_what_is_read_elsewhere() -> None:
    problem = diamond()  # a on 0, b and c on 1: a's tensor crosses once, b's and c's come back
    placement = Placement(problem, [0, 1, 1, 0])
    graph, routes = problem.graph, problem.cluster.routes()
    copies = copy_seconds(problem, placement)
    first = routes.latency_seconds[0, 1] + graph.tensor_bytes[0] / routes.bytes_per_second[0, 1]
    assert copies[0] == first
    assert copies[3] == 0.0
    believed = predict(problem, placement)
    every = problem.costs.seconds[np.arange(4), placement.devices].sum() + copies.sum()
    assert believed.seconds == pytest.approx(every)  # a chain of devices: nothing overlaps
    assert believed.charge == "per_tensor"


def test_a_problem_whose_senders_carry_is_predicted_as_it_is_planned() -> None:
    plain = diamond()
    links = tuple(replace(link, carried_by="sender") for link in plain.cluster.links)
    cluster = replace(plain.cluster, links=links)
    carried = Problem(plain.graph, cluster, Costs(plain.graph, cluster, plain.costs.seconds))
    for devices in ([0, 1, 1, 0], [0, 0, 1, 0], [0, 1, 0, 1]):
        placement = Placement(carried, devices)
        assert predict(carried, placement).seconds == simulate(carried, placement).objective_seconds
        assert predict(plain, Placement(plain, devices)).seconds == predict(carried, placement).seconds
    # a (1 s) is copied (2.5 s) before b (2 s) runs beside it, c (3 s) runs elsewhere and is copied, then d (1 s)
    assert predict(carried, Placement(carried, [0, 0, 1, 0])).seconds == 1 + 2.5 + 3 + 2.5 + 1


def test_an_updated_weight_is_copied_by_its_update_and_once_by_the_device_that_reads_it() -> None:
    build = GraphBuilder()
    reads = [build.operator(f"read {i}") for i in range(2)]
    update = build.operator("update", phase="update", after=reads)
    build.weight("w", size_bytes=8, users=[*reads, update])
    graph = build.build()  # and two operators that receive w for the next step
    cluster = Cluster((Device("a"), Device("b")), link_all(["a", "b"], bytes_per_second=4, latency_seconds=0.5))
    problem = Problem(graph, cluster, Costs(graph, cluster, np.ones((len(graph), 2))))
    placement = Placement(problem, [0 if v == update else 1 for v in range(len(graph))])
    copies = copy_seconds(problem, placement)
    assert copies[update] == 0.5 + 8 / 4
    assert sorted(copies[graph.kinds.index(REFRESH) :].tolist()) == [0.0, 8 / 4]


def test_predictions_say_where_their_costs_come_from() -> None:
    problem = two_towers()
    sources = np.full(problem.costs.seconds.shape, Source.MEASURED)
    costs = Costs(problem.graph, problem.cluster, problem.costs.seconds, sources=sources)
    measured = Problem(problem.graph, problem.cluster, costs, objective=problem.objective)
    assert predict(measured, Placement(measured, SPLIT)).costs == "measured"


def test_records_of_equal_placements_have_equal_hashes() -> None:
    problem = two_towers()
    first, second = measure(
        SimulatedExecutor(problem), [candidate(problem, SPLIT), candidate(problem, SPLIT, "again")]
    )
    assert isinstance(first, Record)
    assert first.as_dict()["placement_hash"] == second.as_dict()["placement_hash"]


def test_the_plain_clock_on_a_busy_machine_is_called_disturbed() -> None:
    calm, busy = Contention(1.0, 0, 2), Contention(9.0, 3, 400)
    assert by_plain_clock(Burst((0.1,), "quiet", calm)).timing_mode == "quiet"
    assert by_plain_clock(Burst((0.1,), "quiet", busy)).timing_mode == "disturbed"
    assert by_plain_clock(Burst((0.1,), "fifo", busy)).timing_mode == "fifo"


class Disturbed(SimulatedExecutor):
    """Has nothing but the plain clock, and others at work."""

    def burst(self, placement: Placement, *, runs: int) -> Burst:
        return replace(super().burst(placement, runs=runs), timing_mode="disturbed")


def test_no_gain_is_told_from_disturbed_times() -> None:
    problem = two_towers()
    (record,) = measure(Disturbed(problem), [candidate(problem, SPLIT)], single_predicted=one_device(problem))
    assert record.gain is None
    assert record.measured.seconds is not None
    assert "split: timed by the plain clock while others were at work: no gain is told from it" in record.warnings
