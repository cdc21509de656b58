"""What every exporter promises, as checks that say how to repair what fails; for stead and for plug-ins.

    class TestMine(ExporterContract):
        @pytest.fixture
        def exporter(self) -> Exporter:
            return Mine()

or, without a test framework, `check_exporter(Mine())`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import PurePosixPath

import numpy as np

from stead.errors import BadInput
from stead.export.base import GRANULARITIES, Exporter
from stead.export.projecting import moved_plan
from stead.plan import Plan
from stead.problem import Constraints, Placement, Problem, Throughput
from stead.sim import simulate
from stead.solvers import Solution
from stead.testing import chain3, tiny_layers
from stead.testing.contracts import _require

DRAWN = 6  # random plans of every problem


def exported_problems() -> list[Problem]:
    """Problems one can draw, with layers and without."""
    return [tiny_layers(), tiny_layers(3, 3, objective=Throughput()), tiny_layers(3, experts=True), chain3()]


def plan_of(problem: Problem, devices: Sequence[int]) -> Plan:
    """The plan of a placement that nobody searched for."""
    placement = Placement(problem, np.array(devices))
    return Plan(problem, Solution(placement, simulate(problem, placement).objective_seconds, solver="given"))


def drawn_plans(problem: Problem, count: int = DRAWN) -> list[Plan]:
    """Everything on the first device, and plans at random."""
    random = np.random.default_rng(7)
    operators, devices = problem.costs.seconds.shape
    rows = [np.zeros(operators, dtype=np.int64), *random.integers(0, devices, (count - 1, operators))]
    return [plan_of(problem, row.tolist()) for row in rows]


def check_exporter(exporter: Exporter, problems: Sequence[Problem] | None = None) -> None:
    """Check everything an exporter promises; the AssertionError says what is wrong and what to do."""
    given = exported_problems() if problems is None else problems
    check_refusals_of(exporter, given)
    check_constraints(exporter, given)
    check_projections(exporter, given)
    check_bundles(exporter, given)
    check_verdicts(exporter, given)


def check_refusals_of(exporter: Exporter, problems: Sequence[Problem]) -> None:
    """`unsupported` is None or a sentence, and `export` of a refused problem is an error of stead."""
    _require(bool(exporter.name), "an exporter needs a name")
    _require(exporter.granularity in GRANULARITIES, f"granularity is one of {', '.join(GRANULARITIES)}")
    for problem in problems:
        reason = exporter.unsupported(problem)
        if reason is None:
            continue
        _require(isinstance(reason, str) and len(reason.split()) >= 2, f"say why in a sentence, got {reason!r}")
        try:
            exporter.export(drawn_plans(problem, 1)[0])
        except BadInput:
            continue
        _require(False, f"{exporter.name} refuses {problem} but exports it; raise BadInput: {reason}")


def check_constraints(exporter: Exporter, problems: Sequence[Problem]) -> None:
    """What the constraints leave can be placed, and charging keeps operators and devices and is done once."""
    for problem in _taken(exporter, problems):
        own = exporter.constraints(problem.graph, problem.cluster)
        _require(isinstance(own, Constraints), f"{exporter.name}: constraints gives Constraints")
        charged = exporter.charged(problem.with_constraints(own))
        shapes = (charged.costs.seconds.shape, charged.cluster.names)
        same = shapes == (problem.costs.seconds.shape, problem.cluster.names)
        _require(same, f"{exporter.name}: charged keeps the operators and the devices of a problem")
        again = exporter.charged(charged)
        _require(again.fingerprint == charged.fingerprint, f"{exporter.name}: charging twice is charging once")


def check_projections(exporter: Exporter, problems: Sequence[Problem]) -> None:
    """A projection says what moves, has the simulator's value, and needs no second one."""
    for problem in _taken(exporter, problems):
        for plan in drawn_plans(problem):
            found = exporter.project(plan)
            where = f"{exporter.name} projects {plan.placement.devices.tolist()}"
            moved = int((found.placement.devices != plan.placement.devices).sum())
            told = sum(move.operators for move in found.moves)
            _require(told == moved, f"{where}: {moved} operators move, the moves say {told}; name every one")
            for move in found.moves:
                _require(bool(move.what and move.why), f"{where}: a move says what and why: {move}")
            value = simulate(found.placement.problem, found.placement).objective_seconds
            _require(found.seconds_after == value, f"{where}: says {found.seconds_after} s, the simulator {value} s")
            again = exporter.project(moved_plan(plan, found, target=exporter.name))
            _require(again.is_same, f"{where}: the projected plan would move again: {again.moves}")


def check_bundles(exporter: Exporter, problems: Sequence[Problem]) -> None:
    """Files stay in the folder, equal plans give equal files, nothing is written, and other plans are refused."""
    for problem in _taken(exporter, problems):
        for plan in drawn_plans(problem):
            found = exporter.project(plan)
            if not found.is_same:
                _refuses(exporter, plan)
            ready = moved_plan(plan, found, target=exporter.name)
            before = sorted(os.listdir())
            bundle, again = exporter.export(ready), exporter.export(ready)
            _require(sorted(os.listdir()) == before, f"{exporter.name}: export gives files and writes none")
            _require(dict(bundle.files) == dict(again.files), f"{exporter.name}: equal plans give equal files")
            _require(bool(bundle.load), f"{exporter.name}: say how the export is loaded")
            _require(bool(bundle.files or bundle.text), f"{exporter.name}: export gives files or a text")
            for name in bundle.files:
                path = PurePosixPath(name)
                inside = not path.is_absolute() and ".." not in path.parts and bool(name)
                _require(inside, f"{exporter.name}: {name!r} is no path inside the folder of the export")


def check_verdicts(exporter: Exporter, problems: Sequence[Problem]) -> None:
    """A plan that can be exported is not seen to fail, and every answer has a reason."""
    for problem in _taken(exporter, problems):
        plan = drawn_plans(problem, 2)[-1]
        ready = moved_plan(plan, exporter.project(plan), target=exporter.name)
        verdict = exporter.verify(ready)
        for one in (verdict.outputs, verdict.placed, verdict.memory):
            _require(bool(one.detail), f"{exporter.name}: an answer says how it was found: {one}")
        _require(not verdict.failed, f"{exporter.name}: its own export of {ready} fails: {verdict}")


class ExporterContract:
    """Tests of one exporter; a subclass has a fixture `exporter`, and may add problems of its own."""

    def problems(self) -> list[Problem]:
        """The problems that the exporter is tried on."""
        return exported_problems()

    def test_it_refuses_with_a_sentence(self, exporter: Exporter) -> None:
        """`unsupported` is None or a sentence."""
        check_refusals_of(exporter, self.problems())

    def test_its_constraints_leave_something_to_place(self, exporter: Exporter) -> None:
        """Constraints can be met, and charging is done once."""
        check_constraints(exporter, self.problems())

    def test_a_projection_tells_all_that_moves_and_what_it_costs(self, exporter: Exporter) -> None:
        """Nothing moves silently."""
        check_projections(exporter, self.problems())

    def test_exports_are_the_same_for_the_same_plan(self, exporter: Exporter) -> None:
        """Equal plans, equal files; what cannot be expressed is refused."""
        check_bundles(exporter, self.problems())

    def test_what_it_exports_does_not_fail_its_own_check(self, exporter: Exporter) -> None:
        """Exports verify, or it is said why that cannot be seen here."""
        check_verdicts(exporter, self.problems())


def _taken(exporter: Exporter, problems: Sequence[Problem]) -> list[Problem]:
    return [problem for problem in problems if exporter.unsupported(problem) is None]


def _refuses(exporter: Exporter, plan: Plan) -> None:
    try:
        exporter.export(plan)
    except BadInput:
        return
    _require(False, f"{exporter.name} exports a plan that it projects elsewhere; call refuse_moves first")
