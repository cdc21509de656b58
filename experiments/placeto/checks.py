"""The acceptance checks, each with the value that was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from statistics import fmean, median
from typing import Any

import cells
from cells import HELD_OUT


class Found:
    """Cells by name."""

    def __init__(self, rows: dict[str, Any]) -> None:
        self.rows = rows

    def all(self, start: str) -> list[dict[str, Any]]:
        """Cells of one kind, one per seed."""
        return [row for name, row in self.rows.items() if name.rpartition(" ")[0] == start]

    def column(self, start: str, key: str) -> list[float]:
        """One number of each."""
        return [row[key] for row in self.all(start)]


def checks(found: Found) -> Iterator[tuple[str, str, bool | None, str]]:
    """(id, what is expected, whether it is so, what was measured); None: not measured."""

    def judged(name: str, what: str, rows: Any, passed: Callable[[], bool], told: Callable[[], str]) -> Any:
        return (name, what, passed(), told()) if rows else (name, what, None, "-")

    for goal in ("last", "cut"):
        for variant in ("corrected", "faithful"):
            values = found.column(f"sanity {goal} {variant}", "end")
            yield judged(
                "P9",
                f"{goal}, {variant}: 1 in all seeds",
                values,
                lambda v=values: max(v) == 1.0,
                lambda v=values: told(v),
            )
    rows = found.all("towers")
    values = found.column("towers", "argmax")
    yield judged(
        "P10", "towers: argmax <= 0.72 in at least 4 of 5 seeds", rows,
        lambda: sum(v <= 0.72 for v in values) >= 0.8 * len(values), lambda: told(values),
    )  # fmt: skip
    best = found.column("towers", "best")
    yield judged(
        "P10", "towers: best seen <= 0.684 in all", rows, lambda: max(best) <= 0.684, lambda: told(best)
    )
    yield from inception_checks(found, judged)
    yield from transfer_checks(found, judged)
    yield from product_checks(found, judged)
    yield from family_checks(found, judged)


def inception_checks(found: Found, judged: Any) -> Iterator[Any]:
    """P11, P12, P16 to P18."""
    rows = found.all("inception")
    values, best = found.column("inception", "argmax"), found.column("inception", "best")
    yield judged(
        "P11",
        "inception50, 100 updates: argmax <= 11.0 in all",
        rows,
        lambda: max(values) <= 11.0,
        lambda: told(values),
    )
    yield judged(
        "P11", "argmax uses at least 2 devices in all", rows,
        lambda: min(found.column("inception", "argmax_devices")) >= 2,
        lambda: told(found.column("inception", "argmax_devices")),
    )  # fmt: skip
    yield judged(
        "P11", "100 updates: median of best seen <= 9.6", rows, lambda: median(best) <= 9.6, lambda: told(best)
    )
    yield judged(
        "P11", "no alarm", rows, lambda: not any(found.column("inception", "alarms")),
        lambda: told(found.column("inception", "alarms")),
    )  # fmt: skip
    faithful = found.all("faithful inception")
    yield judged(
        "P12", "faithful, 400 updates: labelled if collapsed", faithful, lambda: True,
        lambda: f"argmax {faithful[0]['argmax']:.2f} on {faithful[0]['argmax_devices']} devices, "
        f"best {faithful[0]['best']:.2f}, {'' if faithful[0]['collapsed'] else 'not '}collapsed",
    )  # fmt: skip
    fifo, published = (found.rows.get(f"exploit {judge}") for judge in ("fifo", "placeto"))
    yield judged(
        "P16", "chain judged by fifo stays on one device", fifo, lambda: fifo["argmax_devices"] == 1,
        lambda: f"{fifo['argmax_devices']} devices",
    )  # fmt: skip
    yield judged(
        "P16", "judged by the published simulator it may spread", published, lambda: True,
        lambda: f"{published['argmax_devices']} devices, {published['argmax']:.3f} against "
        f"{published['single']:.3f} ms on one",
    )  # fmt: skip
    memory = found.all("memory")
    yield judged(
        "P17", "what is returned fits, in all", memory,
        lambda: all(row["returned_fits"] and row["feasible"] for row in memory),
        lambda: f"{sum(row['returned_fits'] for row in memory)} of {len(memory)}",
    )  # fmt: skip
    for groups, limit in ((50, 1.2), (256, 15.0)):
        row = found.rows.get(f"speed {groups}")
        yield judged(
            "P18", f"update of {groups} groups: <= {limit} CPU-s, simulator < 20 %", row,
            lambda row=row, limit=limit: row["cpu"] <= limit and row["simulator_share"] < 0.2,
            lambda row=row: f"{row['cpu']:.2f} CPU-s, {row['simulator_share']:.0%}",
        )  # fmt: skip


def transfer_checks(found: Found, judged: Any) -> Iterator[Any]:
    """P13 and P14."""
    rows = found.all("zero-shot")

    def means(key: str, test: str = "same") -> list[float]:
        return [sum(one[key] for one in row[test]) / len(row[test]) for row in rows]

    def worst() -> list[float]:
        return [max(one["best of 4"] for one in row["same"]) for row in rows]

    yield judged(
        "P13", "zero-shot: mean argmax <= 0.88 of one device", rows, lambda: fmean(means("argmax")) <= 0.88,
        lambda: f"{fmean(means('argmax')):.3f}; seeds {told(means('argmax'))}",
    )  # fmt: skip
    yield judged(
        "P13", "untrained: mean argmax >= 1.05", rows, lambda: fmean(means("untrained argmax")) >= 1.05,
        lambda: f"{fmean(means('untrained argmax')):.3f}; seeds {told(means('untrained argmax'))}",
    )  # fmt: skip
    yield judged(
        "P13", "no graph above 1.05 for best of 4", rows, lambda: max(worst()) <= 1.05, lambda: told(worst())
    )
    for test in ("2 devices", "8 devices"):
        yield judged(
            "P14", f"trained with 4, used with {test}: mean best of 4 <= 0.95", rows,
            lambda test=test: max(means("best of 4", test)) <= 0.95, lambda test=test: told(means("best of 4", test)),
        )  # fmt: skip


def product_checks(found: Found, judged: Any) -> Iterator[Any]:
    """P15."""
    rows = found.all("product")
    wins = [row["polished"] <= row["climb"]["best"] and row["polished"] <= 9.3 for row in rows]
    yield judged(
        "P15", "with polish <= 9.3 ms and <= hill climbing, 4 of 5 seeds", rows, lambda: sum(wins) >= 0.8 * len(wins),
        lambda: f"{told([row['polished'] for row in rows])} against {told([row['climb']['best'] for row in rows])}",
    )  # fmt: skip
    yield judged(
        "P15", "never worse than a baseline", rows,
        lambda: all(row["polished"] <= row["best_baseline"] for row in rows),
        lambda: f"{len(rows)} seeds",
    )  # fmt: skip


def family_checks(found: Found, judged: Any) -> Iterator[Any]:
    """P19; a policy is asked from all starts, as the solver does."""
    for name in cells.FAMILIES:
        rows = found.all(f"family {name}")
        shots = [one for row in rows for one in row[name]]
        yield judged(
            "P19", f"{name}: trains in <= 20 minutes on 2 cores", rows,
            lambda rows=rows: max(row["cpu"] for row in rows) <= 1200,
            lambda rows=rows: f"{max(row['cpu'] for row in rows):.0f} CPU-s",
        )  # fmt: skip
        yield judged(
            "P19", f"{name}: zero-shot beats random and one device on >= 80 %", shots,
            lambda shots=shots: share_won(shots, "all starts") >= 0.8,
            lambda shots=shots: f"{share_won(shots, 'all starts'):.0%}, from the single device and at random "
            f"{share_won(shots, 'best of 4'):.0%}",
        )  # fmt: skip
        yield judged(
            "P19", f"{name}: zero-shot fits on every held-out graph", shots,
            lambda shots=shots: all(one["all starts"] < inf for one in shots),
            lambda shots=shots: f"{sum(one['all starts'] < inf for one in shots)} of {len(shots)}",
        )  # fmt: skip
        ratios = against_training(found, name)
        yield judged(
            "P19", f"{name}: zero-shot median <= 1.10 of per-graph training", ratios,
            lambda ratios=ratios: median(ratios) <= 1.1, lambda ratios=ratios: told(ratios),
        )  # fmt: skip
        alone = found.all(f"on {name} {HELD_OUT[0]}")
        yield judged(
            "P19", f"{name}: per graph better than rate 0 and random, medians", alone,
            lambda alone=alone: controls(alone)[0] < min(controls(alone)[1:]),
            lambda alone=alone: "{:.3f} against {:.3f}, {:.3f}".format(*controls(alone)) + f", {len(alone)} seeds",
        )  # fmt: skip


def share_won(rows: list[dict[str, Any]], key: str) -> float:
    """Held-out graphs on which the policy beats one device and random placements."""
    return sum(row[key] < min(1.0, row["random"]) for row in rows) / len(rows)


def controls(rows: list[dict[str, Any]]) -> tuple[float, float, float]:
    """Medians over seeds of training, of learning rate 0 and of random search, in milliseconds."""
    return (
        median(row["best"] for row in rows),
        median(row["rate_0"]["best"] for row in rows),
        median(row["random"] for row in rows),
    )


def against_training(found: Found, name: str) -> list[float]:
    """Zero-shot, median over policies, against training on the graph itself, median over seeds; one per graph."""
    ratios = []
    for n, graph in enumerate(HELD_OUT):
        alone = found.all(f"on {name} {graph}")
        shots = [row[name][n] for row in found.all(f"family {name}") if n < len(row[name])]
        if alone and shots:
            shot = median(one["all starts"] * one["single"] for one in shots)
            ratios.append(shot / median(min(one["best"], one["argmax"]) for one in alone))
    return ratios


def told(values: list[float]) -> str:
    """Numbers for people."""
    return ", ".join(f"{value:.4g}" for value in values)
