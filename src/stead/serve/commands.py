"""From a request to the command that a user could type; the command checks what it is given."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stead.errors import BadInput

VERBS = ("place", "train", "bench", "what-if", "export", "verify")
UNTIMED = ("train", "bench")  # they end when they are done, or stopped
JOURNAL = "bench.jsonl"
OUT = "out"  # the folder of an export, in that of its job
MOST_SECONDS = 24 * 3600.0
GRACE_SECONDS = 60.0  # after its own time limit, before a child is stopped
_READING = ("batch", "context", "phase")


def command_for(verb: str, request: Mapping[str, Any], folder: Path) -> list[str]:
    """The arguments of `stead`, with events and results in a folder."""
    makers = {"place": _place, "train": _train, "bench": _bench, "what-if": _what_if, "export": _export,
              "verify": _verify}  # fmt: skip
    if verb not in makers:
        raise BadInput(f"no job can {verb!r}; jobs are {', '.join(VERBS)}")
    return [verb, *makers[verb](request, folder)]


def child_command(arguments: list[str]) -> list[str]:
    """The same as a process."""
    return [sys.executable, "-m", "stead", *arguments]


def shown_command(arguments: list[str], folder: Path) -> list[str]:
    """The same for a person: results go to the folder they are in, and nobody listens."""
    at = arguments.index("--events") if "--events" in arguments else len(arguments)
    kept = [*arguments[:at], *arguments[at + 2 :]]
    shown = [part for n, part in enumerate(kept) if part != "--json" or kept[n + 1 : n + 2] == [str(folder / JOURNAL)]]
    return ["stead", *(Path(part).name if Path(part).parent == folder else part for part in shown)]


def time_limit(request: Mapping[str, Any]) -> float:
    """Seconds that a request may search."""
    given = request.get("time_limit", 60.0)
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given <= MOST_SECONDS:
        raise BadInput(f"time_limit is a number of seconds up to {MOST_SECONDS:g}, got {given!r}")
    return float(given)


def _place(request: Mapping[str, Any], folder: Path) -> list[str]:
    made = [_text(request, "model"), "--devices", _text(request, "devices"), "--time-limit", f"{time_limit(request):g}"]
    made += _reading(request)
    objective = request.get("objective", "latency")
    if objective not in ("latency", "throughput", "both"):
        raise BadInput(f"objective is latency, throughput or both, got {objective!r}")
    if objective != "both":
        made += ["--objective", objective]
    for option in ("solver", "granularity"):
        if request.get(option):
            made += [f"--{option}", _text(request, option)]
    for option in ("evaluations", "seed", "microbatches"):
        if request.get(option) is not None:
            made += [f"--{option}", str(_whole(request, option))]
    for option in ("pin", "forbid", "colocate"):
        made += [part for one in _texts(request, option) for part in (f"--{option}", one)]
    made += [part for one in _texts(request, "set") for part in ("--set", _no_file(one))]
    if request.get("start"):
        made += ["--start", _text(request, "start")]
    return [*made, "--events", str(folder / "events.jsonl"), "-o", str(folder / "plan.json"), "--json"]


def _train(request: Mapping[str, Any], folder: Path) -> list[str]:
    made = [_text(request, "policy"), "--updates", str(_whole(request, "updates"))]
    made += [part for one in _texts(request, "graphs") for part in ("--graphs", one)]
    made += ["--devices", _text(request, "devices"), "-o", str(folder / "policy.safetensors"), "--json"]
    return [*made, *(["--resume"] if request.get("resume") else []), "--events", str(folder / "events.jsonl")]


def _bench(request: Mapping[str, Any], folder: Path) -> list[str]:
    made = ["--suite", _text(request, "suite")]
    for option in ("solvers", "budgets", "objectives"):
        if request.get(option):
            made += [f"--{option}", _no_file(_text(request, option))]
    for option in ("seeds", "evaluations"):
        if request.get(option) is not None:
            made += [f"--{option}", str(_whole(request, option))]
    made += [part for one in _texts(request, "only") for part in ("--only", one)]
    kept = "--resume" if request.get("resume") else "--json"
    return [*made, kept, str(folder / JOURNAL), "--events", str(folder / "events.jsonl")]


def _export(request: Mapping[str, Any], folder: Path) -> list[str]:
    return [*_verify(request, folder)[:-1], "-o", str(folder / OUT), "--json"]


def _verify(request: Mapping[str, Any], folder: Path) -> list[str]:
    made = [_text(request, "plan_file"), "--to", _text(request, "to")]
    made += ["--legalize"] if request.get("legalize") else []
    made += [part for one in _texts(request, "set") for part in ("--set", _no_file(one))]
    return [*made, "--json"]


def _what_if(request: Mapping[str, Any], folder: Path) -> list[str]:
    made = [_text(request, "plan_file"), "--time-limit", f"{time_limit(request):g}"]
    for option in ("set", "add", "remove"):
        made += [part for one in _texts(request, option) for part in (f"--{option}", one)]
    return [*made, "-o", str(folder / "plan.json"), "--json"]


def _reading(request: Mapping[str, Any]) -> list[str]:
    given = request.get("options") or {}
    if not isinstance(given, Mapping) or set(given) - set(_READING):
        raise BadInput(f"options of a model are {', '.join(_READING)}, got {given!r}")
    return [part for key, value in given.items() if value not in (None, "") for part in (f"--{key}", str(value))]


def _text(request: Mapping[str, Any], key: str) -> str:
    value = request.get(key)
    if not isinstance(value, str) or not value.strip() or value.startswith("-") or "\0" in value:
        raise BadInput(f"{key} must be a text that does not begin with a dash, got {value!r}")
    return value


def _no_file(option: str) -> str:
    """An option of a solver or target that opens no file: which ones may be read is not for it to say."""
    if "/" in option or "\\" in option:
        raise BadInput(f"options that name files are not taken here, got {option!r}; use a shell")
    return option


def _texts(request: Mapping[str, Any], key: str) -> list[str]:
    value = request.get(key) or []
    if not isinstance(value, list) or len(value) > 1000:
        raise BadInput(f"{key} must be a list of texts, got {value!r}")
    return [_text({key: one}, key) for one in value]


def _whole(request: Mapping[str, Any], key: str) -> int:
    value = request.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**40:
        raise BadInput(f"{key} must be a whole number, got {value!r}")
    return value
