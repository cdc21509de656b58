"""Plans that are being looked at: loaded once, then scored, moved and packed while the pointer is still."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stead.errors import BadInput, SteadError
from stead.files import plain
from stead.plan import Plan
from stead.problem import Placement
from stead.report import explain_operators
from stead.report.box_inside import inside
from stead.report.fold import Fold
from stead.report.moved_view import Basis, later_view, moved_view
from stead.report.plan_view import view
from stead.sim import Shortfall, Status, order_after, simulate, simulate_many
from stead.solvers import Improvement

MOST_OPEN = 4  # plans in memory
MOST_MOVES = 10_000
MOST_MOVED = 8  # plans after moves
LATER_SECONDS = 0.5  # of CPU, for further moves
MOVES_SECONDS = SENSITIVITY_SECONDS = 1.0  # of CPU, for what a view shows beyond the plan

Moved = int | tuple[int, int]  # a box, or operators from the first to the last
Moves = tuple[tuple[Moved, int], ...]  # what goes to which device, one after another


@dataclass(frozen=True)
class Session:
    """One plan with its folded graph."""

    plan: Plan
    _moved: OrderedDict[Moves, Plan] = field(default_factory=OrderedDict)  # the last few that were asked for

    @cached_property
    def basis(self) -> Basis:
        """What all placements share."""
        return Basis(self.plan)

    @property
    def boxes(self) -> Fold:
        """The modules of the graph as boxes."""
        return self.basis.boxes

    @cached_property
    def _above(self) -> NDArray[np.int64]:  # [box, depth]
        return self.boxes.ancestors()

    @cached_property
    def packed(self) -> bytes:
        """The view of the plan itself."""
        from stead.placing.size_curves import size_curves  # solvers come with it: the app answers before that

        sizes = size_curves(self.plan, cpu_seconds=SENSITIVITY_SECONDS, zoo_only=True)
        shown = view(self.plan, moves_seconds=MOVES_SECONDS, sensitivity_seconds=SENSITIVITY_SECONDS, sizes=sizes)
        return shown.as_bytes()

    def moves_from(self, given: object) -> Moves:
        """Checked moves of a request."""
        if not isinstance(given, list) or len(given) > MOST_MOVES:
            raise BadInput(f"moves are a list of [box, device] or [[first, last], device], at most {MOST_MOVES}")
        moves = []
        for one in given:
            move = _move_from(one)
            if move is None:
                raise BadInput(f"a move is [box, device] or [[first, last], device], got {one!r}")
            if not self._has(*move):
                raise BadInput(f"there is no such box, operator or device in this plan: {one!r}")
            moves.append(move)
        return tuple(moves)

    def _has(self, what: Moved, device: int) -> bool:
        first, last = (what, what) if isinstance(what, int) else what
        count = len(self.boxes.names) if isinstance(what, int) else len(self.plan.problem.graph)
        return 0 <= first <= last < count and 0 <= device < len(self.plan.problem.cluster)

    def operators_in(self, what: Moved) -> NDArray[np.int64]:
        """Operators of a box or of a range, and whoever must share a device with them."""
        problem = self.plan.problem
        if isinstance(what, int):
            own = np.flatnonzero(self._above[self.boxes.leaf, self.boxes.depths[what]] == what)
        else:
            own = np.arange(what[0], what[1] + 1)
        return np.flatnonzero(np.isin(problem.units, problem.units[own]))

    def devices_after(self, moves: Moves) -> NDArray[np.uint8]:
        """The device of every operator after moves; where one may not go is told."""
        problem, devices = self.plan.problem, self.plan.placement.devices.copy()
        for what, device in moves:
            own = self.operators_in(what)
            if not problem.allowed[own, device].all():
                v = int(own[~problem.allowed[own, device]][0])
                name, where = problem.graph.operator_names[v], problem.cluster.names[device]
                raise BadInput(f"{name} cannot run on {where}, or may not: it is pinned elsewhere")
            devices[own] = device
        return devices

    def moved(self, moves: Moves) -> Placement:
        """The placement after moves, in the plan's order."""
        if not moves:
            return self.plan.placement
        devices = self.devices_after(moves)
        return Placement(self.plan.problem, devices, order_after(self.plan.placement, devices))

    def score(self, moves: Moves) -> dict[str, Any]:
        """What the whole takes after moves, and what is short where it does not fit."""
        seconds = self._quick_seconds(moves)
        if seconds is not None:
            now = self.plan.solution.objective_seconds
            return {"seconds": seconds, "feasible": True, "short": {}, "problems": [], "change": seconds - now}
        trace = simulate(self.plan.problem, self.moved(moves))
        short = {one.device: one.bytes_over for one in trace.problems if isinstance(one, Shortfall)}
        return {
            "seconds": trace.objective_seconds if np.isfinite(trace.objective_seconds) else None,
            "feasible": trace.feasible,
            "short": short,
            "problems": [str(one) for one in trace.problems],
            "change": trace.objective_seconds - self.plan.solution.objective_seconds if trace.feasible else None,
        }

    def _quick_seconds(self, moves: Moves) -> float | None:
        """The value after moves by the core alone; None where there is more to say than that."""
        placement = self.moved(moves)
        if placement.replicas:
            return None
        scores = simulate_many(self.plan.problem, placement.devices[None, :], policy=placement.order, threads=1)
        return float(scores.seconds[0]) if Status(int(scores.status[0])) == Status.OK else None

    def with_moves(self, moves: Moves) -> Plan:
        """The plan after moves, as a plan; what was proved holds for it, too."""
        if not moves:
            return self.plan
        found = self._moved.get(moves)
        if found is None:
            found = self._moved[moves] = self._placed(self.moved(moves), "by hand")
            while len(self._moved) > MOST_MOVED:
                self._moved.popitem(last=False)
        return found

    def _placed(self, placement: Placement, found_by: str) -> Plan:
        before, trace = self.plan.solution, simulate(self.plan.problem, placement)
        seconds = trace.objective_seconds
        if not np.isfinite(seconds):
            raise BadInput("; ".join(str(one) for one in trace.problems))
        step = Improvement(before.elapsed_seconds, before.evaluations, seconds, before.bound_seconds, found_by)
        solution = replace(
            before, placement=placement, objective_seconds=seconds, found_by=found_by, trail=(*before.trail, step),
            bound_seconds=min(before.bound_seconds, seconds), stopped_by="",
            interrupted=False,
        )  # fmt: skip
        return replace(self.plan, solution=solution).traced(trace)

    def moved_bytes(self, moves: Moves) -> bytes:
        """What moves change in the view, for a page that has the rest."""
        return moved_view(self.basis, self.with_moves(moves)).as_bytes()

    def later_bytes(self, moves: Moves) -> bytes:
        """What takes longer."""
        return later_view(self.basis, self.with_moves(moves), moves_seconds=LATER_SECONDS).as_bytes()

    def case(self, sets: object, moves: Moves = ()) -> dict[str, Any]:
        """The same placement, or that after moves, in other circumstances, as `stead what-if` says it."""
        from stead.placing.size_curves import is_readable
        from stead.placing.what_if import SIZES, Changes, cases_of

        if not isinstance(sets, list) or not sets or not all(isinstance(one, str) for one in sets) or len(sets) > 64:
            raise BadInput('changes are a list of texts such as "3060.bandwidth=2x"')
        if any(one.partition("=")[0].strip() in SIZES for one in sets) and not is_readable(self.plan, zoo_only=True):
            raise BadInput("only models of the zoo are read again here; `stead what-if` in a shell reads any")
        plan = self.with_moves(moves)
        (case,) = cases_of(plan, Changes(sets=tuple(sets)))
        now = plan.solution.objective_seconds
        change = None if case.seconds is None else case.seconds - now
        return {"seconds": case.seconds, "change": change, "trouble": case.trouble or None}


    def inside(self, box: int) -> dict[str, Any]:
        """The next level in a box."""
        if not 0 <= box < len(self.boxes.names):
            raise BadInput(f"there is no box {box} in this plan")
        return {"under": box, "path": self.boxes.path(box), "boxes": inside(self.plan, self.boxes, box)}

    def explained(self, name: str) -> list[dict[str, Any]]:
        """Operators that fit a name, with all devices re-simulated."""
        return [plain(asdict(one)) for one in explain_operators(self.plan, name)]


def _move_from(given: object) -> tuple[Moved, int] | None:
    """A move as a request writes it; None for anything else."""
    if not isinstance(given, list) or len(given) != 2 or not _is_whole(given[1]):
        return None
    what, device = given
    if isinstance(what, list) and len(what) == 2 and all(map(_is_whole, what)):
        return (what[0], what[1]), device
    return (what, device) if _is_whole(what) else None


def _is_whole(given: object) -> bool:
    return type(given) is int  # True and False are no numbers of boxes


class Sessions:
    """The last few plans that were looked at."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, Session] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, name: str, path: Path) -> Session:
        """A plan, from memory or from its file."""
        with self._lock:
            found = self._open.get(name)
            if found is None:
                try:
                    found = Session(Plan.load(path))
                except SteadError as error:
                    raise BadInput(f"the plan cannot be read: {error}") from None
            self._open[name] = found
            self._open.move_to_end(name)
            while len(self._open) > MOST_OPEN:
                self._open.popitem(last=False)
            return found
