"""The table of held-out families and the checks that follow from it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from suite import Instance

Cell = dict[str, Any]
Cells = dict[str, dict[str, Cell]]  # [part]["graph, seed n"]
Tests = Mapping[str, Sequence[Instance]]
PACKAGE = {"package, greedy": ("package", "greedy"), "package, best of 64": ("package", "best")}
HELD_OUT = {  # heading: (part, number)
    "zero-shot greedy": ("zero-shot", "greedy"), "best of 64": ("zero-shot", "best"),
    "untrained greedy": ("zero-shot", "untrained_greedy"), "untrained, best of 64": ("zero-shot", "untrained_best"),
    "fine-tuned greedy": ("fine-tuned", "greedy"), "fine-tuned best": ("fine-tuned", "best"),
    "scratch best": ("scratch", "best"), "cut": ("zero-shot", "cut"), "chunks": ("rules", "chunks"),
    "heft": ("rules", "heft"), "search": ("search", "best"), "bound": ("rules", "bound"),
}  # fmt: skip
COLUMNS = {**PACKAGE, **HELD_OUT}


def values(cells: Cells, part: str, graph: str, number: str) -> list[float]:
    """A number of every seed."""
    return [
        float(cell[number])
        for key, cell in cells.get(part, {}).items()
        if key.rpartition(", seed ")[0] == graph
    ]


def ratio(cells: Cells, graph: str, column: str) -> float | None:
    """Seconds over those of the expert, median over seeds; None where nothing was run."""
    found = values(cells, *COLUMNS[column][:1], graph, COLUMNS[column][1])
    expert = values(cells, "rules", graph, "expert")
    return statistics.median(found) / expert[0] if found and expert else None


def geometric(ratios: Sequence[float]) -> float:
    """Infinite as soon as one of them is."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def families(tests: Tests, cells: Cells, column: str) -> dict[str, float]:
    """Geometric mean over the graphs of every family that was run whole."""
    found = {}
    for family, graphs in tests.items():
        ratios = [ratio(cells, one.name, column) for one in graphs]
        known = [one for one in ratios if one is not None]
        if known and len(known) == len(ratios):
            found[family] = geometric(known)
    return found


def rows(tests: Tests, cells: Cells, headings: Iterable[str]) -> Iterator[str]:
    """One line per graph, then means and medians of whole columns."""
    columns: dict[str, list[float | None]] = {column: [] for column in headings}
    yield f"| family | graph | {' | '.join(columns)} |"
    yield f"|---|---|{'---:|' * len(columns)}"
    for family, graphs in tests.items():
        for one in graphs:
            for column, known in columns.items():
                known.append(ratio(cells, one.name, column))
            yield f"| {family} | {one.name} | {' | '.join(shown(known[-1]) for known in columns.values())} |"
    for name, summary in (("geometric mean", geometric), ("median", statistics.median)):
        whole = [
            shown(summary([one for one in known if one is not None]) if None not in known else None)
            for known in columns.values()
        ]
        yield f"| | **{name}** | {' | '.join(whole)} |"


def shown(value: float | None) -> str:
    """Empty for what was not run."""
    return "" if value is None else f"{value:.3f}" if math.isfinite(value) else "no room"


def checks(tests: Tests, cells: Cells) -> Iterator[tuple[str, str, bool | None, str]]:
    """(id, what, passed or None if not run, measured)."""
    greedy, best = families(tests, cells, "zero-shot greedy"), families(tests, cells, "best of 64")
    what = "zero-shot greedy within 5 % of the expert over families, the worst within 15 %, best of 64 no worse than it"
    if len(greedy) == len(tests):
        mean, worst = geometric(list(greedy.values())), max(greedy, key=lambda family: greedy[family])
        passed = mean <= 1.05 and greedy[worst] <= 1.15 and max(best.values()) <= 1.0
        told = f"mean {mean:.3f}, worst {greedy[worst]:.3f} ({worst}), best of 64 {max(best.values()):.3f} at worst"
        yield "G10", what, passed, told
    else:
        yield "G10", what, None, f"{len(greedy)} of {len(tests)} families"
    fine, scratch = families(tests, cells, "fine-tuned best"), families(tests, cells, "scratch best")
    what = "fine-tuned: no worse than the expert on every family, better than from scratch on 6 of 7, at most 60 s"
    if len(fine) == len(scratch) == len(tests):
        good = sum(value <= 1.0 for value in fine.values())
        ahead = sum(fine[family] < scratch[family] for family in tests)
        slowest = max(float(cell["cpu_seconds"]) for cell in cells["fine-tuned"].values())
        passed = good == len(tests) and ahead >= 6 and slowest <= 60
        told = f"expert reached on {good} of {len(tests)}, ahead of scratch on {ahead}, {slowest:.0f} CPU s at most"
        yield "G11", what, passed, told
    else:
        good = sum(value <= 1.0 for value in fine.values())
        ran = (
            f"expert reached on {good} of {len(fine)} families, scratch run on {len(scratch)} of {len(tests)}"
        )
        yield "G11", what, None, ran
    graphs = [one.name for own in tests.values() for one in own]
    for what, column, share in (
        ("zero-shot greedy: median over graphs no worse than the expert", "zero-shot greedy", 0.5),
        ("after fine-tuning: better than the expert on at least 80 % of the graphs", "fine-tuned best", 0.8),
    ):
        known = [one for one in (ratio(cells, name, column) for name in graphs) if one is not None]
        if len(known) < len(graphs):
            yield "transfer", what, None, f"{len(known)} of {len(graphs)} graphs"
        elif share == 0.5:
            yield "transfer", what, statistics.median(known) <= 1.0, f"{statistics.median(known):.3f}"
        else:
            wins = sum(one < 1.0 for one in known)
            yield "transfer", what, wins >= share * len(known), f"{wins} of {len(known)}"


def told(tests: Tests, cells: Cells) -> str:
    """Tables and checks as Markdown."""
    words = {True: "pass", False: "**fail**", None: "not run"}
    seeds = {
        part: max((int(key.rpartition(" ")[2]) + 1 for key in own), default=0) for part, own in cells.items()
    }
    lines = [
        "# What transfers",
        "",
        "Seconds over those of the expert; below 1 is faster. The policy of the package:",
        "",
    ]
    lines += [*rows(tests, cells, PACKAGE), "", "Policies that never saw the family:", ""]
    lines += [
        *rows(tests, cells, HELD_OUT),
        "",
        f"Seeds of fine-tuning: {seeds.get('fine-tuned', 0)}; the median is shown.",
        "",
    ]
    lines += ["| check | what | result | measured |", "|---|---|---|---|"]
    lines += [
        f"| {name} | {what} | {words[ok]} | {value} |" for name, what, ok, value in checks(tests, cells)
    ]
    return "\n".join(lines) + "\n"
