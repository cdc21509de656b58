"""Damaged plan files: one line, or the plan that was saved; never a traceback, never another claim.

STEAD_FUZZ=20000 tries that many files of each kind.
"""

from __future__ import annotations

import copy
import json
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from damage import ODD_VALUES, damaged_document, damaged_json, places

from stead.errors import BadInput
from stead.placing.place import place_problem
from stead.plan import Plan, checksums, writing
from stead.problem import Constraints, Latency, Placement, Priority, Throughput
from stead.sim import simulate
from stead.solvers import Budget, Solution
from stead.testing import two_towers

ROUNDS = int(os.environ.get("STEAD_FUZZ", "300"))
OLD = Path(__file__).parents[1] / "data" / "plan-v1.json"
Document = dict[str, Any]


def plans() -> list[Plan]:
    """Small plans that together have everything a file can hold."""
    constraints = Constraints(pin=(("head", "d0"),), forbid=(("l1", "d1"),), colocate=(("l1", "l2"),))
    ordered = two_towers(Latency()).with_constraints(constraints)
    made = [place_problem(ordered, budget=Budget(evaluations=200))]
    stepped = Throughput(microbatches=2, schedule="1f1b")
    for one in (Latency(policy=Priority([4, 3, 2, 1, 0])), stepped):
        made.append(place_problem(two_towers(one), budget=Budget(evaluations=50)))
    shared = two_towers(Throughput())
    placement = Placement(shared, [0] * 5, replicas=[(0, 1)])
    made.append(Plan(shared, Solution(placement, simulate(shared, placement).objective_seconds), (), {"model": "m"}))
    return made


@pytest.fixture(scope="module")
def documents() -> list[Document]:
    """Sealed documents of both layouts, as a file holds them."""
    made = []
    for plan in plans():
        for packed in (False, True):
            document = writing.plan_document(
                plan.problem, plan.solution, plan.baselines, plan.provenance, packed=packed
            )
            made.append(json.loads(writing.plan_text(checksums.with_checksums(document))))
    return made


def outcome(path: Path, data: bytes) -> Plan | str:
    """The plan, or the one line that refuses it."""
    path.write_bytes(data)
    begin = time.process_time()
    try:
        return Plan.load(path)
    except BadInput as error:
        told = str(error)
        assert told.startswith(str(path)), told
        assert told.isprintable(), told
        assert len(told) < 1500, told
        return told
    finally:
        assert time.process_time() - begin < 10


def claims(document: Document) -> Document:
    """All that a file says: everything but the checksums."""
    said = {key: value for key, value in document.items() if key != checksums.KEY}
    said["repro"] = {key: value for key, value in said["repro"].items() if key != checksums.OWN}
    return said


@pytest.mark.fuzz(ROUNDS)
def test_a_damaged_plan_is_refused_or_says_what_it_said(documents: list[Document], tmp_path: Path) -> None:
    refused = 0
    for seed in range(ROUNDS):
        chance = random.Random(seed)
        valid = chance.choice(documents)
        data = damaged_json(chance, valid)
        found = outcome(tmp_path / "p.json", data)
        refused += isinstance(found, str)
        if isinstance(found, Plan):
            assert claims(json.loads(data)) == claims(valid)
    assert refused > 0.8 * ROUNDS


@pytest.mark.fuzz(ROUNDS)
def test_a_damaged_plan_with_checksums_that_fit_is_read_or_refused(
    documents: list[Document], tmp_path: Path
) -> None:
    read = 0
    for seed in range(ROUNDS):
        chance = random.Random(seed)
        document = damaged_document(chance, chance.choice(documents))
        found = outcome(tmp_path / "p.json", json.dumps(resealed(document)).encode())
        if isinstance(found, Plan):
            read += 1
            assert found.solution.objective_seconds == found.trace.objective_seconds
            assert found.solution.bound_seconds <= found.solution.objective_seconds
    assert read, "some damage must be harmless, or only the first check is ever tested"


def resealed(document: Any) -> Any:
    """The document with checksums that fit, if it still has parts that can have them."""
    if not isinstance(document, dict) or not isinstance(document.get("repro"), dict):
        return document
    document.pop(checksums.KEY, None)
    document["repro"].pop(checksums.OWN, None)
    return checksums.with_checksums(document)


@pytest.mark.fuzz(ROUNDS)
def test_a_damaged_plan_of_version_1_is_read_or_refused(tmp_path: Path) -> None:
    valid = json.loads(OLD.read_text())
    for seed in range(ROUNDS):
        found = outcome(tmp_path / "p.json", damaged_json(random.Random(seed), valid))
        if isinstance(found, Plan):
            assert found.solution.objective_seconds == found.trace.objective_seconds
            assert found.solution.bound_seconds <= found.solution.objective_seconds


def without(container: Any, key: Any) -> None:
    del container[key]


def replaced(by: Any) -> Callable[[Any, Any], None]:
    def change(container: Any, key: Any) -> None:
        container[key] = copy.deepcopy(by)

    return change


@pytest.mark.parametrize("seal", [True, False])
def test_every_field_can_be_left_out_or_be_of_another_type(
    seal: bool, documents: list[Document], tmp_path: Path
) -> None:
    changes = [without, replaced(None), replaced("x"), replaced(-1), replaced([]), replaced({})]
    if ROUNDS > 300:
        changes = [without, *(replaced(odd) for odd in ODD_VALUES)]
    valid = documents[0]
    for number in range(len(places(valid))):
        for change in changes if ROUNDS > 300 else changes[number % 6 : number % 6 + 1]:
            document = copy.deepcopy(valid)
            change(*places(document)[number])
            outcome(tmp_path / "p.json", json.dumps(resealed(document) if seal else document).encode())
