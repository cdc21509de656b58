"""Pictures of jobs that still run, and logs of runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from serve_asgi import ask
from serve_place import Place

from stead.cluster import cluster_from
from stead.placing.event_log import EventLog
from stead.placing.loading import load
from stead.plan.rows import SMALL, as_row
from stead.problem import Latency, Placement, Problem
from stead.readers.native.npz import graph_as_npz
from stead.report.columns import View
from stead.sim import simulate
from stead.workloads import demo_graph

DEVICES = "3090,3060"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.store.close()


@pytest.fixture
def problem() -> Problem:
    return load(demo_graph(), DEVICES).problem(Latency())


def running(place: Place, problem: Problem) -> tuple[str, EventLog]:
    """A job that has begun, and the file that it tells its events in."""
    (place.store.home / "models" / "m").mkdir()
    (place.store.home / "models" / "m" / "graph.npz").write_bytes(graph_as_npz(problem.graph))
    job = place.store.add_job("place", {"model": "x", "devices": DEVICES, "model_id": "m"})
    log = EventLog(place.store.home / "jobs" / job / "events.jsonl")
    log.__enter__()
    log.begin("place", devices=problem.cluster.names, graph=problem.graph.fingerprint)
    log.write("goal", objective="latency", detail="latency", unit="step")
    return job, log


def tell(log: EventLog, problem: Problem, devices: list[int], *, wrong: float = 1.0) -> float:
    """Say that a placement was found; what it takes."""
    seconds = simulate(problem, Placement(problem, devices)).objective_seconds
    row = as_row(Placement(problem, devices).devices, SMALL, packed=True)
    log.write("incumbent", objective=seconds * wrong, placement=row, order=None, replicas=[])
    return seconds


def shown(place: Place, job: str, base: str = "", have: int = -1) -> View | None:
    answer = ask(place.app, "GET", f"/api/jobs/{job}/picture?base={base}&have={have}")
    assert answer.status in (200, 204)
    return View.from_bytes(answer.body) if answer.status == 200 else None


def test_the_best_placement_so_far_is_shown_whole_and_then_by_what_changes(place: Place, problem: Problem) -> None:
    job, log = running(place, problem)
    assert shown(place, job) is None
    count = len(problem.graph)
    first = tell(log, problem, [0] * count)
    whole = shown(place, job)
    assert whole is not None
    assert (whole.header["value"], whole.header["picture"]) == (first, {"base": "1.1", "count": 1})
    assert "names" in whole.columns
    assert shown(place, job, "1.1", 1) is None
    second = tell(log, problem, [0] * (count // 2) + [1] * (count - count // 2))
    patch = shown(place, job, "1.1", 1)
    assert patch is not None
    assert (patch.header["value"], patch.header["picture"]["count"], patch.header["patch"]) == (second, 2, True)
    assert "names" not in patch.columns
    late = shown(place, job)  # a page that comes later needs the first one, and then at once the last
    assert late is not None
    assert (late.header["value"], late.header["picture"]["count"]) == (first, -1)
    log.__exit__(None, None, None)


def test_a_placement_whose_value_is_not_what_is_simulated_here_is_not_shown(place: Place, problem: Problem) -> None:
    job, log = running(place, problem)
    tell(log, problem, [0] * len(problem.graph), wrong=1.01)
    assert shown(place, job) is None
    log.write("incumbent", objective=1.0, placement="nonsense")
    assert shown(place, job) is None
    log.__exit__(None, None, None)


def test_runs_below_the_root_are_found_and_read_from_where_one_was(place: Place) -> None:
    row = {"elapsed_seconds": 0.5, "update": 1, "best": 1.2, "mean": 1.4, "greedy": None, "entropy": 0.6}
    log = place.root / "deep" / "policy.jsonl"
    log.parent.mkdir()
    log.write_text(json.dumps({**row, "lines": {"bound": 0.9, "heft": 1.0}}) + "\n")
    (place.root / "other.jsonl").write_text('{"text": "no run"}\n')
    (place.root / "broken.jsonl").write_text("{")
    bench = {"kind": "run", "instance": "demo", "solver": "auto", "seed": 0, "status": "ok", "value_seconds": 0.5}
    (place.root / "bench.jsonl").write_text(json.dumps(bench) + "\n")
    runs = ask(place.app, "GET", "/api/runs").json["runs"]
    kinds = {one["id"]: one["kind"] for one in runs}
    assert kinds == {"file:deep/policy.jsonl": "train", "file:bench.jsonl": "bench"}
    found = ask(place.app, "GET", "/api/run?id=file:deep/policy.jsonl").json
    assert found["lines"] == {"bound": 0.9, "heft": 1.0}
    assert (found["rows"][0]["best"], found["rows"][0]["greedy"]) == (1.2, None)
    with log.open("a") as file:
        file.write(json.dumps({**row, "update": 2, "best": 1.1}) + '\n{"update": 3')
    more = ask(place.app, "GET", f"/api/run?id=file:deep/policy.jsonl&after={found['tail']}").json
    assert [one["update"] for one in more["rows"]] == [2]
    assert ask(place.app, "GET", "/api/run?id=file:bench.jsonl").json["results"][0]["value_seconds"] == 0.5


def test_only_logs_of_runs_below_the_root_are_read(place: Place) -> None:
    (place.folder / "secret.jsonl").write_text('{"update": 1, "elapsed_seconds": 1}\n')
    (place.root / "link.jsonl").symlink_to(place.folder / "secret.jsonl")
    (place.root / "note.jsonl").write_text('{"text": "mine"}\n')
    for name in ("file:../secret.jsonl", "file:link.jsonl"):
        assert ask(place.app, "GET", f"/api/run?id={name}").status == 400
    assert ask(place.app, "GET", "/api/run?id=file:note.jsonl").status == 404


def test_a_learner_of_files_elsewhere_is_refused(place: Place) -> None:
    asked = {"verb": "train", "policy": "colocrl", "updates": 1, "devices": DEVICES, "graphs": ["../../etc/passwd"]}
    assert ask(place.app, "POST", "/api/jobs", asked).status == 400
    paths = {"verb": "what-if", "plan_file": "/etc/passwd", "set": ["links.bandwidth=2x"]}
    assert ask(place.app, "POST", "/api/jobs", paths).status == 400


def test_a_cluster_is_told_with_its_links(place: Place) -> None:
    told = ask(place.app, "POST", "/api/clusters/check", {"devices": DEVICES}).json["links"]
    links = cluster_from(DEVICES)[0].links
    assert [one["bytes_per_second"] for one in told] == [one.bytes_per_second for one in links]
