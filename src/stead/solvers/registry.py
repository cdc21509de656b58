"""Every solver by name: what it does, what it takes and where it lives, known without importing any of them.

The table is `registry.json`, a line for each; a test holds it against the classes, or writes it anew from them. Other
packages add solvers under the entry point group `stead.solvers`.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from stead.errors import BadInput, MissingExtra, Renamed, did_you_mean
from stead.option_values import option_value

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from stead.solvers.solution import Solver

Kind = Literal["rule", "build", "search", "exact", "learned", "plug-in"]
# Latency of dataflow, offload and sequential execution; throughput of a full pipeline, and of a step of micro-batches.
OBJECTIVES = ("latency", "offload", "sequential", "throughput", "micro-batches")
ENTRY_POINTS = "stead.solvers"


@dataclass(frozen=True, slots=True)
class Entry:
    """A solver as the table knows it."""

    name: str
    kind: Kind  # what people do by hand, what is built from nothing, what searches, what proves, what learns
    objectives: tuple[str, ...]  # of OBJECTIVES
    does: str
    options: Mapping[str, Any]  # with their defaults
    at: str  # module:Class


def _table() -> dict[str, Entry]:
    rows = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    return {row["name"]: Entry(**{**row, "objectives": tuple(row["objectives"])}) for row in rows}


REGISTRY: dict[str, Entry] = _table()


def entries() -> list[Entry]:
    """Every solver, plug-ins included; of those no more than the name and the package, since none is imported."""
    plugged = [Entry(point.name, "plug-in", (), _origin(point), {}, point.value) for point in _plugged_in()]
    return [*REGISTRY.values(), *plugged]


def entry(name: str) -> Entry:
    """One solver; a plug-in is imported to say what it does."""
    name = _today(name)
    if name in REGISTRY:
        return REGISTRY[name]
    kind = solver_class(name)
    does = (kind.__doc__ or "").strip().partition("\n")[0]
    options = {one.name: one.default for one in fields(kind) if one.init}
    return Entry(name, "plug-in", (), does, options, f"{kind.__module__}:{kind.__qualname__}")


def solver_names(kind: Kind | None = None) -> list[str]:
    """Every solver that can be asked for by name, plug-ins included; or those of one kind.

    >>> solver_names("learned")
    ['colocrl', 'hdp', 'placeto', 'gdp', 'hsdag', 'walk']
    """
    return [one.name for one in (entries() if kind is None else REGISTRY.values()) if kind in (None, one.kind)]


def current_name(name: str) -> str:
    """The name of a solver as it is spelled now: older files and commands have `_` where names have `-`.

    >>> current_name("largest_n:3"), current_name("my_own")
    ('largest-n:3', 'my_own')
    """
    base, colon, argument = name.partition(":")
    spelled = base.replace("_", "-")
    return f"{spelled}{colon}{argument}" if spelled in REGISTRY else name


def solver(name: str, **options: Any) -> Solver:
    """The solver of that name; `name:argument` sets its first option, as in `single:gpu0` or `largest-n:3`.

    >>> solver("largest-n:3")
    LargestN(islands=3)
    """
    base, _, argument = name.partition(":")
    base = _today(base)
    kind = solver_class(base)
    known = {option.name: option.default for option in fields(kind) if option.init}
    if argument:
        if not known:
            raise BadInput(f"solver {base!r} takes no argument, got {name!r}")
        options = {next(iter(known)): argument, **options}
    groups = {key: default for key, default in known.items() if is_dataclass(default)}  # such as the tuning of auto
    within = {part.name: (key, part.default) for key, group in groups.items() for part in fields(group)}
    given: dict[str, Any] = {}
    parts: dict[str, dict[str, Any]] = {}
    for option, value in options.items():
        if option in known:
            given[option] = _value(base, option, value, known[option])
        elif option in within:
            group, default = within[option]
            parts.setdefault(group, {})[option] = _value(base, option, value, default)
        else:
            left = getattr(kind, "FORMER", {}).get(option)  # what became of an option that it had once
            raise BadInput(
                f"solver {base!r} has no option {option!r}{left or did_you_mean(option, [*known, *within])}"
            )
    given |= {group: replace(given.get(group, groups[group]), **chosen) for group, chosen in parts.items()}
    return kind(**given)  # type: ignore[no-any-return]


def solver_class(name: str) -> Any:
    """The class of the solver of that name; its dataclass fields are its options."""
    name = _today(name)
    if name in REGISTRY:
        module, _, attribute = REGISTRY[name].at.partition(":")
        try:
            return getattr(import_module(module), attribute)
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise MissingExtra("torch", "torch", f"solver {name!r}") from None
    for point in _plugged_in():
        if point.name == name:
            return point.load()
    raise BadInput(f"no solver {name!r}{did_you_mean(name, solver_names())}; `stead solvers` lists them")


def _today(name: str) -> str:
    """The current name, after saying so if another was given."""
    spelled = current_name(name)
    if spelled != name:
        warnings.warn(f"solver {name!r} is now called {spelled!r}", Renamed, stacklevel=3)
    return spelled


def _plugged_in() -> list[EntryPoint]:
    from importlib.metadata import entry_points  # takes longer to import than all the rest here

    return [point for point in entry_points(group=ENTRY_POINTS) if point.name not in REGISTRY]


def _origin(point: EntryPoint) -> str:
    package = point.dist.name if point.dist is not None else point.module
    return f"a plug-in of {package}"


def _value(name: str, option: str, given: Any, default: Any) -> Any:
    try:
        return option_value(given, default)
    except ValueError:
        kind = type(default).__name__
        raise BadInput(f"solver {name!r}: option {option} needs a value of type {kind}, got {given!r}") from None
