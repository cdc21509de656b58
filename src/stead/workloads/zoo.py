"""The zoo: models that the papers place and models that people run, as graphs, by name.

    spec = workloads.get("gnmt", layers=8, mode="training")
    graph = spec.graph()                    # comes with stead, lies in the cache, or is captured by torch
    module, inputs, loss = spec.torch()     # to run and to measure

On the command line a spec is a name with options: `zoo:gnmt-8?batch=64,phase=train`. Nothing is downloaded.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal, get_args

from stead.errors import BadInput, did_you_mean
from stead.graph import Graph
from stead.readers.base import Model
from stead.workloads import graph_cache as cache
from stead.workloads.families import FAMILIES, Family, Option, Value, text_of
from stead.workloads.module_calls import unit_calls
from stead.workloads.synthetic import ALIASES as SYNTHETIC_ALIASES
from stead.workloads.synthetic import FAMILIES as SYNTHETIC
from stead.workloads.synthetic import family_options, synthetic

Mode = Literal["inference", "training"]
MODES: tuple[Mode, ...] = get_args(Mode)
PREFIX = "zoo:"

_PHASES: dict[str, Mode] = {
    "infer": "inference",
    "prefill": "inference",
    "train": "training",
    "inference": "inference",
    "training": "training",
}
_SYNONYMS = {"context": ("length", "steps")}  # what several families have under different names
_UPDATE = Option("adam", choices=("none", "sgd", "adam"))  # of training alone
_WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


@dataclass(frozen=True, slots=True)
class Spec:
    """One model of the zoo with every option set; make it with `get` or `parse`."""

    family: str
    options: tuple[tuple[str, Value], ...]
    mode: Mode = "inference"

    def __str__(self) -> str:
        """A name that `parse` turns into the same spec."""
        name, others = self._named()
        options = [f"{key}={text_of(value)}" for key, value in others.items()]
        if self.mode == "training":
            options.append("phase=train")
        return f"{PREFIX}{name}{'?' if options else ''}{','.join(options)}"

    @property
    def name(self) -> str:
        """Family and size: gnmt-8."""
        return self._named()[0]

    @property
    def values(self) -> dict[str, Value]:
        """Every option."""
        return dict(self.options)

    @property
    def fingerprint(self) -> str:
        """The same for equal specs, everywhere."""
        text = json.dumps([self.family, self.mode, self.options])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def graph(self) -> Graph:
        """The graph: as shipped, else from the cache, else captured and put there."""
        return cache.graph_of(self)

    def model(self) -> Model:
        """The graph and a sentence about it."""
        values = ", ".join(f"{key} {text_of(value)}" for key, value in self.options)
        return Model(self.graph(), notes=(f"{self.name} of the zoo, {self.mode}: {values}",))

    def torch(self, *, device: str = "meta", seed: int = 0) -> tuple[Any, tuple[Any, ...], Any]:
        """Module, inputs and loss; on `meta` without data, elsewhere with random weights and inputs.

        `loss(module(*inputs))` is the loss of one step; `loss.targets` are the classes it wants.
        """
        from stead.readers.torch.exported import torch_package

        torch = torch_package(f"building {self}")
        module_name, _, function = FAMILIES[self.family].build.partition(":")
        build = getattr(import_module(f"stead.workloads.models.{module_name}"), function)
        options = {key: value for key, value in self.options if key != "update"}
        try:
            with torch.random.fork_rng(devices=()), torch.device(device):
                torch.manual_seed(seed)
                module, inputs, loss = build(**options)
        except RuntimeError as error:  # sizes that do not go together
            raise BadInput(f"{self} cannot be built: {str(error).partition(chr(10))[0]}") from error
        module.train(self.mode == "training")
        return module, inputs, loss

    def capture(self) -> Graph:
        """The graph, made anew by torch."""
        module, inputs, loss = self.torch()
        if self.mode == "training":
            from stead.readers.torch.capture import from_capture

            update: Any = self.values["update"]
            targets = (loss.targets,)
            return from_capture(module, inputs, loss, targets=targets, update=update, name=self.name).graph
        if FAMILIES[self.family].unrolled:  # export would not tell the steps apart
            from stead.readers.torch.capture import from_capture

            return from_capture(module, inputs, name=self.name).graph
        from stead.readers.torch.exported import from_torch

        return from_torch(module, inputs, name=self.name).graph

    def units(self, graph: Graph) -> list[str]:  # [operator]
        """The unit each operator lies in: the call of a cell, of a convolution with its norm, of a layer.

        Empty for what lies outside of all units, such as sums between them and the loss.
        """
        return unit_calls(graph.modules, FAMILIES[self.family].units)

    def _named(self) -> tuple[str, dict[str, Value]]:
        """The shortest name, and the options it does not imply."""
        family, values = FAMILIES[self.family], self.values
        bases: list[tuple[str, Mapping[str, Value]]] = [
            (f"{family.shown}-{size}", s) for size, s in family.sizes.items()
        ]
        if family.numbered and str(values[family.numbered]) not in family.sizes:
            number = values[family.numbered]
            bases.insert(0, (f"{family.shown}-{number}", {family.numbered: number}))
        if not bases:
            bases = [(family.shown, {})]
        named = [(name, _differences(family, values, settings), settings) for name, settings in bases]
        name, others, _ = min(named, key=lambda one: (len(one[1]), -sum(key not in one[1] for key in one[2])))
        return name, others


def get(family: str, /, *, mode: str = "inference", **options: Value) -> Spec:
    """The model of a family with some options set; `stead zoo` lists families and options.

    >>> get("gnmt", layers=8, batch=64).name
    'gnmt-8'
    >>> str(get("rnnlm", steps=20, mode="training"))
    'zoo:rnnlm-2?steps=20,phase=train'
    >>> get("gnmt", layer=8)
    Traceback (most recent call last):
    stead.errors.BadInput: gnmt has no option 'layer'; did you mean 'layers'?; it has layers, steps, ...
    """
    if family not in FAMILIES:
        raise BadInput(
            f"no family {family!r} in the zoo{did_you_mean(family, FAMILIES)}; it has {', '.join(FAMILIES)}"
        )
    return _spec(FAMILIES[family], {}, mode, options)


def parse(text: str, /, *, phase: str = "", **options: Value) -> Spec:
    """The model that a name means, with or without `zoo:`; options given here win, and may be text too.

    >>> parse("zoo:gnmt-8?batch=64") == get("gnmt", layers=8, batch=64)
    True
    >>> parse("inception-v3", phase="train").mode
    'training'
    """
    name, written = split_name(text)
    family, settings = _family_and_size(name)
    mode = phase or written.pop("phase", "inference")
    written.pop("phase", None)
    known = _options(family, training=True)
    given: dict[str, Value] = {}
    for key, value in (*written.items(), *options.items()):
        meant = next((own for own in _SYNONYMS.get(key, ()) if own in known), key)
        is_text = isinstance(value, str) and meant in known
        given[meant] = _read(f"{name}: {key}", str(value), known[meant].default) if is_text else value
    return _spec(family, settings, mode, given)


def model_from_zoo(text: str, /, *, phase: str = "", **options: Value | None) -> Model:
    """What a name such as `zoo:gnmt-8` or `zoo:lstm-grid?operators=1000` means; options that are None are not given.

    >>> model_from_zoo("zoo:lstm-grid?operators=100", phase="train").graph.is_training
    True
    """
    given = {key: value for key, value in options.items() if value is not None}
    name, written = split_name(text)
    if name in SYNTHETIC or name in SYNTHETIC_ALIASES:
        phase = phase or written.pop("phase", "")
        written.pop("phase", None)
        return Model(_synthetic(name, phase, {**written, **given}))
    return parse(text, phase=phase, **given).model()


def size_in_zoo(text: str, option: str, /, **options: Value) -> int | None:
    """The value of an option such as batch or context of the model that a name means; None if it has no such option.

    >>> size_in_zoo("zoo:gnmt-8?batch=64", "batch"), size_in_zoo("zoo:lstm-grid", "batch")
    (64, None)
    """
    name, _ = split_name(text)
    if name in SYNTHETIC or name in SYNTHETIC_ALIASES:
        return None
    values = parse(text, **options).values  # type: ignore[arg-type]
    value = values.get(next((own for own in _SYNONYMS.get(option, ()) if own in values), option))
    return value if type(value) is int else None


def is_unrolled(text: str) -> bool:
    """Whether a longer context means more operators, as in networks that are unrolled over time.

    >>> is_unrolled("zoo:gnmt-8"), is_unrolled("zoo:gpt2")
    (True, False)
    """
    name, _ = split_name(text)
    return name not in SYNTHETIC and name not in SYNTHETIC_ALIASES and FAMILIES[parse(text).family].unrolled


def names() -> list[str]:
    """Every family and size, as `parse` takes them."""
    return [name for family in FAMILIES.values() for name in family.names]


def zoo_names() -> list[str]:
    """The same, and the families of synthetic graphs."""
    return [*names(), *SYNTHETIC]


# Names


def split_name(text: str) -> tuple[str, dict[str, str]]:
    """The name, as it is listed, and the options in a text such as zoo:GNMT-8?batch=64,steps=20."""
    name, _, query = text.removeprefix(PREFIX).partition("?")
    written: dict[str, str] = {}
    for part in re.split("[,&]", query) if query else ():
        key, equals, value = part.partition("=")
        if not (key and equals and value):
            raise BadInput(f"{text}: options are written option=value, got {part!r}")
        if key in written:
            raise BadInput(f"{text}: option {key!r} is given twice; keep one")
        written[key] = value
    return name.strip().lower().replace("_", "-"), written


def _family_and_size(name: str) -> tuple[Family, Mapping[str, Value]]:
    for family in sorted(FAMILIES.values(), key=lambda family: -len(family.name)):
        if name == family.shown:
            return family, {}
        size = name.removeprefix(f"{family.shown}-")
        if size == name:
            continue
        if size in family.sizes:
            return family, family.sizes[size]
        if family.numbered and size.isascii() and size.isdigit():
            return family, {family.numbered: int(size)}
        similar = did_you_mean(name, family.names)
        raise BadInput(f"no {name!r} in the zoo{similar}; there are {', '.join(family.names)}")
    raise BadInput(
        f"no {name!r} in the zoo{did_you_mean(name, zoo_names())}; `stead zoo` lists what there is"
    )


def _synthetic(name: str, phase: str, given: Mapping[str, Value]) -> Graph:
    defaults = family_options(name)
    options: dict[str, Any] = {
        key: _read(f"{name}: {key}", value, defaults[key])
        if isinstance(value, str) and key in defaults
        else value
        for key, value in given.items()
    }
    if phase:
        options["training"] = _mode(phase) == "training"
    return synthetic(name, **options)


# Options


def _spec(family: Family, settings: Mapping[str, Value], mode: str, given: Mapping[str, Value]) -> Spec:
    chosen = _mode(mode)
    known = _options(family, chosen == "training")
    for key in given:
        if key == "update" and key not in known:
            raise BadInput(f"{family.name}: update is an option of training; add phase=train or leave it out")
        if key not in known:
            raise BadInput(
                f"{family.name} has no option {key!r}{did_you_mean(key, known)}; it has {', '.join(known)}"
            )
    values = {key: option.default for key, option in known.items()} | dict(settings) | dict(given)
    checked = {key: _checked(family.name, key, values[key], option) for key, option in known.items()}
    for key, option in known.items():
        if option.multiple_of and int(checked[key]) % int(checked[option.multiple_of]):
            other = option.multiple_of
            raise BadInput(
                f"{family.name}: {key} must be a multiple of {other}, got {checked[key]} and {checked[other]}"
            )
    return Spec(family.name, tuple(checked.items()), chosen)


def _options(family: Family, training: bool) -> dict[str, Option]:
    return {**family.options, **({"update": _UPDATE} if training else {})}


def _mode(text: str) -> Mode:
    if text not in _PHASES:
        raise BadInput(f"phase is infer or train, got {text!r}{did_you_mean(str(text), _PHASES)}")
    return _PHASES[text]


def _checked(family: str, key: str, value: Value, option: Option) -> Value:
    """The value in the type of its option."""
    kind = type(option.default)
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        raise BadInput(f"{family}: {key} needs a value like {text_of(option.default)}, got {value!r}")
    if option.choices:
        fits = value in option.choices
    else:
        fits = isinstance(value, bool | str) or option.least <= value <= option.most
    if not fits:
        raise BadInput(f"{family}: {key} must be {option.allowed}; got {text_of(value)}")
    return value


def _read(what: str, text: str, default: Any) -> Value:
    """A value of the type of the default, as people write it."""
    try:
        if isinstance(default, bool):
            return _WORDS[text.lower()]
        if isinstance(default, int):
            return int(text.replace("_", ""))
        if isinstance(default, float):
            return float(text)
    except (KeyError, ValueError):
        raise BadInput(f"{what} needs a value like {text_of(default)}, got {text!r}") from None
    return text


def _differences(
    family: Family, values: Mapping[str, Value], settings: Mapping[str, Value]
) -> dict[str, Value]:
    """Options that are not as the family or its size has them."""
    usual = {key: settings.get(key, option.default) for key, option in _options(family, True).items()}
    return {key: value for key, value in values.items() if value != usual[key]}
