"""One training run: updates, progress, a log, checkpoints that survive a kill, and a curve at the end.

Beside the policy NAME.safetensors lie NAME.checkpoint.safetensors (all that the next update needs), NAME.jsonl (one row
per update, the first with bound and rules) and NAME.svg (the learning curve).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from stead.errors import BadInput
from stead.files import read_text, write_text
from stead.learn.ground import curves, tensor_file
from stead.learn.ground.policy import FORMAT
from stead.learn.ground.training_loop import Metrics, State, Trainee
from stead.printing.wording import one_line

COLUMNS = ("elapsed_seconds", *Metrics.__dataclass_fields__)
MAY_LACK = ("best", "start", "mean", "greedy")  # null in the log where nothing was scored


@dataclass(frozen=True, slots=True)
class Run:
    """Where a run writes and how long it goes on."""

    output: Path
    updates: int
    resume: bool = False
    every: int = 25  # updates between checkpoints

    def __post_init__(self) -> None:
        for name, least in (("updates", 0), ("every", 1)):
            if getattr(self, name) < least:
                raise BadInput(f"{name} must be at least {least}, got {getattr(self, name)}")
        if not self.output.absolute().parent.is_dir():
            raise BadInput(f"there is no folder {self.output.absolute().parent} to write the policy to")

    def beside(self, suffix: str) -> Path:
        """A file of the run next to the policy."""
        return self.output.with_name(self.output.name.removesuffix(".safetensors") + suffix)


def train(
    trainee: Trainee,
    run: Run,
    document: Mapping[str, object],
    *,
    report: Callable[[Metrics, Trainee], None] | None = None,
) -> None:
    """Update until the run is done, then write the policy; `report` is called after every update."""
    kept = run.beside(".checkpoint.safetensors")
    if run.resume and kept.exists():
        arrays, saved = tensor_file.load(kept)
        if saved.get("document") != dict(document):
            raise BadInput(f"{kept} is of another policy or other options; leave out --resume to train anew")
        try:
            trainee.restore(arrays, cast(State, saved["learner"]))
        except BadInput as error:
            raise BadInput(f"{kept}: {error}") from None
        except (LookupError, TypeError, AttributeError, RuntimeError, ValueError, OverflowError) as error:
            reason = one_line(f"{type(error).__name__}: {error}", 200)
            raise BadInput(f"{kept} is damaged ({reason}); leave out --resume to train anew") from None
    with closing(Log(run, trainee.version)) as log:
        while trainee.version < run.updates:
            metrics = trainee.update()
            log.add(metrics, curves.lines_of(trainee.tasks))
            if report is not None:
                report(metrics, trainee)
            if trainee.version % run.every == 0 or trainee.version == run.updates:
                save_checkpoint(kept, trainee, document)
    trained = {
        "format": FORMAT,
        "updates": trainee.version,
        "seed": trainee.seed,
        "evaluations": trainee.evaluations,
        "graphs": [{"name": task.name, "problem": task.problem.fingerprint} for task in trainee.tasks],
    }
    tensor_file.save(run.output, trainee.policy_arrays(), {**document, "trained": trained})
    rows = read_log(run.beside(".jsonl"))
    lines = curves.lines_of(trainee.tasks)
    write_text(run.beside(".svg"), curves.svg(rows, lines))


def save_checkpoint(path: Path, trainee: Trainee, document: Mapping[str, object]) -> None:
    """Write all that the next update needs."""
    arrays, numbers = trainee.state()
    tensor_file.save(path, arrays, {"document": dict(document), "learner": numbers})


class Log:
    """One line of JSON per update; what lies behind the checkpoint is forgotten on resuming."""

    def __init__(self, run: Run, version: int) -> None:
        path = run.beside(".jsonl")
        rows = [row for row in read_log(path) if _number(row, "update") <= version] if version else []
        write_text(path, "".join(json.dumps(row) + "\n" for row in rows))
        self._file = path.open("a", encoding="utf-8")
        self._begin = time.monotonic() - (_number(rows[-1], "elapsed_seconds") if rows else 0.0)
        self._first = not rows

    def add(self, metrics: Metrics, lines: Mapping[str, float]) -> None:
        """Log one update; the first one with the lines that a learning curve is drawn beside."""
        row: dict[str, object] = {"elapsed_seconds": time.monotonic() - self._begin, **metrics.as_dict()}
        if self._first:
            row["lines"] = dict(lines)
        self._first = False
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Finish the file."""
        self._file.close()


def read_log(path: Path) -> list[curves.Row]:
    """The rows of a log; a last line that a kill cut off is left out."""
    rows = list[curves.Row]()
    if path.exists():
        for line in read_text(path, too_large="is it a log that stead wrote?").splitlines():
            try:
                row = json.loads(line)
                for name in COLUMNS:
                    if row[name] is not None or name not in MAY_LACK:
                        float(row[name])
                rows.append(row)
            except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
                break
    return rows


def progress_line(metrics: Metrics, learner: Trainee, elapsed_seconds: float) -> str:
    """What the network drew (best, mean, greedy), entropy and speed; then what was given to it, rules and the bound.

    All are ratios to the reference; `-` is what nothing was scored for.
    """
    rate = metrics.evaluations / max(elapsed_seconds, 1e-9)
    lines = "  ".join(f"{name} {value:.3f}" for name, value in curves.lines_of(learner.tasks).items())
    own = "  ".join(
        f"{name} -" if value is None else f"{name} {value:.4f}"
        for name, value in (("best", metrics.best), ("mean", metrics.mean), ("greedy", metrics.greedy))
    )
    return (
        f"update {metrics.update}  {own}  entropy {metrics.entropy:.3f}  "
        f"{metrics.evaluations} evaluations, {rate:.0f}/s  | {lines}"
    )


def _number(row: curves.Row, name: str) -> float:
    """A number that no row lacks."""
    return float(row[name] or 0.0)
