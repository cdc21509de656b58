"""Tables of the truth: how far predictions are from clocks, and whether they have the same order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = "results"  # the folder that is filled if none is named


def spearman(first: Sequence[float], second: Sequence[float]) -> float:
    """Rank correlation; ties share their rank.

    >>> spearman([1, 2, 3, 4], [10, 20, 40, 30])
    0.8
    """
    ranks = [_ranks(np.asarray(values, dtype=float)) for values in (first, second)]
    if len(first) < 3 or any(np.ptp(one) == 0 for one in ranks):
        return float("nan")
    return round(float(np.corrcoef(*ranks)[0, 1]), 12)


def _ranks(values: np.ndarray) -> np.ndarray:
    ranks = np.empty(len(values))
    ranks[np.argsort(values, kind="stable")] = np.arange(len(values))
    for value in np.unique(values):
        ranks[values == value] = ranks[values == value].mean()
    return ranks


def usable(record: Mapping[str, Any]) -> bool:
    """Whether a record may be counted: right results and enough bursts."""
    return record["numerics"]["pass"] and not record["measured"]["insufficient"]


def summary(cell: Mapping[str, Any]) -> dict[str, Any]:
    """One row of the table: errors and order over the placements of a model."""
    records = [one for one in cell["records"] if usable(one)]
    steps = [one for one in records if one["objective"] == "latency"]
    pipes = [one for one in records if one["objective"] == "throughput"]
    predicted = [one["predicted"]["seconds"] for one in steps]
    minima = [one["measured"]["min"] for one in steps]
    medians = [one["measured"]["median"] for one in steps]
    by_min = [abs(found / said - 1) for found, said in zip(minima, predicted, strict=True)]
    by_median = [abs(found / said - 1) for found, said in zip(medians, predicted, strict=True)]
    noise = float(np.median([one["measured"]["iqr"] / one["measured"]["median"] for one in steps])) if steps else None
    return {
        "model": cell["model"],
        "executor": cell["executor"],
        "placements": len(records),
        "of": len(cell["records"]),
        "error_min": float(np.median(by_min)) if by_min else None,
        "error_min_max": max(by_min, default=None),
        "error_median": float(np.median(by_median)) if by_median else None,
        "spearman": spearman(predicted, minima),
        "spearman_apart": spearman_apart(predicted, minima, noise or 0.0),
        "right_pairs": right_pairs(predicted, minima, noise or 0.0),
        "range": max(minima) / min(minima) if minima else None,
        "noise": noise,
        "rate_error": float(np.median([abs(one["ratio_of_median"] - 1) for one in pipes])) if pipes else None,
        "gain_of_auto": next((one["gain"] for one in steps if one["name"] == "auto"), None),
        "fastest_gain": _fastest_gain(cell, steps),
        "modes": sorted({one["timing_mode"] for one in records}),
        "load": max((one["contention"]["load_average"] for one in cell["records"]), default=None),
        "bursts": sum(one["measured"]["bursts"] for one in cell["records"]),
        "discarded": sum(one["measured"]["discarded"] for one in cell["records"]),
    }


def _fastest_gain(cell: Mapping[str, Any], steps: Sequence[Mapping[str, Any]]) -> float | None:
    """The fastest run of any device alone by the fastest run of stead's plan."""
    minima = {one["name"]: one["measured"]["min"] for one in steps}
    alone = [minima[name] for name in cell.get("workers", ()) if name in minima]
    return min(alone) / minima["auto"] if alone and "auto" in minima else None


def spearman_apart(predicted: Sequence[float], measured: Sequence[float], noise: float) -> tuple[float, int]:
    """Rank correlation of placements of which each was measured further from the next than the noise; how many.

    >>> spearman_apart([1.0, 3.0, 2.9, 4.0], [1.0, 2.0, 2.01, 3.0], 0.05)
    (1.0, 3)
    """
    kept: list[int] = []
    for i in np.argsort(np.asarray(measured), kind="stable").tolist():
        if not kept or measured[i] / measured[kept[-1]] - 1 > max(noise, 0.02):
            kept.append(i)
    return spearman([predicted[i] for i in kept], [measured[i] for i in kept]), len(kept)


def right_pairs(predicted: Sequence[float], measured: Sequence[float], noise: float) -> tuple[int, int]:
    """Of all pairs that were measured further apart than the noise, how many are in the predicted order.

    >>> right_pairs([1.0, 2.0, 3.0], [1.0, 2.0, 2.01], 0.05)
    (2, 2)
    """
    right = known = 0
    for i in range(len(measured)):
        for j in range(i):
            low, high = sorted((measured[i], measured[j]))
            if high / low - 1 > max(noise, 0.02):
                known += 1
                right += (measured[i] < measured[j]) == (predicted[i] < predicted[j])
    return right, known


def marks(what: str, results: str = RESULTS) -> tuple[str, str]:
    """Where a page has what comes from a folder of results.

    >>> marks("experiments.truth", "results-xeon")[0]
    '<!-- begin of experiments.truth, results-xeon -->'
    """
    name = what if results == RESULTS else f"{what}, {results}"
    return f"<!-- begin of {name} -->", f"<!-- end of {name} -->"


def markdown(cells: Sequence[Mapping[str, Any]]) -> str:
    """A table for every machine and day that cells were measured on."""
    places: dict[str, list[Mapping[str, Any]]] = {}
    for cell in cells:
        about = ", ".join(f"{key} {value}".strip() for key, value in cell["host"].items())
        places.setdefault(about, []).append(cell)
    return "\n".join(_table(about, own) for about, own in places.items())


def _table(about: str, cells: Sequence[Mapping[str, Any]]) -> str:
    rows = [summary(cell) for cell in cells]
    lines = [
        f"Measured on {about}; {len(cells)} cells.",
        "",
        "| model | executor | placements | error of minimum: median, largest | error of median | Spearman "
        "| of those apart | pairs apart in right order | slowest / fastest | noise | error of rate "
        "| auto against one device | by fastest runs | largest load | bursts lost |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        right, known = row["right_pairs"]
        lines.append(
            f"| {row['model']} | {row['executor']} ({', '.join(row['modes'])}) | {row['placements']} of {row['of']} "
            f"| {_share(row['error_min'])}, {_share(row['error_min_max'])} | {_share(row['error_median'])} "
            f"| {row['spearman']:.2f} | {_apart(row['spearman_apart'])} | {right} of {known} "
            f"| {_times(row['range'])} | {_share(row['noise'])} "
            f"| {_share(row['rate_error'])} | {_gain(row['gain_of_auto'])} "
            f"| {_times(row['fastest_gain'])} | {row['load']:.1f} "
            f"| {row['discarded']} of {row['bursts'] + row['discarded']} |"
        )
    return "\n".join([*lines, ""])


def placements_text(cell: Mapping[str, Any]) -> str:
    """Every placement of a model, for the eye."""
    lines = [f"{'placement':<22}{'':>3}{'predicted':>10}{'min':>8}{'median':>8}{'ratio':>7}  gain"]
    for one in cell["records"]:
        found, kind = one["measured"], "/s" if one["objective"] == "throughput" else ""
        if not usable(one):
            lines.append(f"{one['name']:<22}{kind:>3}{1e3 * one['predicted']['seconds']:>10.1f}  {one['verdict']}")
            continue
        lines.append(
            f"{one['name']:<22}{kind:>3}{1e3 * one['predicted']['seconds']:>10.1f}{1e3 * found['min']:>8.1f}"
            f"{1e3 * found['median']:>8.1f}{one['ratio']:>7.2f}  {_gain(one['gain'])}"
        )
    return "\n".join(lines)


def fill(page: Path, text: str, begin: str, end: str) -> bool:
    """Put text between the marks of a page; False if it has none."""
    old = page.read_text(encoding="utf-8")
    if begin not in old or end not in old:
        return False
    head, tail = old[: old.index(begin)], old[old.index(end) :]
    page.write_text(f"{head}{begin}\n\n{text}\n{tail}", encoding="utf-8")
    return True


def _apart(found: tuple[float, int]) -> str:
    correlation, count = found
    return "too few" if np.isnan(correlation) else f"{correlation:.2f} ({count})"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}x"


def _gain(gain: Mapping[str, Any] | None) -> str:
    if gain is None:
        return "-"
    return "within noise" if gain["within_noise"] else f"{gain['middle']:.2f}x"
