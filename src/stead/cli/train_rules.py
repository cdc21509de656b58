"""stead train walk: rules of a list scheduler, trained without a network."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stead.problem import Problem

INTERRUPTED = 130
INTERVAL_SECONDS = 2.0  # between progress lines


def train_rules(
    method: Any,
    given: list[Problem],
    problems: int,
    updates: int,
    seed: int,
    output: Path,
    *,
    resume: bool,
    every: int,
    json: bool,
) -> int:
    """Train, and print what was written."""
    from stead.cli.output import print_json
    from stead.cli.streams import print_lines
    from stead.report.text import line

    try:
        found = method.train(
            output, problems=problems, given=given, updates=updates, seed=seed, resume=resume, every=every,
            report=_Progress(),
        )  # fmt: skip
    except KeyboardInterrupt:
        print(f"stead: interrupted; go on with --resume -o {output}", file=sys.stderr)
        return INTERRUPTED
    if json:
        print_json({"policy": str(output), "seed": seed, **found})
        return 0
    rules, walks, ratio = found["rules"], found["walks"], found["ratio"]
    print_lines(
        [
            line("rules", f"{rules} learned from {found['trained_walks']} walks"),
            line("plans", f"{walks} walks, chosen on {found['judged']}: {ratio:.4f} of list scheduling there"),
            line("wrote", f"{output}    next: stead place MODEL --solver walk --policy {output}"),
        ]
    )
    return 0


class _Progress:
    """A line on stderr from time to time."""

    def __init__(self) -> None:
        self._last = time.monotonic() - INTERVAL_SECONDS

    def __call__(self, rule: int, row: dict[str, float]) -> None:
        now = time.monotonic()
        if now - self._last >= INTERVAL_SECONDS:
            self._last = now
            print(
                f"rule {rule}  generation {row['generation']:.0f}  {row['walks']:.0f} walks  "
                f"slope {row['slope']:.3f}  mean weight {row['size']:.3f}",
                file=sys.stderr,
                flush=True,
            )
