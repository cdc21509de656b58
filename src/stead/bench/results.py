"""What the runs of a benchmark say together: best values and bounds, medians over seeds, standings of solvers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import Any

from stead.bench.child import BOUND

Record = dict[str, Any]
Limit = tuple[float | None, int | None]  # seconds, evaluations

TIE = 1.0005  # medians that differ by less are equally good


@dataclass(frozen=True, slots=True)
class Cell:
    """One solver on one instance with one budget, over all seeds."""

    records: tuple[Record, ...]

    @property
    def values(self) -> list[float]:
        """Objective seconds of the runs that have one, by seed."""
        return [record["value_seconds"] for record in self.records if record.get("value_seconds") is not None]

    @property
    def value(self) -> float | None:
        """The median over seeds; None unless most of them have a value."""
        return median(self.values) if 2 * len(self.values) > len(self.records) else None

    @property
    def cpu_seconds(self) -> float | None:
        """The median of CPU time."""
        given = [record["cpu_seconds"] for record in self.records if "cpu_seconds" in record]
        return median(given) if given else None

    @property
    def status(self) -> str:
        """ok, or what became of the first run that is not."""
        return next((str(record["status"]) for record in self.records if record["status"] != "ok"), "ok")

    @property
    def reason(self) -> str:
        """Why there is no value."""
        return next(
            (str(record.get("reason", "")) for record in self.records if record["status"] != "ok"), ""
        )


@dataclass(frozen=True, slots=True)
class Standing:
    """One solver over all instances with one budget."""

    solver: str
    limit: Limit
    solved: int  # instances with a value
    asked: int  # instances that it can take
    wins: int  # instances where no other solver is better with this budget
    mean_ratio: float  # geometric mean of value / best known, over solved instances
    worst_ratio: float
    cpu_seconds: float  # median over instances


class Bench:
    """All records of a benchmark."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = [record for record in records if record["kind"] == "run"]

    @cached_property
    def instances(self) -> list[str]:
        """Names, in the order they were run."""
        return list(dict.fromkeys(record["instance"] for record in self.records))

    @cached_property
    def solvers(self) -> list[str]:
        """Names, in the order they were run."""
        return list(dict.fromkeys(r["solver"] for r in self.records if r["solver"] != BOUND))

    @cached_property
    def limits(self) -> list[Limit]:
        """Budgets, in the order they were run."""
        return list(
            dict.fromkeys(
                (r["seconds"], r["evaluations_limit"]) for r in self.records if r["solver"] != BOUND
            )
        )

    @cached_property
    def facts(self) -> dict[str, Record]:
        """A record of every instance that says how large it is."""
        return {record["instance"]: record for record in self.records if "operators" in record}

    @cached_property
    def _cells(self) -> dict[tuple[str, str, Limit], Cell]:
        grouped: dict[tuple[str, str, Limit], list[Record]] = {}
        for record in self.records:
            key = (record["instance"], record["solver"], (record["seconds"], record["evaluations_limit"]))
            grouped.setdefault(key, []).append(record)
        return {key: Cell(tuple(records)) for key, records in grouped.items()}

    def cell(self, instance: str, solver: str, limit: Limit) -> Cell | None:
        """The runs of one solver on one instance; None if there are none."""
        return self._cells.get((instance, solver, limit))

    @cached_property
    def best(self) -> dict[str, float]:
        """The least value of any run, by instance."""
        found: dict[str, float] = {}
        for record in self.records:
            value = record.get("value_seconds")
            if value is not None:
                found[record["instance"]] = min(value, found.get(record["instance"], math.inf))
        return found

    @cached_property
    def bounds(self) -> dict[str, tuple[float, str]]:
        """The largest bound that holds for all placements and its name, by instance."""
        found: dict[str, tuple[float, str]] = {}
        for record in self.records:
            if record.get("bound_seconds") and not record.get("scope"):
                one = (record["bound_seconds"], str(record.get("bound_name", "")))
                found[record["instance"]] = max(one, found.get(record["instance"], (0.0, "")))
        return found

    def gap(self, instance: str, value: float) -> float:
        """The share of a value that could at most still be saved, by the best bound of the benchmark."""
        bound = self.bounds.get(instance, (0.0, ""))[0]
        return max(0.0, (value - bound) / value) if value > 0 else 0.0

    def ratio(self, instance: str, value: float) -> float:
        """A value over the best one known."""
        best = self.best[instance]
        return value / best if best > 0 else 1.0

    def standings(self) -> list[Standing]:
        """Every solver with every budget, the best mean first."""
        found = [self._standing(solver, limit) for limit in self.limits for solver in self.solvers]
        return sorted(
            (one for one in found if one is not None),
            key=lambda one: (self.limits.index(one.limit), -one.solved, one.mean_ratio, one.solver),
        )

    def _standing(self, solver: str, limit: Limit) -> Standing | None:
        cells = [(name, self.cell(name, solver, limit)) for name in self.instances]
        present = [(name, cell) for name, cell in cells if cell is not None]
        if not present:
            return None
        ratios, wins = [], 0
        for name, cell in present:
            if cell.value is None:
                continue
            ratios.append(self.ratio(name, cell.value))
            wins += cell.value <= self._best_median(name, limit) * TIE
        times = [
            cell.cpu_seconds for _, cell in present if cell.value is not None and cell.cpu_seconds is not None
        ]
        return Standing(
            solver,
            limit,
            solved=len(ratios),
            asked=sum(cell.status != "unsupported" for _, cell in present),
            wins=wins,
            mean_ratio=math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else math.inf,
            worst_ratio=max(ratios, default=math.inf),
            cpu_seconds=median(times) if times else 0.0,
        )

    def _best_median(self, instance: str, limit: Limit) -> float:
        cells = [self.cell(instance, solver, limit) for solver in self.solvers]
        return min(
            (cell.value for cell in cells if cell is not None and cell.value is not None), default=math.inf
        )

    def document(self) -> Record:
        """The summary with the keys that scripts rely on."""
        return {
            "runs": len(self.records),
            "instances": [
                {
                    "name": name,
                    "operators": self.facts.get(name, {}).get("operators"),
                    "device_count": self.facts.get(name, {}).get("device_count"),
                    "best_seconds": self.best.get(name),
                    "bound_seconds": self.bounds.get(name, (None, ""))[0],
                    "bound_name": self.bounds.get(name, (None, ""))[1],
                    "gap": self.gap(name, self.best[name]) if name in self.best else None,
                    "solvers": [
                        {
                            "solver": solver,
                            "seconds": limit[0],
                            "evaluations_limit": limit[1],
                            "status": cell.status,
                            "reason": cell.reason,
                            "value_seconds": cell.value,
                            "ratio": None if cell.value is None else self.ratio(name, cell.value),
                            "cpu_seconds": cell.cpu_seconds,
                        }
                        for limit in self.limits
                        for solver in self.solvers
                        if (cell := self.cell(name, solver, limit)) is not None
                    ],
                }
                for name in self.instances
            ],
            "standings": [
                {
                    "solver": one.solver,
                    "seconds": one.limit[0],
                    "evaluations_limit": one.limit[1],
                    "solved": one.solved,
                    "asked": one.asked,
                    "wins": one.wins,
                    "mean_ratio": one.mean_ratio if one.solved else None,
                    "worst_ratio": one.worst_ratio if one.solved else None,
                    "cpu_seconds": one.cpu_seconds,
                }
                for one in self.standings()
            ],
        }
