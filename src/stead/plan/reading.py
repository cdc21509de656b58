"""Plan files read back: every field checked and told by its name, the answer simulated again.

What a file claims is compared with what it holds: checksums of all parts (from version 2 on), the value of the plan and
of its baselines by the simulator, the gap by value and bound. A value that differs under sound checksums was made by a
simulator that has changed since; it is then scored again, the bound is dropped, and a note says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stead.errors import BadInput
from stead.files import OUT_OF_MEMORY, AnyPath, collector_paused
from stead.plan.answer import baseline_from, check_claims, placement_from, timing_from, trail_from
from stead.plan.checked_fields import Check, at, fields_of, or_none, same, seconds_of
from stead.plan.checksums import KEY, OWN, check
from stead.plan.fields import FORMAT, SOLUTION, VERSION, Baseline, whole_of
from stead.plan.question import check_hashes, problem_from
from stead.plan.rescoring import scored, scored_baseline, values_of
from stead.printing.wording import one_line, shown, shown_path
from stead.problem import (
    Problem,
)
from stead.readers.common.checked_values import Wrong, list_of, object_of, text_of
from stead.readers.common.strict_json import read_json
from stead.sim import Trace
from stead.solvers import Solution

_REMEDY = "make the plan again with `stead place`"
_OPTIONAL = {1: ("scope", "order", "replicas", "stopped_by"), 2: ()}  # by version
_DOCUMENT: dict[int, dict[str, Check]] = {
    1: {
        "format": text_of, "version": whole_of, **SOLUTION, "objective": object_of, "objective_seconds": seconds_of,
        "bound_seconds": seconds_of, "gap": seconds_of, "placement": object_of, "order": or_none(object_of),
        "replicas": list_of, "baselines": list_of, "hashes": object_of, "problem": object_of, "repro": object_of,
    },
}  # fmt: skip
_DOCUMENT[2] = {**_DOCUMENT[1], "placement": same, "trail": list_of, KEY: object_of}
_TIMING = ("elapsed_seconds", "trail_seconds", OWN)


@dataclass(frozen=True, slots=True)
class Contents:
    """All that a plan file says, and the run of its placement."""

    problem: Problem
    solution: Solution
    baselines: tuple[Baseline, ...]
    provenance: dict[str, Any]
    trace: Trace


def is_plan(document: object) -> bool:
    """Whether a JSON document calls itself a plan."""
    return isinstance(document, dict) and document.get("format") == FORMAT


def read_plan(path: AnyPath) -> Contents:
    """What is in a plan file; whatever does not belong together is BadInput with the field."""
    where = shown_path(path)
    with collector_paused():
        document = read_json(path)
        if not is_plan(document):
            raise BadInput(f"{where} is not a plan; `stead place MODEL --devices D -o plan.json` writes one")
        version = document.get("version")
        if isinstance(version, bool) or not isinstance(version, int) or version < 1:
            raise BadInput(f"{where}: version: must be a whole number of at least 1, got {shown(version)}")
        if version > VERSION:
            raise BadInput(
                f"{where} is a plan of version {shown(version)}; this stead reads up to {VERSION}: update it"
            )
        try:
            return _contents(document, version)
        except Wrong as wrong:
            raise BadInput(f"{where}: {one_line(str(wrong))}; {_REMEDY}") from None
        except MemoryError:
            raise BadInput(f"{where}: {OUT_OF_MEMORY}") from None


def _contents(document: Mapping[str, Any], version: int) -> Contents:
    if version > 1:
        with at(KEY):
            object_of(document.get(KEY))
        check(document)
    given = fields_of(document, _DOCUMENT[version], "", _OPTIONAL[version])
    problem = problem_from(given["problem"], given["objective"])
    if version == 1:
        check_hashes(given["hashes"], problem, given["problem"]["cluster"])
    placement = placement_from(problem, given["placement"], given.get("order"), given.get("replicas", []))
    timing = timing_from(given["repro"], len(given.get("trail", ())))
    solution = Solution(
        placement=placement,
        objective_seconds=float(given["objective_seconds"]),
        bound_seconds=float(given["bound_seconds"]),
        trail=trail_from(given.get("trail", []), timing),
        elapsed_seconds=timing[0],
        **{name: given[name] for name in SOLUTION if name in given},
    )
    check_claims(solution, given["gap"])
    baselines = tuple(
        baseline_from(problem, entry, f"baselines[{number}]") for number, entry in enumerate(given["baselines"])
    )
    solution, trace = scored(solution, sealed=version > 1)
    found = values_of(problem, baselines)
    baselines = tuple(
        scored_baseline(one, value, f"baselines[{n}].objective_seconds", sealed=version > 1)
        for n, (one, value) in enumerate(zip(baselines, found, strict=True))
    )
    kept = {key: value for key, value in given["repro"].items() if key not in _TIMING}
    return Contents(problem, solution, baselines, kept, trace)
