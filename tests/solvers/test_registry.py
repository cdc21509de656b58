"""The table of solvers says what is so: kinds, objectives, summaries and options are those of the classes.

`STEAD_REWRITE=1 pytest tests/solvers/test_registry.py` writes what follows from the classes into the table anew; a new
solver needs its name, kind and place there before.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from functools import cache
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace

import pytest

from stead import Budget, Costs, Latency, Plan, Problem, Throughput
from stead.bench.runner import Job, Journal
from stead.errors import BadInput, MissingExtra, Renamed
from stead.problem import Objective
from stead.solvers import registry, solver, solver_class, solver_names
from stead.solvers.registry import OBJECTIVES, REGISTRY, Entry, current_name, entries, entry
from stead.testing import chain3

GOALS: dict[str, Objective] = dict(
    zip(
        OBJECTIVES,
        (
            Latency(),
            Latency(execution="offload"),
            Latency(execution="sequential"),
            Throughput(),
            Throughput(microbatches=2),
        ),
        strict=True,
    )
)
ROOMS = {"rules": "rule", "build": "build", "search": "search", "large": "search", "exact": "exact", "learn": "learned"}
# Of another kind than the rest of their room.
ELSEWHERE = {"auto", "linear-dp", "offload-linear", "greedy-offload", "max-load-split"}
OLD_NAMES = (
    "round_robin", "greedy_support", "largest_n", "fit_memory", "hf_auto", "hf_sequential", "hf_balanced_low_0",
)  # fmt: skip
DATA = Path(__file__).parent.parent / "data"


@cache
def hosted(objective: Objective) -> Problem:
    """a -> b -> c where the second device is a CPU."""
    problem = chain3()
    first, second = problem.cluster.devices
    cluster = replace(problem.cluster, devices=(first, replace(second, kind="cpu")))
    return Problem(problem.graph, cluster, Costs(problem.graph, cluster, problem.costs.seconds), objective=objective)


def true_entry(known: Entry) -> Entry:
    """What the class says in place of what the table says."""
    kind = solver_class(known.name)
    taken = [name for name, goal in GOALS.items() if solver(known.name).unsupported(hosted(goal)) is None]
    options = {one.name: one.default for one in fields(kind) if one.init and not is_dataclass(one.default)}
    return replace(
        known, objectives=tuple(taken), does=kind.__doc__.strip().partition("\n")[0], options=options
    )


def test_the_table_says_what_the_classes_say() -> None:
    pytest.importorskip("torch")
    true = {name: true_entry(known) for name, known in REGISTRY.items()}
    if os.environ.get("STEAD_REWRITE"):
        rows = ",\n".join(f" {json.dumps(asdict(one))}" for one in true.values())
        Path(registry.__file__).with_suffix(".json").write_text(f"[\n{rows}\n]\n")
    else:
        assert {name: one for name, one in true.items() if one != REGISTRY[name]} == {}


def test_a_solver_calls_itself_what_the_table_calls_it() -> None:
    pytest.importorskip("torch")
    assert [name for name in REGISTRY if solver(name).name.partition(":")[0] != name] == []


def test_kinds_are_rooms_but_for_what_proves_nothing() -> None:
    inside = {name: one.at.removeprefix("stead.").removeprefix("solvers.") for name, one in REGISTRY.items()}
    rooms = {name: path.split(".")[0] for name, path in inside.items()}
    assert {name for name, room in rooms.items() if ROOMS.get(room) != REGISTRY[name].kind} == ELSEWHERE


@pytest.mark.parametrize("name", solver_names("exact"))
def test_what_is_called_exact_proves_its_answer_for_a_tiny_problem(name: str) -> None:
    goal = GOALS[REGISTRY[name].objectives[0]]
    assert solver(name).solve(hosted(goal), Budget()).gap == 0


def test_every_name_has_one_spelling() -> None:
    assert [name for name in REGISTRY if "_" in name or name != name.lower()] == []


@pytest.mark.parametrize("old", OLD_NAMES)
def test_an_old_name_works_and_says_how_it_is_spelled_now(old: str) -> None:
    new = old.replace("_", "-")
    with pytest.warns(Renamed, match=f"^solver '{old}' is now called '{new}'$"):
        assert solver(old) == solver(new)
    assert entry(new).name == new
    assert current_name(f"{old}:1") == f"{new}:1"


def test_an_old_name_works_among_the_options_of_others() -> None:
    with pytest.warns(Renamed, match="round-robin"):
        found = solver("auto", start="round_robin").solve(chain3(), Budget(evaluations=50))
    assert found.objective_seconds == 4.0
    found = solver("search", starts="round_robin").solve(chain3(), Budget(evaluations=50))
    assert found.objective_seconds == 4.0


def test_a_plan_with_old_names_is_read_with_the_new_ones() -> None:
    assert "hf_auto" in (DATA / "plan-v1.json").read_text()
    assert "hf-auto" in [rule.name for rule in Plan.load(DATA / "plan-v1.json").baselines]


def test_a_benchmark_with_old_names_goes_on_with_the_new_ones(tmp_path: Path) -> None:
    path = tmp_path / "bench.jsonl"
    record = {"instance": "m on d", "solver": "hf_auto", "seed": 0, "seconds": 1.0, "evaluations_limit": None}
    path.write_text(json.dumps({"kind": "run", **record}) + "\n")
    [found] = Journal(path, resume=True).records
    assert Job.key_of(found) == Job("m", "d", "latency", "m on d", "hf-auto", 0, 1.0, None).key


def test_a_similar_name_is_offered_in_its_new_spelling() -> None:
    with pytest.raises(BadInput, match="no solver 'hf-aut'; did you mean 'hf-auto'"):
        solver("hf-aut")


@dataclass(frozen=True)
class Coin:
    """Heads or tails.

    Whatever comes first.
    """

    sides: int = 2


@pytest.fixture
def plugged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A plug-in `my_coin` of a package `coins`; the names that have been loaded."""
    loaded: list[str] = []

    class Point(EntryPoint):
        dist = SimpleNamespace(name="coins")  # type: ignore[assignment]

        def load(self) -> type[Coin]:
            loaded.append(self.name)
            return Coin

    monkeypatch.setattr(registry, "_plugged_in", lambda: [Point("my_coin", "coins:Coin", "stead.solvers")])
    return loaded


def test_a_plug_in_is_listed_by_name_and_loaded_when_asked_for(plugged: list[str]) -> None:
    assert solver_names()[-1] == "my_coin"
    assert entries()[-1].does == "a plug-in of coins"
    assert plugged == []
    assert (entry("my_coin").does, entry("my_coin").options) == ("Heads or tails.", {"sides": 2})
    assert solver("my_coin:3") == Coin(3)
    assert "my_coin" in plugged


def test_a_learned_solver_without_torch_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr(registry, "import_module", absent)
    with pytest.raises(MissingExtra, match="solver 'hdp' needs torch"):
        solver("hdp")
