"""Judge the walk on families it has never seen; what it was trained by is `stead train walk`.

    python experiments/walk/run.py judge     the policy of the package beside its controls
    python experiments/walk/run.py large     as a start of search, on graphs of 5,000 operators and more
    python experiments/walk/run.py data      rules trained on 20, 200, 1,000 and 5,000 problems, as many walks each
    python experiments/walk/run.py validate FILE ...    policies side by side on unseen made-up problems
    python experiments/walk/run.py auto      `auto` that begins with the walk beside `auto`, large graphs
    python experiments/walk/run.py tables    results/README.md from what there is

Every part keeps what it has in results/*.json, problem by problem; run it again to go on. CPU seconds, one thread.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterable
from itertools import chain, product
from pathlib import Path
from typing import Any

import numpy as np
from suite import LARGE, Case, own_cases, zoo_cases

from stead import clock
from stead.errors import Infeasible
from stead.learn.walk.evolution import Evolution, MadeProblems, Strategy
from stead.learn.walk.made_problems import Scope, made_problem
from stead.learn.walk.method import ANSWER_WALKS, PRETRAINED, ZERO, Walk
from stead.learn.walk.walk_plans import WALKS
from stead.learn.walk.walk_rounds import Progress
from stead.learn.walk.walk_rules import Grounds, Rules
from stead.learn.walk.walk_steps import Step
from stead.learn.walk.walk_training import LARGE_PLAN_SCOPE, PLAN_SCOPE
from stead.problem import Problem
from stead.sim.bounds import best_bound
from stead.solvers import Budget, Solution
from stead.solvers.auto import Auto
from stead.solvers.build.list_scheduling import Heft
from stead.solvers.search.search import ScheduleSearch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from pages import fill  # noqa: E402

RESULTS = HERE / "results"
LAB_BOOK = "experiments/walk/README.md"
PAGES = (LAB_BOOK, "docs/learned/walk.md")
OPERATORS_PER_SECOND = 15e6  # that search decodes on one thread, about
AMOUNTS = (20, 200, 1000, 5000)
CURVE = Evolution(generations=300, pairs=12, batch=20)  # of the curve over the amount of data: 6,000 times a problem
VALIDATED = range(11_000_000, 11_000_250)  # seeds that neither rules nor plans were chosen on
VALIDATED_LARGE = range(11_500_000, 11_500_025)
AUTO = ("gnmt-8", "rnnlm-8", "nasnet-large", "amoebanet", "t5-large")
AUTO_SECONDS = (1.0, 5.0)  # of the processor
AUTO_SEEDS = range(2)
CPU_SECONDS = (1.0,)  # of a search with its starts
MORE = ANSWER_WALKS
RANDOM = (1, 2)  # seeds of the control with random weights


class Cells:
    """Results by name, kept in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.exists() else {}

    def get(self, key: str, compute: Callable[[], dict[str, Any]]) -> None:
        """Compute a row unless it is there."""
        if key in self.rows:
            return
        self.rows[key] = compute()
        half = self.path.with_suffix(".part")
        half.write_text(json.dumps(self.rows, indent=1, sort_keys=True) + "\n")
        half.replace(self.path)
        print(f"  {key}", flush=True)


def timed(call: Callable[[], Solution]) -> dict[str, Any]:
    """Seconds of a solution, CPU seconds, and simulations; null where nothing fits."""
    begin = time.process_time()
    try:
        found = call()
    except Infeasible:
        return {"seconds": None, "cpu": time.process_time() - begin, "evaluations": 0}
    spent = time.process_time() - begin
    return {
        "seconds": found.objective_seconds, "cpu": spent, "evaluations": found.evaluations,
        "found_by": found.found_by,
    }  # fmt: skip


def heft_walks(problem: Problem) -> int:
    """Schedules that the heft family builds, each simulated by the core."""
    rule = Heft()
    seconds = problem.costs.seconds
    alike = bool((seconds == seconds[:, :1]).all())
    variants = [one for one in rule.variants() if not alike or one.average == "mean"]
    return len(variants) * (1 + 2 * (len(Grounds(problem).unit_groups) - 1))


def random_rules(rules: Rules, seed: int) -> Rules:
    """The control: weights at random, as large as the learned ones, with the same plan."""
    draw = np.random.default_rng(seed)
    weights = np.stack([np.zeros_like(rules.weights[0]), *map(draw.permutation, rules.weights[1:])])
    return Rules(weights, rules.plans, rules.zero_plans)


def judged(case: Case, rules: Rules, folder: Path) -> dict[str, Any]:
    """One problem by everybody."""
    problem = case.problem
    _ = problem.native  # what all share is not timed
    row: dict[str, Any] = {"part": case.part, "family": case.family, "operators": len(problem.graph)}
    row["heft"] = timed(lambda: Heft().solve(problem, Budget()))
    row["heft"]["evaluations"] += heft_walks(problem)
    row["walk"] = timed(lambda: Walk(walks=WALKS, threads=1).solve(problem, Budget()))
    row["walk, 1"] = timed(lambda: Walk(walks=1, threads=1).solve(problem, Budget()))
    row["walk, anew"] = timed(lambda: Walk(walks=WALKS // 2, threads=1).solve(problem, Budget()))
    row["zero"] = timed(lambda: Walk(policy="zero", walks=WALKS, threads=1).solve(problem, Budget()))
    for name, policy in (("walk", PRETRAINED), ("zero", ZERO)):
        for walks, with_heft in ((WALKS, True), (MORE, False), (MORE, True)):
            choice = Walk(policy=policy, walks=walks, with_heft=with_heft, threads=1)
            own = ", ".join([name, *["more"] * (walks == MORE), *["heft"] * with_heft])
            row[own] = timed(lambda choice=choice: choice.solve(problem, Budget()))
            row[own]["evaluations"] += heft_walks(problem) * with_heft
    for seed in RANDOM:
        path = folder / f"random-{seed}.safetensors"
        if not path.exists():
            random_rules(rules, seed).save(path)
        choice = Walk(policy=str(path), walks=WALKS, threads=1)
        row[f"random {seed}"] = timed(lambda choice=choice: choice.solve(problem, Budget()))
    effort = max(30, round(row["walk"]["cpu"] * OPERATORS_PER_SECOND / len(problem.graph)))
    row["search"] = timed(
        lambda: ScheduleSearch(starts="heft", effort=effort, threads=1, streams=1).solve(problem, Budget())
    )
    row["bound"] = best_bound(problem, seconds=0.1).seconds
    return row


def judge() -> None:
    """The table of held-out families."""
    import tempfile

    rules, cells = Walk().rules, Cells(RESULTS / "judge.json")
    with tempfile.TemporaryDirectory() as folder:
        for cases in (zoo_cases, own_cases):
            for case in cases():
                cells.get(case.key, lambda case=case: judged(case, rules, Path(folder)))


def large() -> None:
    """Walks as starts of search beside heft, the same CPU seconds for both."""
    cells = Cells(RESULTS / "large.json")
    for case in zoo_cases(LARGE, ("4 equal",)):
        cells.get(case.key, lambda case=case: started(case))


def started(case: Case) -> dict[str, Any]:
    """Search from heft, from walks, and from both, until about as many CPU seconds are spent as it says."""
    problem = case.problem
    _ = problem.native
    row: dict[str, Any] = {"operators": len(problem.graph)}
    row["heft"] = timed(lambda: Heft().solve(problem, Budget()))
    row["walk"] = timed(lambda: Walk(walks=WALKS, threads=1).solve(problem, Budget()))
    for cpu in CPU_SECONDS:
        for starts in ("heft", "walk", "heft,walk"):
            built = sum(row[one]["cpu"] for one in starts.split(","))
            effort = max(1, round((cpu - built) * OPERATORS_PER_SECOND / len(problem.graph)))
            choice = ScheduleSearch(starts=starts, effort=effort, threads=1, streams=1)
            row[f"{starts} {cpu:g}"] = timed(lambda choice=choice: choice.solve(problem, Budget()))
    return row


def auto() -> None:
    """`auto` that begins with the walk against `auto` as it is, as many CPU seconds for both."""
    cells = Cells(RESULTS / "auto.json")
    for case in chain(zoo_cases(AUTO, ("4 equal",)), zoo_cases(("gnmt-8",), ("4 equal",), "steps=80")):
        for seconds, seed in product(AUTO_SECONDS, AUTO_SEEDS):
            key = f"{case.key} | {seconds:g} s | {seed}"
            cells.get(key, lambda case=case, seconds=seconds, seed=seed: begun(case, seconds, seed))


def begun(case: Case, seconds: float, seed: int) -> dict[str, Any]:
    """Both on one problem; the clock that they ask is that of the processor, all threads together."""
    _ = case.problem.native
    row: dict[str, Any] = {"operators": len(case.problem.graph)}
    for start in ("", "walk"):
        chosen = Auto(start=start)
        with clock.read_from(time.process_time):
            row[start or "auto"] = timed(
                lambda chosen=chosen: chosen.solve(case.problem, Budget(seconds=seconds), seed)
            )
    return row


def auto_table(rows: dict[str, dict[str, Any]]) -> list[str]:
    """Ratios to `auto` as it is."""
    cells: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for key, row in sorted(rows.items()):
        graph, _, limit, _ = key.split(" | ")
        cells.setdefault((graph, limit), []).append(row)
    limits = [f"{limit:g} s" for limit in AUTO_SECONDS]
    lines = [f"| graph, 4 equal devices | operators | {' | '.join(limits)} | CPU s with / without |"]
    lines.append("|---|---:|" + "---:|" * len(limits) + "---|")
    for graph in dict.fromkeys(graph for graph, _ in cells):
        own = [cells.get((graph, limit), []) for limit in limits]
        spent = [
            " / ".join(f"{np.mean([row[one]['cpu'] for row in some]):.1f}" for one in ("walk", "auto")) for some in own
        ]
        shown = " | ".join(_with_and_without(some) for some in own)
        lines.append(f"| {graph} | {own[0][0]['operators']:,} | {shown} | {', '.join(spent)} |")
    together = [[row for key, some in cells.items() if key[1] == limit for row in some] for limit in limits]
    means = [_with_and_without(some) for some in together]
    return [*lines, f"| geometric mean (wins/losses) | | {' | '.join(means)} | |"]


def _with_and_without(rows: list[dict[str, Any]]) -> str:
    mean, wins, losses, _ = mean_ratio((row["walk"]["seconds"], row["auto"]["seconds"]) for row in rows)
    return f"{mean:.3f} ({wins}/{losses})"


def data() -> None:
    """One rule for every amount of problems, as many generations each; one walk against one walk of HEFT."""
    cells = Cells(RESULTS / "data.json")
    unseen = [Grounds(made_problem(10_500_000 + n, Scope(least=60, most=1600)).problem) for n in range(150)]
    for amount in AMOUNTS:
        for seed in (0, 1):
            cells.get(f"{amount} problems, seed {seed}", lambda amount=amount, seed=seed: learned(amount, seed, unseen))


def learned(amount: int, seed: int, unseen: list[Grounds]) -> dict[str, Any]:
    """Train one rule and let it walk over unseen problems, with every grouping."""
    begin = time.process_time()
    source = MadeProblems(amount, Scope(least=40, most=500), first=30_000_000 + 100_000 * seed)
    strategy = Strategy(CURVE, source, seed)
    while strategy.generation < CURVE.generations:
        strategy.advance()
    spent = time.process_time() - begin
    weights = np.stack([np.zeros_like(strategy.rule), strategy.rule])
    gains = []
    for grounds in unseen:
        best = [math.inf, math.inf]
        for grouping in range(len(grounds.unit_groups)):
            walks = grounds.walk(grouping, weights, [Step(rule).native() for rule in (0, 1)], threads=1)
            for rule, walk in enumerate(walks):
                if walk.ticks > 0 and not walk.over_bytes:
                    best[rule] = min(best[rule], walk.ticks)
        if all(map(math.isfinite, best)):
            gains.append(math.log(best[1] / best[0]))
    error = float(np.std(gains) / math.sqrt(len(gains)))
    return {"ratio": math.exp(float(np.mean(gains))), "error": error, "problems": len(gains), "cpu": spent}


def validate(paths: list[Path]) -> None:
    """Best of the walks of each policy beside those of list scheduling, on made-up problems that nothing has seen."""
    policies = {"zero weights": Walk().rules.without_learning(), "shipped": Walk().rules}
    for path in paths:
        policies[str(path)] = rules = Rules.load(path)
        policies[f"zero weights as planned in {path}"] = rules.without_learning()
    for seeds, scope in ((VALIDATED, PLAN_SCOPE), (VALIDATED_LARGE, LARGE_PLAN_SCOPE)):
        lengths: dict[str, list[float]] = {name: [] for name in policies}
        for seed in seeds:
            grounds = Grounds(made_problem(seed, scope).problem)
            for name, rules in policies.items():
                lengths[name].append(Progress(grounds, rules.weights, rules.plans[grounds.kind]).length)
        print(f"{len(seeds)} problems of {scope.least} to {scope.most} operators")
        for other in ("zero weights", "shipped"):
            for name in set(policies) - {other}:
                gains = np.array(lengths[name]) - np.array(lengths[other])
                error = gains.std() / math.sqrt(len(gains))
                print(f"  {name}: {math.exp(gains.mean()):.4f} of {other}, +- {error:.4f}", flush=True)


def mean_ratio(rows: Iterable[tuple[float | None, float | None]]) -> tuple[float, int, int, int]:
    """(geometric mean, wins, losses, count) of pairs that both fit."""
    logs = [math.log(one / other) for one, other in rows if one is not None and other is not None]
    wins, losses = sum(x < -5e-4 for x in logs), sum(x > 5e-4 for x in logs)
    return (math.exp(sum(logs) / len(logs)) if logs else math.nan), wins, losses, len(logs)


def told(rows: list[dict[str, Any]], value: Callable[[dict[str, Any]], float | None]) -> str:
    """A ratio to the heft family with wins and losses."""
    ratio, wins, losses, count = mean_ratio((value(row), row["heft"]["seconds"]) for row in rows)
    left = f", {len(rows) - count} do not fit" if count < len(rows) else ""
    return f"{ratio:.3f} ({wins}/{losses}{left})"


def spent(rows: list[dict[str, Any]], *names: str) -> str:
    """Mean CPU milliseconds."""
    return f"{1000 * sum(row[name]['cpu'] for row in rows for name in names) / len(rows):.0f}"


def simulated(rows: list[dict[str, Any]], *names: str) -> str:
    """Mean simulations."""
    return f"{sum(row[name]['evaluations'] for row in rows for name in names) / len(rows):.0f}"


def _seconds(name: str) -> Callable[[dict[str, Any]], float | None]:
    return lambda row: row[name]["seconds"]  # type: ignore[no-any-return]


def judge_table(rows: list[dict[str, Any]]) -> list[str]:
    """Held-out families: everybody beside the heft family."""
    parts = ("recurrent", "others", "own random families")
    zoo = [row for row in rows if row["part"] != parts[2]]
    shown: list[tuple[str, tuple[str, ...], Callable[[dict[str, Any]], float | None]]] = [
        ("`walk`: best of 16 walks", ("walk",), _seconds("walk")),
        ("`walk` with heft in the pool", ("walk, heft",), _seconds("walk, heft")),
        (f"`walk`: {MORE} walks", ("walk, more",), _seconds("walk, more")),
        (f"`walk`: {MORE} walks with heft in the pool", ("walk, more, heft",), _seconds("walk, more, heft")),
        ("the first walk of the plan alone", ("walk, 1",), _seconds("walk, 1")),
        ("the first 8 walks of the plan", ("walk, anew",), _seconds("walk, anew")),
        ("control: zero weights, 16 walks", ("zero",), _seconds("zero")),
        ("control: zero weights with heft in the pool", ("zero, heft",), _seconds("zero, heft")),
        (f"control: zero weights, {MORE} walks", ("zero, more",), _seconds("zero, more")),
        (f"control: zero weights, {MORE} walks with heft", ("zero, more, heft",), _seconds("zero, more, heft")),
        *(
            (f"control: random weights {seed}", (f"random {seed}",), _seconds(f"random {seed}"))
            for seed in RANDOM
        ),
        ("`search` from heft", ("search",), _seconds("search")),
        ("bound", (), lambda row: row["bound"]),
    ]
    lines = [
        f"| | all of the zoo and nmt ({len(zoo)}) | "
        + " | ".join(f"{part} ({sum(row['part'] == part for row in rows)})" for part in parts)
        + " | CPU ms | simulations |",
        "|---|---|---|---|---|---:|---:|",
        f"| the heft family | 1 | 1 | 1 | 1 | {spent(rows, 'heft')} | {simulated(rows, 'heft')} |",
    ]
    for title, names, value in shown:
        cells = [told(zoo, value), *(told([row for row in rows if row["part"] == part], value) for part in parts)]
        lines.append(f"| {title} | {' | '.join(cells)} | {spent(rows, *names)} | {simulated(rows, *names)} |")
    return lines


def family_table(rows: list[dict[str, Any]]) -> list[str]:
    """The same by family."""
    lines = ["| family | problems | `walk` | with heft | zero weights | `search` |", "|---|---:|---|---|---|---|"]
    for family in dict.fromkeys(row["family"] for row in rows):
        own = [row for row in rows if row["family"] == family]
        cells = [
            told(own, _seconds("walk")), told(own, _seconds("walk, heft")),
            told(own, _seconds("zero")), told(own, _seconds("search")),
        ]  # fmt: skip
        lines.append(f"| {family} | {len(own)} | {' | '.join(cells)} |")
    return lines


def large_table(rows: dict[str, dict[str, Any]]) -> list[str]:
    """Starts of search on large graphs, against search from heft with the same CPU."""
    columns = [("walk", "heft")]
    columns += [(f"{starts} {cpu:g}", f"heft {cpu:g}") for cpu in CPU_SECONDS for starts in ("walk", "heft,walk")]
    titles = [f"{one} s / {other} s".replace("walk s / heft s", "`walk` / heft") for one, other in columns]
    lines = [f"| graph, cluster | operators | {' | '.join(titles)} |", "|---|---:|" + "---:|" * len(columns)]
    for key, row in sorted(rows.items()):
        ratios = [f"{row[a]['seconds'] / row[b]['seconds']:.3f}" for a, b in columns]
        lines.append(f"| {key.replace(' | ', ', ')} | {row['operators']:,} | {' | '.join(ratios)} |")
    means = [mean_ratio((row[a]["seconds"], row[b]["seconds"]) for row in rows.values()) for a, b in columns]
    lines.append(f"| geometric mean (wins/losses) | | {' | '.join(f'{m:.3f} ({w}/{n})' for m, w, n, _ in means)} |")
    return lines


def data_table(rows: dict[str, dict[str, Any]]) -> list[str]:
    """Amounts of data."""
    ordered = sorted(rows.items(), key=lambda one: int(one[0].partition(" ")[0]))
    return ["| trained on | ratio | +- | CPU s |", "|---|---:|---:|---:|"] + [
        f"| {key} | {row['ratio']:.4f} | {row['error']:.4f} | {row['cpu']:.0f} |" for key, row in ordered
    ]


def tables() -> None:
    """Everything that has been measured, as a page."""
    lines = ["# Results of the walk", "", "Written by `python experiments/walk/run.py tables`.", ""]
    found = {name: Cells(RESULTS / f"{name}.json").rows for name in ("judge", "large", "auto", "data")}
    if rows := list(found["judge"].values()):
        for page in PAGES:
            fill(page, "held-out families", judge_table(rows))
        fill(LAB_BOOK, "by family", family_table(rows))
        lines += ["## Held-out families: ratio to the heft family (wins/losses)", "", *judge_table(rows), ""]
        lines += ["## The same by family", "", *family_table(rows), ""]
    if found["large"]:
        fill(LAB_BOOK, "large graphs", large_table(found["large"]))
        lines += ["## As a start of search, large graphs", "", *large_table(found["large"]), ""]
    if found["auto"]:
        lines += ["## `auto` that begins with the walk", "", *auto_table(found["auto"]), ""]
        for page in PAGES:
            fill(page, "auto", auto_table(found["auto"]))
    if found["data"]:
        lines += ["## Amount of data: one walk over one walk of HEFT, unseen problems", ""]
        lines += [*data_table(found["data"]), ""]
        fill(LAB_BOOK, "amount of data", data_table(found["data"]))
    (RESULTS / "README.md").write_text("\n".join(lines))


def main() -> None:
    """Run a part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = {"judge": judge, "large": large, "auto": auto, "data": data, "tables": tables}
    parser.add_argument("part", choices=[*parts, "validate"])
    parser.add_argument("files", nargs="*", type=Path)
    given = parser.parse_args()
    if given.part == "validate":
        validate(given.files)
        return
    RESULTS.mkdir(exist_ok=True)
    parts[given.part]()
    tables()


if __name__ == "__main__":
    main()
