"""Runs of `stead train` and `stead bench`: their logs, those of jobs here and those below the root, line by line.

Three kinds of files are read, and told apart by their first line: events (`--events`), the log beside a policy
(`NAME.jsonl`), and the journal of a benchmark (`stead bench --json`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from stead.serve.commands import JOURNAL
from stead.serve.models import path_below
from stead.serve.store import Store

MOST_RUNS, MOST_FILES, DEEPEST = 100, 5_000, 4
MOST_BYTES = 8 * 2**20  # that are read at once; the page asks again for the rest
FIRST_LINE = 2**16
CURVES = ("best", "mean", "greedy", "start", "entropy")
LOGS = {"train": "policy.jsonl", "bench": JOURNAL}  # of jobs, by what they do
RESULT = ("instance", "solver", "seed", "status", "value_seconds", "bound_seconds", "cpu_seconds", "reason")


def found(store: Store, root: Path) -> list[dict[str, Any]]:
    """Runs of this app, then those in files, the newest first."""
    own = [
        {"id": f"job:{job['id']}", "kind": job["verb"], "name": _title(job["verb"], job["request"]),
         "state": job["state"], "changed": job["ended"] or job["started"] or job["created"]}
        for job in store.jobs() if job["verb"] in LOGS
    ]  # fmt: skip
    files: list[dict[str, Any]] = []
    for path in _files(root, store.home):
        kind = _kind(path)
        if kind:
            name = path.relative_to(root.resolve()).as_posix()
            files.append(
                {"id": f"file:{name}", "kind": kind, "name": name, "state": "", "changed": path.stat().st_mtime}
            )
    return [*own, *sorted(files, key=lambda one: -one["changed"])[:MOST_RUNS]]


def _title(verb: str, request: Mapping[str, Any]) -> str:
    if verb == "bench":
        return f"bench {request.get('suite')}" + (f", {request['solvers']}" if request.get("solvers") else "")
    graphs = ", ".join(str(one).removeprefix("zoo:") for one in request.get("graphs", ()))
    return f"{request.get('policy')} on {graphs}"


def _files(root: Path, home: Path) -> Iterator[Path]:
    """Files of lines of JSON, not too deep and not too many; what is hidden, linked or the app's own is left alone."""
    seen, base = 0, root.resolve()
    for folder, folders, names in os.walk(base):
        depth = len(Path(folder).relative_to(base).parts)
        seen_later = [one for one in sorted(folders) if not one.startswith(".") and Path(folder, one) != home]
        folders[:] = seen_later if depth < DEEPEST else []
        for name in sorted(names):
            seen += 1
            if seen > MOST_FILES:
                return
            path = Path(folder, name)
            if name.endswith(".jsonl") and not path.is_symlink():
                yield path


def _kind(path: Path) -> str:
    """What a file is the log of; empty for anything else."""
    from stead.placing.event_log import FORMAT

    try:
        with path.open("rb") as file:
            first = json.loads(file.readline(FIRST_LINE))
    except (OSError, ValueError, RecursionError):
        return ""
    if not isinstance(first, dict):
        return ""
    if first.get("format") == FORMAT:
        return str(first["verb"]) if first.get("verb") in ("train", "bench") else ""
    if "update" in first and "elapsed_seconds" in first:
        return "train"
    return "bench" if "instance" in first and "solver" in first else ""


def path_of(store: Store, root: Path, name: str) -> Path | None:
    """The file behind the name of a run; None where there is none (yet)."""
    where, _, rest = name.partition(":")
    if where == "job":
        job = store.job(rest)
        path = store.home / "jobs" / rest / LOGS.get(job["verb"], "") if job is not None else store.home
        return path if path.is_file() else None
    path = path_below(root, rest)
    return path if path.suffix == ".jsonl" and _kind(path) else None


def read(path: Path, tail: int) -> dict[str, Any]:
    """What a log says from a byte on: rows of updates, lines to draw beside them, results; and where it ends now."""
    rows: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    lines: dict[str, float] = {}
    with path.open("rb") as file:
        file.seek(tail)
        data = file.read(MOST_BYTES)
    whole = data[: data.rfind(b"\n") + 1]  # the last line may still be being written
    for line in whole.splitlines():
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if not isinstance(event, dict):
            continue
        if event.get("kind") == "graphs":
            lines = _lines(event.get("graphs"))
        elif "update" in event:
            rows.append(_row(event))
            lines = {**lines, **_numbers(event.get("lines"))}
        elif "instance" in event and "solver" in event:
            results.append({key: event.get(key) for key in RESULT})
    more = len(data) == MOST_BYTES
    return {"rows": rows, "lines": lines, "results": results, "tail": tail + len(whole), "more": more}


def _row(event: Mapping[str, Any]) -> dict[str, Any]:
    taken = {"update": event["update"], "at": event.get("elapsed_seconds", event.get("t")), **{
        key: event.get(key) for key in (*CURVES, "evaluations", "alarms")
    }}  # fmt: skip
    return {key: value if _is_number(value) else None for key, value in taken.items()}


def _lines(graphs: object) -> dict[str, float]:
    """Bound and rules as ratios to the reference, means over the graphs that have them."""
    sums: dict[str, list[float]] = {}
    for graph in graphs if isinstance(graphs, list) else []:
        if not isinstance(graph, dict) or not _is_number(graph.get("reference")) or graph["reference"] <= 0:
            continue
        given = {**_numbers(graph.get("baselines")), **_numbers({"bound": graph.get("bound")})}
        for name, seconds in given.items():
            if seconds > 0:
                sums.setdefault(name, []).append(seconds / graph["reference"])
    return {name: sum(values) / len(values) for name, values in sums.items()}


def _numbers(given: object) -> dict[str, float]:
    if not isinstance(given, dict):
        return {}
    return {str(name): float(value) for name, value in given.items() if _is_number(value)}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value and abs(value) < 1e300
