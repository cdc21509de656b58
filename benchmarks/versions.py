"""Two versions of stead on the same instances, in turn: what `auto` of each one finds.

    python benchmarks/versions.py OLD/bin/python NEW/bin/python --folder runs [--inputs DIR] [--only TEXT]

Each interpreter has a version of stead installed. Both answer every instance with the same command of `stead bench`,
one after the other, so that a busy hour hits both; runs are kept in the folder and not made again. An instance whose
fingerprint differs is another question for the other version: it is listed, but not compared. On a busy machine the
clock is best replaced by one of CPU time (`LD_PRELOAD`), so that budgets are CPU seconds of one process.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

LOSS = 0.005  # of the median, beyond which an instance is a loss
COLUMNS = "before, ms", "now, ms", "now / before", "seeds apart", "gap"


@dataclass(frozen=True, slots=True)
class Answers:
    """What one version found on one instance."""

    values: tuple[float, ...]  # seconds, by seed
    fingerprints: frozenset[str]
    gap: float  # the median over seeds

    @property
    def median(self) -> float:
        """Seconds; inf where there is no value."""
        return statistics.median(self.values) if self.values else math.inf


def instances(python: str, options: Sequence[str]) -> list[str]:
    """Names of the instances that a version knows."""
    listed = subprocess.run(
        [python, "-m", "stead", "bench", *options, "--list"], check=True, capture_output=True, text=True
    )
    return listed.stdout.splitlines()


def answers(python: str, options: Sequence[str], instance: str, journal: Path, run: Sequence[str]) -> Answers:
    """Runs of one version on one instance, made unless the journal has them."""
    subprocess.run(
        [python, "-m", "stead", "bench", *options, "--only", instance, *run, "--resume", str(journal)],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    records = [json.loads(line) for line in journal.read_text().splitlines()]
    mine = [one for one in records if one.get("instance") == instance and "value_seconds" in one]
    return Answers(
        tuple(one["value_seconds"] for one in mine), frozenset(one["fingerprint"] for one in mine),
        statistics.median(one["gap"] for one in mine) if mine else 1.0,
    )  # fmt: skip


def row(instance: str, old: Answers, new: Answers) -> tuple[str, float | None]:
    """A line of the table and new over old; None where the two cannot be compared."""
    name = instance.replace("|", "/")
    if not old.values or not new.values or old.fingerprints != new.fingerprints:
        said = "another question" if old.values and new.values else "no value"
        return f"| {name} | {_ms(old)} | {_ms(new)} | {said} | | |", None
    ratio = new.median / old.median
    mark = f"**{ratio:.4f}**" if ratio > 1 + LOSS else f"{ratio:.4f}"
    spread = max(max(one.values) / min(one.values) for one in (old, new)) - 1
    return f"| {name} | {_ms(old)} | {_ms(new)} | {mark} | {spread:.1%} | {old.gap:.1%} -> {new.gap:.1%} |", ratio


def _ms(found: Answers) -> str:
    return f"{1e3 * found.median:.4g}" if found.values else "-"


def main() -> None:
    """Print a table in Markdown, then the mean and the losses."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", help="an interpreter with the one version")
    parser.add_argument("new", help="an interpreter with the other")
    parser.add_argument("--folder", type=Path, required=True, help="where runs are kept")
    parser.add_argument("--suite", default="small")
    parser.add_argument("--inputs", help="a folder with graphs of others (`stead bench --inputs`)")
    parser.add_argument("--only", action="append", default=[], metavar="TEXT")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    given = parser.parse_args()
    options = ["--suite", given.suite, *(["--inputs", given.inputs] if given.inputs else [])]
    chosen = [*options, *(part for text in given.only for part in ("--only", text))]
    run = ["--solvers", "auto", "--seeds", str(given.seeds), "--budgets", f"{given.seconds:g}"]
    given.folder.mkdir(parents=True, exist_ok=True)
    common = [name for name in instances(given.new, chosen) if name in set(instances(given.old, chosen))]
    titles = f"instance, {given.seconds:g} s, {given.seeds} seeds", *COLUMNS
    print(f"| {' | '.join(titles)} |\n|{'---|' * len(titles)}")
    ratios: dict[str, float] = {}
    for instance in common:
        old, new = (
            answers(python, options, instance, given.folder / f"{name}.jsonl", run)
            for name, python in (("old", given.old), ("new", given.new))
        )
        line, ratio = row(instance, old, new)
        print(line, flush=True)
        if ratio is not None:
            ratios[instance] = ratio
    if ratios:
        mean = math.exp(statistics.fmean(math.log(ratio) for ratio in ratios.values()))
        lost = [name for name, ratio in ratios.items() if ratio > 1 + LOSS]
        print(f"\ngeometric mean of {len(ratios)}: {mean:.4f}; lost more than {LOSS:.1%}: {'; '.join(lost) or 'none'}")


if __name__ == "__main__":
    main()
