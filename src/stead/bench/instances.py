"""What a benchmark places where: models, devices and objectives, in three sizes of suite and one beside others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from stead.bench.others import is_doppler, is_piper, problem_of_others
from stead.bench.peers import PEERS
from stead.errors import BadInput, did_you_mean
from stead.placing.loading import load
from stead.problem import OBJECTIVES, Problem
from stead.solvers import Solver, solver

EQUAL = "4x A100-80GB"
PCIE = "4x Tesla P100 PCIe 16 GB"
MIXED = "2x A100-80GB + 2x 3090"
PAIR = "3090,3060"
HOSTED = "2x 3090 + cpu"


@dataclass(frozen=True, slots=True)
class Instance:
    """One question: a model on devices under an objective."""

    model: str  # zoo:NAME or a file
    devices: str  # empty: those of the file
    objective: str  # a key of OBJECTIVES

    @property
    def name(self) -> str:
        """Short and unlike every other of a suite."""
        model = self.model.removeprefix("zoo:")
        if not self.devices:
            model = "/".join(Path(model).parts[-2:]).removesuffix(".json").removesuffix(".txt")
        return " ".join(
            part for part in (self.objective, model, self.devices and f"@ {self.devices}") if part
        )

    def problem(self) -> Problem:
        """The question, read and costed."""
        of_others = None if self.devices else problem_of_others(Path(self.model))
        if of_others is not None:
            return of_others
        return load(self.model, self.devices or None).problem(OBJECTIVES[self.objective])


@dataclass(frozen=True, slots=True)
class Suite:
    """Instances, and how they are run unless somebody says otherwise."""

    name: str
    instances: tuple[Instance, ...]
    solvers: tuple[str, ...]
    seeds: int
    budgets: tuple[float, ...]  # seconds

    def only(self, patterns: Sequence[str] = (), objectives: Sequence[str] = ()) -> Suite:
        """The part whose names match one of the patterns and whose objective is among those given."""
        for one in objectives:
            if one not in OBJECTIVES:
                raise BadInput(
                    f"no objective {one!r}{did_you_mean(one, OBJECTIVES)}; there are {', '.join(OBJECTIVES)}"
                )
        chosen = [one for one in self.instances if not objectives or one.objective in objectives]
        for pattern in patterns:
            if not any(_matches(one, pattern) for one in chosen):
                names = [one.name for one in chosen]
                raise BadInput(
                    f"no instance of suite {self.name!r} matches {pattern!r}{did_you_mean(pattern, names)}; "
                    f"there are {'; '.join(names)}"
                )
        chosen = [one for one in chosen if not patterns or any(_matches(one, p) for p in patterns)]
        return replace(self, instances=tuple(chosen))

    def with_inputs(self, folder: Path) -> Suite:
        """With the graphs of others that lie in a folder (see `stead.bench.others`)."""
        return replace(self, instances=(*self.instances, *published_inputs(folder)))


def _matches(instance: Instance, pattern: str) -> bool:
    return fnmatchcase(instance.name, pattern) or pattern in instance.name


def published_inputs(folder: Path) -> tuple[Instance, ...]:
    """The graphs of others below a folder, each under the objective it was published for."""
    tarnawski = [
        Instance(str(path), "", objective)
        for kind, objective in (("latency-inputs", "offload"), ("throughput-inputs", "throughput"))
        for path in sorted(folder.glob(f"{kind}/**/*.json"))
    ]
    known = {one.model for one in tarnawski}
    files = sorted(path for path in folder.glob("**/*") if path.is_file() and str(path) not in known)
    piper = [Instance(str(path), "", "throughput") for path in files if path.suffix == ".json" and is_piper(path)]
    doppler = [Instance(str(path), "", "latency") for path in files if path.suffix == ".txt" and is_doppler(path)]
    found = (*tarnawski, *piper, *doppler)
    if not found:
        raise BadInput(
            f"{folder} has no latency-inputs or throughput-inputs with .json files below, and no graphs of Piper "
            "(.json) or DOPPLER (.txt)"
        )
    return found


_SMALLER = {  # so that large graphs fit into the memory of four devices
    "inception": "batch=1",
    "transformer": "width=256,heads=4,batch=1,length=128",
    "lstm-grid": "hidden=256,vocabulary=1000",
}


def _synthetic(family: str, operators: int) -> str:
    smaller = f",{_SMALLER[family]}" if operators > 1000 else ""
    return f"zoo:{family}?operators={operators}{smaller},phase=train"


def _grid(models: Iterable[str], devices: Iterable[str], objective: str) -> list[Instance]:
    return [Instance(model, cluster, objective) for cluster in devices for model in models]


_FAMILIES = ("inception", "transformer", "lstm-grid")
_SMOKE = (
    Instance(_synthetic("inception", 300), EQUAL, "latency"),
    Instance(_synthetic("lstm-grid", 300), PAIR, "latency"),
    Instance(_synthetic("transformer", 300), MIXED, "throughput"),
    Instance("zoo:resnet-50", PAIR, "throughput"),
    Instance("zoo:inception-v3", HOSTED, "offload"),
    Instance("zoo:bert-base", PAIR, "sequential"),
)
_SMALL = (
    *_grid([_synthetic(family, 1000) for family in _FAMILIES], (PCIE, MIXED), "latency"),
    *_grid([_synthetic(family, 10_000) for family in _FAMILIES], (PCIE,), "latency"),
    *_grid([f"zoo:{name}?phase=train" for name in ("inception-v3", "gnmt-4", "rnnlm-2")], (PCIE,), "latency"),
    *_grid(["zoo:gpt2-small", "zoo:nasnet-mobile"], (PAIR,), "latency"),
    *_grid([_synthetic(family, 1000) for family in _FAMILIES], (MIXED,), "throughput"),
    *_grid(["zoo:bert-large", "zoo:resnet-101?phase=train", "zoo:gnmt-8"], (PCIE,), "throughput"),
    *_grid(["zoo:inception-v3", "zoo:bert-base", "zoo:gnmt-2"], (HOSTED,), "offload"),
    *_grid(["zoo:bert-base", "zoo:vit-base"], (PAIR,), "sequential"),
)
_PEERS = (
    *_grid(["zoo:inception-v3", "zoo:nasnet-mobile", "zoo:bert-base"], (PAIR,), "latency"),
    *_grid(["zoo:gnmt-2", "zoo:rnnlm-2?phase=train"], (PCIE,), "latency"),
    *_grid(["zoo:bert-large", "zoo:inception-v3?phase=train"], (PCIE,), "throughput"),
)
_FULL = (
    *_SMALL,
    *_grid([_synthetic(family, 10_000) for family in _FAMILIES], (MIXED,), "latency"),
    *_grid([_synthetic(family, 50_000) for family in _FAMILIES], (EQUAL, MIXED), "latency"),
    *_grid([_synthetic(family, 10_000) for family in _FAMILIES], (MIXED,), "throughput"),
    *_grid([f"zoo:{name}?phase=train" for name in ("nasnet-large", "amoebanet", "gnmt-8", "transformer-xl-4")],
           (PCIE, MIXED), "latency"),
    *_grid(["zoo:wavenet-4x36?phase=train", "zoo:t5-large?phase=train"], (PCIE,), "throughput"),
    *_grid(["zoo:resnet-152", "zoo:nasnet-large"], (HOSTED,), "offload"),
)  # fmt: skip

_SOLVERS = (
    "auto", "search", "heft", "linear-dp", "ideals", "anneal", "climb", "split", "single", "balanced", "capacity",
    "expert", "metis",
)  # fmt: skip
SUITES: dict[str, Suite] = {
    "smoke": Suite("smoke", _SMOKE, ("auto", "climb", "split", "single", "balanced"), 1, (1.0,)),
    "small": Suite("small", _SMALL, _SOLVERS, 3, (1.0,)),
    "peers": Suite("peers", _PEERS, ("auto", "heft", "peft", "metis", "mtkahypar", *PEERS), 3, (10.0,)),
    "full": Suite("full", _FULL, _SOLVERS, 3, (1.0, 10.0, 60.0)),
}


def solver_with_options(text: str) -> Solver:
    """A solver as a benchmark names it: with options behind its name.

    >>> solver_with_options("auto pool=20 patience=64").tuning.pool
    20
    """
    name, *options = text.split() or [""]
    for option in options:
        if "=" not in option:
            raise BadInput(f"a solver is its name and OPTION=VALUE, got {text!r}")
    if name in PEERS:
        if options:
            raise BadInput(f"{name} is here for comparison and takes no options, got {text!r}")
        return PEERS[name]()
    return solver(name, **dict(option.split("=", 1) for option in options))


def suite_named(name: str) -> Suite:
    """The suite of that name."""
    if name not in SUITES:
        raise BadInput(f"no suite {name!r}{did_you_mean(name, SUITES)}; there are {', '.join(SUITES)}")
    return SUITES[name]
