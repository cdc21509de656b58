"""How true is it? python -m experiments.truth.run [--quick] [--models gpt,rnn] [--executors torch,openvino]

Profiles models of the zoo on this machine, makes at least ten placements of each, runs all of them in rounds that take
turns, and prints how far predictions were from clocks. About 15 minutes for torch on two idle cores, 3 with --quick.
Every model is written when it is done and after every round; what is done is not done twice unless --again is given.
The page docs/concepts/how-true.md is filled from the results with --page.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments.truth.kept import Kept, joined
from experiments.truth.models import SUBJECTS, Subject, openvino_file
from experiments.truth.placements import placements
from experiments.truth.tables import RESULTS, fill, markdown, marks, placements_text
from stead import Latency, Placement, Problem, SteadError, Throughput
from stead.cluster.machine import this_machine
from stead.costs import Fitted
from stead.files import plain
from stead.run.crossing_times import crossings_in_place
from stead.run.executor import Numerics, Worker
from stead.run.machine_rates import MeasuredMachine, measure_machine
from stead.run.measure import Candidate, measure
from stead.run.predict import predict
from stead.run.profile import Timings, machine_profile, take_timings
from stead.run.record import Record
from stead.run.session import THIS_MACHINE, opened, singles, versions_of, workers_on

HERE = Path(__file__).parent
ROUNDS = 5
PAGE = HERE.parents[1] / "docs" / "concepts" / "how-true.md"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="three models, fewer rounds, into results-quick/")
    parser.add_argument("--models", default="", help="only models whose names contain one of these words")
    parser.add_argument("--executors", default="torch", help="torch, openvino or both")
    parser.add_argument("--on", default=THIS_MACHINE, help='workers, such as "core 0 + core 1 @ sse41"')
    parser.add_argument("--bursts", type=int, default=0, help="rounds of measuring; 5 if not given")
    parser.add_argument("--again", action="store_true", help="also what is done already")
    parser.add_argument(
        "--predict-again", action="store_true", help="only predictions, of what was timed here, by the present model"
    )
    parser.add_argument("--minutes", type=float, default=0, help="begin no further model after so many")
    parser.add_argument("--results", default=RESULTS, help="folder beside this file; results if not given")
    parser.add_argument("--page", action="store_true", help=f"fill {PAGE.name} from the results")
    given = parser.parse_args()
    folder = HERE / ("results-quick" if given.quick else given.results)
    folder.mkdir(exist_ok=True)
    if given.predict_again:
        _predict_again(folder)
        return _tell(folder, fill_page=given.page)
    words = [word.strip().lower() for word in given.models.split(",") if word.strip()]
    chosen = [one for one in SUBJECTS if (one.quick or not given.quick or words) and _named(one, words)]
    workers = workers_on(given.on)
    _say(f"{len(chosen)} models on {', '.join(worker.name for worker in workers)}")
    machine = measure_machine(workers)
    for said in machine.not_independent:
        _say(f"warning: {said}")
    began = time.monotonic()
    for executor in (name.strip() for name in given.executors.split(",")):
        for subject in chosen:
            path = folder / f"{executor}-{subject.name.replace(',', '').replace(' ', '_')}.json"
            if path.exists() and not given.again and is_done_here(json.loads(path.read_text())):
                _say(f"{executor} {subject.name}: done before")
                continue
            if executor == "openvino" and not subject.runs_on_openvino:
                continue
            if given.minutes and time.monotonic() - began > 60 * given.minutes:
                _say(f"{executor} {subject.name}: left for the next run")
                continue
            try:
                _cell(subject, executor, machine, workers, path, quick=given.quick, bursts=given.bursts)
            except SteadError as error:
                _say(f"{executor} {subject.name}: failed: {error}")
            except Exception:  # one model must not take the others with it
                _say(f"{executor} {subject.name}: failed:\n{traceback.format_exc()}")
    _say(f"took {(time.monotonic() - began) / 60:.1f} minutes")
    return _tell(folder, fill_page=given.page)


def _predict_again(folder: Path) -> None:
    """Predictions of the present model in all results whose timings are still on this machine."""
    for path in sorted(folder.glob("*-*.json")):
        kept = _timings_of(path)
        if kept.exists():
            _write(path, Kept.read(kept).predicted_again(json.loads(path.read_text())))


def _timings_of(path: Path) -> Path:
    """Where all that was timed for a result is kept."""
    folder = "" if path.parent.name == RESULTS else f"{path.parent.name}-"
    return HERE / "files" / f"{folder}{path.stem}.pickle"


def _tell(folder: Path, *, fill_page: bool) -> int:
    """Tables of all results that are complete, printed, beside them, and in the page."""
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("*-*.json"))]
    cells = [cell for cell in found if cell["complete"]]
    if not cells:
        return 1
    text = markdown(cells)
    every = [f"## {one['model']}, {one['executor']}\n\n```\n{placements_text(one)}\n```\n" for one in cells]
    (folder / "README.md").write_text("\n".join(["# How true it was\n", text, *every]), encoding="utf-8")
    print("\n" + text)
    if fill_page:
        filled = fill(PAGE, text, *marks("experiments.truth", folder.name))
        _say(f"filled {PAGE}" if filled else f"{PAGE} has no marks")
    return 0


def is_done_here(cell: Mapping[str, Any], here: Mapping[str, Any] | None = None) -> bool:
    """Whether a cell is complete and was measured on a machine like this one: others are no results of a reader."""
    there = cell.get("host", {})
    known = host() if here is None else here
    return bool(cell.get("complete")) and all(there.get(key) == known[key] for key in ("", "cores:"))


def host() -> dict[str, Any]:
    """What the figures belong to."""
    found = this_machine()
    memory = f"{(found.memory_bytes or 0) / 2**30:.0f} GiB"
    return {
        "": found.cpu_name or platform.machine(), "cores:": found.cores, "memory:": memory,
        "on": time.strftime("%Y-%m-%d", time.gmtime()),
    }  # fmt: skip


def _cell(
    subject: Subject,
    executor: str,
    machine: MeasuredMachine,
    workers: tuple[Worker, ...],
    path: Path,
    *,
    quick: bool,
    bursts: int,
) -> None:
    """Profile, place, predict and measure one model; written after every round."""
    title = f"{executor} {subject.name}"
    _say(f"{title}: starting")
    model = str(openvino_file(subject, HERE / "files")) if executor == "openvino" else subject.zoo
    with opened(model, workers, executor=executor) as running:
        _say(f"{title}: {len(running.graph)} operators; profiling")
        timings = take_timings(running, repeats=6, bursts=4)
        graph = running.as_kernels() if executor == "openvino" else running.graph
        links = crossings_in_place(running, timings, machine.cluster, graph=graph)
        profile = machine_profile(running, timings, links.cluster, warnings=machine.not_independent)
        costs = Fitted(profile.profiles).costs(graph, links.cluster)
        problem = Problem(graph, links.cluster, costs, objective=Latency())
        _say(
            f"{title}: {_totals(timings)}; crossings in place {links.byte_factor:.1f}x the bytes and "
            f"{links.latency_factor:.0f}x the latency of messages "
            f"(off by {links.error_before:.1%} before, {links.error_after:.1%} after); placing"
        )
        made = placements(problem, seconds=4.0 if quick else 5.0)
        missing = made.missing
        alone = {name: made.found.pop(name) for name in problem.cluster.names}  # run in every round anyhow
        verdicts = {name: running.check(one) for name, one in alone.items()}
        candidates = [_candidate(problem, name, one) for name, one in made.found.items()]
        if made.stages is not None:
            pipe = problem.with_objective(Throughput())
            candidates.append(_candidate(pipe, "stages as pipeline", Placement(pipe, made.stages.devices)))
            candidates = _pipelines_that_run(running, candidates, missing)
        document = {
            "model": subject.name, "zoo": subject.zoo, "executor": executor, "complete": False,
            "workers": [worker.name for worker in workers], "versions": versions_of(running), "host": host(),
            "profile": {one.device: plain(vars_of(one.total)) for one in profile.profiles if one.total},
            "crossings": links.figures,
            "warnings": list(profile.warnings), "missing": missing, "records": [],
        }  # fmt: skip

        made_of = {**alone, **{one.name: one.placement for one in candidates}}
        kept = Kept.of(problem, machine.cluster, timings, links.fitted_to, made_of)

        def keep(records: Sequence[Record]) -> None:
            kept.time_again(running)
            again, found = kept.now()
            document["crossings"] = found.figures
            records = [*_of_single_devices(records[0], alone, verdicts), *records]
            document["records"] = [_short(_predicted_again(record, again)) for record in records]
            _write(path, document)
            kept.save(_timings_of(path))

        _say(f"{title}: measuring {len(candidates)} placements")
        records = measure(
            running, candidates, single_predicted=singles(problem), bursts=bursts or ROUNDS,
            beside=("replicas",) if executor == "torch" else (),
            open_on=lambda others: opened(model, others, executor=executor), after_round=keep,
            circumstances={"versions": versions_of(running), "not_independent": bool(machine.not_independent)},
        )  # fmt: skip
    document["profile_drift"] = [
        float(after.total.minimum_seconds / before.total.minimum_seconds - 1)
        for before, after in zip(timings, joined(kept.profiles), strict=True)
    ]
    document["complete"] = True
    _write(path, document)
    print(placements_text(document), flush=True)
    for said in dict.fromkeys(said for record in records for said in record.warnings):
        _say(f"warning: {said}")


def _of_single_devices(
    like: Record, alone: Mapping[str, Placement], verdicts: Mapping[str, Numerics]
) -> list[Record]:
    """Records of every device alone, which `measure` runs beside the placements."""
    assert like.alternatives is not None
    return [
        replace(
            like, name=name, placement=alone[name], objective="latency", measured=measured, numerics=verdicts[name],
            predicted=predict(alone[name].problem, alone[name]), gain=None, ideal=None, first_seconds=None,
        )
        for name, measured in like.alternatives.single
    ]  # fmt: skip


def _predicted_again(record: Record, problem: Problem) -> Record:
    """A record with what was timed between the rounds, in the order that was run; nothing is fitted to it."""
    planned = record.placement.problem
    own = problem if planned.objective == problem.objective else problem.with_objective(planned.objective)
    predicted = predict(own, record.placement, ordered_by=planned)
    ideal = min(one.seconds for one in singles(problem)) / predicted.seconds
    first = {"from the first profile": record.predicted}
    return replace(record, predicted=predicted, ideal=ideal, also_predicted=first)


def _candidate(problem: Problem, name: str, placement: Placement) -> Candidate:
    return Candidate(name, placement, predict(problem, placement), problem.objective.name)


def _pipelines_that_run(running: Any, candidates: list[Candidate], missing: dict[str, str]) -> list[Candidate]:
    """Without pipelines that the executor refuses, such as those of training."""
    kept = []
    for one in candidates:
        if one.objective == "throughput":
            try:
                running.pipeline(one.placement, samples=8)
            except SteadError as error:
                missing[one.name] = str(error)
                continue
        kept.append(one)
    return kept


def _short(record: Record) -> dict[str, Any]:
    """A record without what is the same for all of them."""
    return {key: value for key, value in plain(record.as_dict()).items() if key not in ("devices", "versions")}


def vars_of(value: Any) -> dict[str, Any]:
    """The fields of a small value."""
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


def _totals(timings: Sequence[Timings]) -> str:
    return ", ".join(
        f"{one.device} {1e3 * one.total.quartile_seconds:.1f} ms (spread {one.total.relative_spread:.0%})"
        for one in timings
    )


def _write(path: Path, document: dict[str, Any]) -> None:
    half = path.with_suffix(".part")
    half.write_text(json.dumps(document) + "\n", encoding="utf-8")
    half.replace(path)


def _named(subject: Subject, words: Sequence[str]) -> bool:
    return not words or any(word in subject.name.lower() for word in words)


def _say(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}, load {os.getloadavg()[0]:.1f}] {text}", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
