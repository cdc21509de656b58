"""Benchmarks: what is run, what is kept, and what the numbers say together."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from stead.bench import Bench, Instance, Suite, jobs_of, run_jobs, suite_named
from stead.bench.child import BOUND
from stead.bench.gap_picture import picture
from stead.bench.instances import SUITES, published_inputs
from stead.bench.runner import Job, Journal, _record
from stead.bench.tables import BEGIN, END, markdown, write_markdown
from stead.cli.main import exit_code
from stead.errors import BadInput

TINY = Suite(
    "tiny",
    (Instance("zoo:lstm-grid?operators=30", "3090,3060", "latency"),),
    ("single", "balanced"),
    1,
    (1.0,),
)
RUN_KEYS = {
    "kind", "model", "devices", "objective", "instance", "solver", "seed", "seconds", "evaluations_limit", "status",
    "operators", "tensors", "device_count", "fingerprint", "load_cpu_seconds", "cpu_seconds", "wall_seconds",
    "memory_bytes", "bound_seconds", "bound_name", "scope",
}  # fmt: skip
SOLVED_KEYS = RUN_KEYS | {"value_seconds", "gap", "evaluations", "found_by", "trail", "notes"}


def run(
    solver: str, value: float | None = None, *, instance: str = "i", seed: int = 0, **more: Any
) -> dict[str, Any]:
    """A record as a run would have left it."""
    record = {
        "kind": "run", "instance": instance, "objective": "latency", "solver": solver, "seed": seed, "seconds": 1.0,
        "evaluations_limit": None, "status": "ok", "cpu_seconds": 0.5, "operators": 10, "device_count": 2,
    }  # fmt: skip
    if value is not None:
        record |= {"value_seconds": value, "trail": [[0.1, 1, 2 * value, 0.0], [0.4, 9, value, 0.0]]}
    return {**record, **more}


def bound(seconds: float, instance: str = "i") -> dict[str, Any]:
    return run(BOUND, instance=instance, seconds=None, bound_seconds=seconds, bound_name="area", scope="")


def test_an_interrupted_benchmark_goes_on_where_it_stopped(tmp_path: Path) -> None:
    file, jobs = tmp_path / "out.json", jobs_of(TINY)
    first = run_jobs(jobs, Journal(file, resume=False))
    kept = [next(first), next(first)]
    with file.open("a") as out:
        out.write('{"kind": "run", "instance": "cut o')  # the disk was full, or the power went
    again: list[str] = []
    records = list(
        run_jobs(jobs, Journal(file, resume=True), watch=lambda _, job, __: again.append(job.solver))
    )
    assert again == ["balanced"]
    assert records[:2] == kept
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["kind"] for line in lines] == ["bench", "run", "run", "run"]
    assert [line["solver"] for line in lines[1:]] == [BOUND, "single", "balanced"]
    assert set(lines[1]) == RUN_KEYS
    assert set(lines[2]) == SOLVED_KEYS


def test_runs_that_fail_are_results_too() -> None:
    suite = Suite("bad", (Instance("zoo:lstm-grid?operators=0", "3090", "latency"),), ("single",), 1, (1.0,))
    records = list(run_jobs(jobs_of(suite), Journal(None, resume=False)))
    assert [record["status"] for record in records] == ["error", "error"]
    assert "at least 1 operator, got 0" in records[1]["reason"]


def test_a_solver_that_cannot_take_a_problem_says_why() -> None:
    suite = Suite("one", (Instance("zoo:resnet-50", "3090,3060", "latency"),), ("exhaustive",), 1, (1.0,))
    (job,) = [job for job in jobs_of(suite) if job.solver != BOUND]
    (record,) = run_jobs([job], Journal(None, resume=False))
    assert record["status"] == "unsupported"
    assert record["reason"]


def test_a_run_without_room_is_killed_and_noted() -> None:
    job = jobs_of(TINY)[1]
    (record,) = run_jobs([job], Journal(None, resume=False), memory_bytes=200 * 2**20)
    assert record["status"] in ("killed", "error", "ok")  # by how much a process needs on this system
    assert record["solver"] == "single"


@pytest.mark.parametrize(
    ("code", "status", "reason"),
    [
        (-9, "killed", "ended by SIGKILL"),
        (-24, "killed", "went far beyond its CPU time"),
        (-11, "killed", "ended by SIGSEGV: bad luck"),
        (3, "error", "exit code 3: bad luck"),
    ],
)
def test_processes_that_say_nothing_leave_a_reason(code: int, status: str, reason: str) -> None:
    found = _record(code, "", "first\nbad luck\n" if code in (-11, 3) else "")
    assert found == {"status": status, "reason": reason}


def test_jobs_are_the_bound_and_solvers_times_budgets_times_seeds() -> None:
    jobs = jobs_of(TINY, solvers=["single:3090", "random"], seeds=2, budgets=[1, 10])
    assert [job.solver for job in jobs] == [BOUND] + 2 * (2 * ["single:3090"] + 2 * ["random"])
    assert [job.seconds for job in jobs] == [None] + 4 * [1] + 4 * [10]
    assert len({job.key for job in jobs}) == 9


def test_a_solver_can_be_compared_with_other_options_of_itself() -> None:
    names = ["auto", "auto vain_rounds=0 patience=1"]
    jobs = jobs_of(TINY, solvers=names, evaluations=3000)[1:]
    records = list(run_jobs(jobs, Journal(None, resume=False)))
    assert [record["solver"] for record in records] == names
    assert records[1]["evaluations"] <= records[0]["evaluations"]


def test_evaluations_alone_leave_the_clock_out() -> None:
    assert jobs_of(TINY, evaluations=50)[1].seconds is None
    assert jobs_of(TINY, evaluations=50, budgets=[2])[1].seconds == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--suite", "smok"], "no suite 'smok'; did you mean 'smoke'?; there are smoke, small, peers, full"),
        (["--solvers", "clim"], "no solver 'clim'; did you mean 'climb'?"),
        (["--solvers", "auto pol=20"], "solver 'auto' has no option 'pol'; did you mean 'pool'?"),
        (["--solvers", "auto pool"], "a solver is its name and OPTION=VALUE, got 'auto pool'"),
        (["--objectives", "latencies"], "no objective 'latencies'; did you mean 'latency'?"),
        (["--only", "alexnet"], "no instance of suite 'smoke' matches 'alexnet'"),
        (["--budgets", "soon"], "--budgets needs seconds separated by commas, got 'soon'"),
        (["--budgets", "0"], "budgets are seconds above 0"),
        (["--seeds", "0"], "--seeds needs at least 1"),
        (["--cores", "0"], "--cores needs at least 1"),
        (["--json", "a", "--resume", "b"], "--resume goes on in its own file"),
    ],
)
def test_names_and_numbers_are_checked_before_anything_runs(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(["bench", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_file_of_results_is_never_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    file.write_text("{}\n")
    with pytest.raises(BadInput, match="--resume"):
        Journal(file, resume=False)
    with pytest.raises(BadInput, match="not a line of a benchmark"):
        Journal(file, resume=True)


def test_instances_can_be_listed_and_picked(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["bench", "--list", "--objectives", "offload,sequential"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "offload inception-v3 @ 2x 3090 + cpu",
        "sequential bert-base @ 3090,3060",
    ]


@pytest.mark.parametrize("name", SUITES)
def test_every_instance_of_a_suite_has_a_name_of_its_own(name: str) -> None:
    names = [one.name for one in suite_named(name).instances]
    assert len(set(names)) == len(names)


def test_published_inputs_come_with_their_objectives(tmp_path: Path) -> None:
    for kind in ("latency-inputs", "throughput-inputs"):
        (tmp_path / kind / "LayerGraphs").mkdir(parents=True)
        (tmp_path / kind / "LayerGraphs" / "bert.json").write_text("{}")
    assert [one.name for one in published_inputs(tmp_path)] == [
        "offload LayerGraphs/bert",
        "throughput LayerGraphs/bert",
    ]
    with pytest.raises(BadInput, match="has no latency-inputs"):
        published_inputs(tmp_path / "latency-inputs")


def test_the_best_run_of_all_is_what_medians_are_compared_with() -> None:
    records = [bound(4.0), *(run("a", value, seed=seed) for seed, value in enumerate((8.0, 10.0, 12.0)))]
    records += [run("b", 20.0, seed=seed) for seed in range(3)]
    bench = Bench(records)
    first, second = bench.standings()
    assert (first.solver, first.wins, first.mean_ratio) == ("a", 1, pytest.approx(10 / 8))
    assert (second.solver, second.wins, second.mean_ratio) == ("b", 0, pytest.approx(20 / 8))
    assert bench.gap("i", 8.0) == 0.5


def test_means_over_instances_are_geometric() -> None:
    records = [run("a", 1.0), run("a", 4.0, instance="j"), run("b", 4.0), run("b", 1.0, instance="j")]
    assert [one.mean_ratio for one in Bench(records).standings()] == [pytest.approx(2.0)] * 2


def test_a_bound_over_some_placements_is_no_bound() -> None:
    records = [bound(4.0), run("a", 8.0, bound_seconds=7.0, bound_name="dp", scope="contiguous stages")]
    assert Bench(records).bounds == {"i": (4.0, "area")}


def test_tables_show_ratios_and_reasons() -> None:
    records = [
        bound(4.0), run("a", 8.0), run("b", 10.0), run("c", status="unsupported", reason="too large"),
        run("d", status="killed", reason="ended by SIGKILL"),
    ]  # fmt: skip
    text = markdown(Bench(records), "title")
    assert "| i | 10 | 4.00 s (area) | 8.00 s | 50.0 % | **1.000** | 1.250 | · | killed |" in text
    assert "- d: ended by SIGKILL (1 runs, first i)" in text
    assert "| c | 1 s | 0 of 0 | 0 | - | - | 0.00 s |" in text


def test_tables_go_between_the_marks_of_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"above\n{BEGIN}\nold\n{END}\nbelow\n")
    write_markdown(page, "new\n")
    assert page.read_text() == f"above\n{BEGIN}\nnew\n{END}\nbelow\n"
    write_markdown(tmp_path / "other.md", "new\n")
    assert (tmp_path / "other.md").read_text() == "new\n"


def test_the_picture_has_a_line_per_solver_with_a_value() -> None:
    records = [bound(4.0), run("a", 8.0), run("b<", 10.0), run("c", status="unsupported", reason="")]
    tree = ElementTree.fromstring(picture(Bench(records)))
    assert len(tree.findall("{*}polyline")) == 2
    assert "b<" in [text.text for text in tree.findall("{*}text")]


def test_a_picture_of_nothing_says_so() -> None:
    assert "no run has a value" in picture(Bench([]))


def test_the_summary_has_the_keys_that_scripts_rely_on() -> None:
    document = Bench([bound(4.0), run("a", 8.0)]).document()
    assert set(document) == {"runs", "instances", "standings"}
    assert document["instances"][0]["gap"] == 0.5
    assert document["standings"][0]["mean_ratio"] == 1.0


def test_the_command_writes_everything_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(SUITES, "smoke", TINY)
    options = {"--json": "out.json", "--markdown": "out.md", "--picture": "gap.svg", "--events": "events.jsonl"}
    files = [tmp_path / name for name in options.values()]
    arguments = [part for option, name in options.items() for part in (option, str(tmp_path / name))]
    assert exit_code(["bench", "--solvers", "single", *arguments]) == 0
    said = capsys.readouterr()
    assert "`stead bench --suite smoke --solvers single`" in files[1].read_text()
    assert re.search(r"^ solver +budget +solved +wins ", said.out, re.MULTILINE)
    assert "|" not in said.out
    assert "[2/2] latency lstm-grid" in said.err
    assert files[2].read_text().startswith("<svg")
    last = json.loads(files[0].read_text().splitlines()[-1])
    assert (last["kind"], last["standings"][0]["solver"]) == ("summary", "single")
    told = [json.loads(line)["kind"] for line in files[3].read_text().splitlines()]
    assert [kind for kind in told if kind != "heartbeat"] == ["begin", "run", "run", "end"]


def test_an_interrupt_keeps_what_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from stead.bench import runner

    def interrupted(job: Job, cores: int, memory_bytes: int) -> dict[str, Any]:
        if job.solver == "balanced":
            raise KeyboardInterrupt
        return {"status": "ok", "operators": 1}

    monkeypatch.setitem(SUITES, "smoke", TINY)
    monkeypatch.setattr(runner, "_run", interrupted)
    file = tmp_path / "out.json"
    assert exit_code(["bench", "--json", str(file)]) == 130
    assert f"interrupted after 2 of 3 runs; go on with --resume {file}" in capsys.readouterr().err
    assert len(file.read_text().splitlines()) == 3
