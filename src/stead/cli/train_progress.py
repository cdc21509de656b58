"""How far training is: curves that grow on a terminal, else a line on stderr from time to time; and its events."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stead import clock
from stead.cli.live_block import LiveBlock
from stead.printing.look import GOOD, HEADER, Look
from stead.printing.sparkline import sparkline

if TYPE_CHECKING:
    from stead.placing.event_log import EventLog

INTERVAL_SECONDS = 2.0  # between lines where nobody watches
CURVES = ("best", "greedy", "mean")  # what the network drew, as ratios to the reference
_MOST_CELLS = 72
_LABEL, _NUMBER = 8, 7  # columns before a curve

Row = Mapping[str, float | None]


class TrainProgress:
    """Takes every update of a training run, shows it where somebody watches, and writes its event."""

    def __init__(self, runs: Any, run: Any, log: EventLog) -> None:
        """`runs` is the module of training runs, which the command line does not import itself."""
        self._runs, self._run, self._log = runs, run, log
        self._block = LiveBlock.if_watched()
        self._rows: list[Row] = []
        self._first = 0  # update that this run began with
        self._begin = clock.now()
        self._last = self._begin - INTERVAL_SECONDS

    def __call__(self, metrics: Any, learner: Any) -> None:
        if not self._first:
            self._first = metrics.update
            self._tell_graphs(learner)
        best = [task.scorer.best_seconds for task in learner.tasks]
        greedy = [task.greedy_seconds for task in learner.tasks]
        self._log.write("update", **metrics.as_dict(), best_seconds=best, greedy_seconds=greedy)
        if self._block is None:
            self._print(metrics, learner)
        else:
            self._draw(self._block, metrics, learner)

    def _print(self, metrics: Any, learner: Any) -> None:
        now = clock.now()
        if now - self._last >= INTERVAL_SECONDS:
            self._last = now
            print(self._runs.progress_line(metrics, learner, now - self._begin), file=sys.stderr, flush=True)

    def _draw(self, block: LiveBlock, metrics: Any, learner: Any) -> None:
        if not self._rows and self._first > 1:  # what is resumed has a history
            kept = self._runs.read_log(self._run.beside(".jsonl"))
            self._rows = [row for row in kept if row["update"] < self._first]
        self._rows.append(metrics.as_dict())
        done = metrics.update - self._first + 1
        rate = done / max(clock.now() - self._begin, 1e-9)
        levels = self._runs.curves.lines_of(learner.tasks)
        last = metrics.update == self._run.updates  # which stays on the screen
        block.draw(lambda look, _: curve_lines(self._rows, levels, self._run.updates, rate, look), now=last)

    def _tell_graphs(self, learner: Any) -> None:
        graphs = [
            {"name": task.name, "bound": task.bound_seconds, "baselines": task.known,
             "reference": task.reward.reference_seconds}
            for task in learner.tasks
        ]  # fmt: skip
        self._log.write("graphs", graphs=graphs)


def curve_lines(
    rows: Sequence[Row], levels: Mapping[str, float], updates: int, rate: float, look: Look
) -> list[str]:
    """A line per curve, all on one scale that begins at the bound; then what they stand beside."""
    now = rows[-1]
    alarms = int(now["alarms"] or 0)
    parts = [
        f"update {now['update']} of {updates}", *([f"{alarms} alarm{'s' if alarms > 1 else ''}"] if alarms else []),
        f"{rate:.1f} updates/s", f"entropy {now['entropy']:.3f}", f"{now['evaluations']} evaluations",
    ]  # fmt: skip
    known = [value for row in rows for name in CURVES if (value := row[name]) is not None]
    low, high = min([*known, levels.get("bound", min(known, default=0.0))], default=0.0), max(known, default=1.0)
    cells = min(look.columns - _LABEL - _NUMBER - 4, _MOST_CELLS)
    lines = [look.cut(f" {'  '.join(parts)}", look.columns)]
    for name in CURVES:
        drawn = sparkline([row[name] for row in rows], cells, low=low, high=high, unicode=look.unicode)
        last = now[name]
        shown = "-" if last is None else f"{last:.4f}"
        painted = look.painted(drawn.rstrip(), GOOD if name == "best" else "")
        lines.append(f" {look.painted(name, HEADER)}{' ' * (_LABEL - len(name))}{shown:>{_NUMBER}}  {painted}".rstrip())
    beside = "  ".join(f"{name} {value:.3f}" for name, value in levels.items())
    return [*lines, look.cut(look.shown(f" beside  {beside}"), look.columns)] if beside else lines
