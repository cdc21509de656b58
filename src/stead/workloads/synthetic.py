"""Synthetic graphs by name: families for tests, benchmarks and training sets, up to a million operators."""

from __future__ import annotations

from dataclasses import fields
from importlib import import_module
from typing import Any

from stead.errors import BadInput, did_you_mean
from stead.graph import Graph

FAMILIES: dict[str, str] = {
    "layered": "stead.workloads.random_dags:Layered",
    "series-parallel": "stead.workloads.random_dags:SeriesParallel",
    "fork-join": "stead.workloads.random_dags:ForkJoin",
    "lstm-grid": "stead.workloads.model_like:LstmGrid",
    "transformer": "stead.workloads.model_like:Transformer",
    "inception": "stead.workloads.model_like:Inception",
    "enas-cnn": "stead.workloads.searched:SearchedCnn",
    "enas-rnn": "stead.workloads.searched:SearchedRnn",
    "nmt": "stead.workloads.searched:Translation",
    "branches": "stead.workloads.searched:Branches",
    "towers": "stead.workloads.searched:Towers",
}
ALIASES = {
    "cifar10": "enas-cnn", "ptb": "enas-rnn",  # the sets that these families stand for
    "nmt-var": "nmt", "inception-like": "branches",
}  # fmt: skip


def synthetic(family: str, **options: Any) -> Graph:
    """The graph of a family; the same options give the same graph everywhere.

    Most families take `operators` (about how many, backward and update ones included), all take `seed` and
    `training`; `family_options` lists what else there is.

    >>> synthetic("lstm-grid", operators=1000, layers=2)
    Graph('lstm-grid', 991 operators, 1089 tensors)
    >>> synthetic("cifar10", seed=3).is_training
    True
    """
    maker = _family(family)
    known = family_options(family)
    for option, value in options.items():
        if option not in known:
            raise BadInput(
                f"family {family!r} has no option {option!r}{did_you_mean(option, known)}; it has {', '.join(known)}"
            )
        kind = type(known[option])
        if kind is float and type(value) is int:
            continue
        if type(value) is not kind:
            raise BadInput(f"option {option} of family {family!r} needs a value of type {kind.__name__}, got {value!r}")
    count = options.get("operators")
    if count is not None and count < 1:
        raise BadInput(f"a graph needs at least 1 operator, got {count}")
    graph: Graph = maker(**options).graph()
    return graph


def family_options(family: str) -> dict[str, Any]:
    """Options of a family and their defaults.

    >>> family_options("enas-cnn")
    {'seed': 0, 'training': True}
    """
    return {option.name: option.default for option in fields(_family(family))}


def _family(name: str) -> Any:
    key = ALIASES.get(name, name)
    if key not in FAMILIES:
        known = [*FAMILIES, *ALIASES]
        raise BadInput(f"no family {name!r}{did_you_mean(name, known)}; there are {', '.join(known)}")
    module, _, attribute = FAMILIES[key].partition(":")
    return getattr(import_module(module), attribute)
