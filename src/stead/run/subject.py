"""Subjects: the models that workers run, and how workers come by them.

A model of the zoo or a `.pt2` file is made by every worker for itself: captures are deterministic, so that all speak
of the same operators. A live module is captured where it lives; what was captured and its weights go to the workers
in a private file that is removed when they have read it. Nobody needs to import the classes of the module.
"""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from stead.errors import BadInput
from stead.printing.wording import one_line
from stead.readers.torch.capture import capture
from stead.readers.torch.exported import arguments_of, tape_of_exported, torch_package
from stead.readers.torch.tape import Tape, Update
from stead.run.sheet import Numbering

_TORCH_DTYPES = {
    "fp64": "float64", "fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "int64": "int64", "int32": "int32",
    "int16": "int16", "int8": "int8", "bool": "bool",
}  # fmt: skip


@dataclass(slots=True)
class Prepared:
    """A recorded model and the real tensors that a step of it begins with."""

    tape: Tape
    numbering: Numbering
    start: dict[int, Any]  # tensor number: tensor


class Subject(Protocol):
    """What a worker is given to run; travels to it."""

    @property
    def name(self) -> str:
        """What to call it."""

    def prepare(self) -> Prepared:
        """Record it and make its tensors, in the process that calls."""


@dataclass(frozen=True, slots=True)
class FromZoo:
    """A model of the zoo with random weights: `zoo:resnet-50?batch=1`."""

    text: str
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0

    @property
    def name(self) -> str:
        """What to call it."""
        return self.text

    def prepare(self) -> Prepared:
        """Record it and make its tensors."""
        from stead.workloads import FAMILIES, parse
        from stead.workloads.synthetic import FAMILIES as SYNTHETIC
        from stead.workloads.zoo import split_name

        torch_package("running models of the zoo")
        if split_name(self.text)[0] in SYNTHETIC:
            raise BadInput(f"{self.text} is a synthetic graph: there is nothing to run in it; give a model")
        spec = parse(self.text, **{key: value for key, value in self.options.items() if value is not None})
        module, inputs, loss = spec.torch(device="cpu", seed=self.seed)
        if spec.mode == "training":
            update: Any = spec.values["update"]
            return captured(module, inputs, loss, targets=(loss.targets,), update=update, name=spec.name)
        return captured(module, inputs, name=spec.name, export=not FAMILIES[spec.family].unrolled)


@dataclass(frozen=True, slots=True)
class FromPt2:
    """A program that `torch.export.save` wrote, with the weights in the file."""

    path: str

    @property
    def name(self) -> str:
        """What to call it."""
        return Path(self.path).name

    def prepare(self) -> Prepared:
        """Read it, at the sizes of its example."""
        torch = torch_package("running exported programs")
        try:
            program = torch.export.load(self.path)
        except Exception as error:  # whatever a broken file makes torch say
            reason = one_line(str(error).strip().partition("\n")[0], 200)
            raise BadInput(f"{self.path}: torch.export.load cannot read it: {reason}") from error
        tape = tape_of_exported(program, name=self.name.removesuffix(".pt2"))
        state = {**program.state_dict, **program.constants}
        example = program.example_inputs
        given = torch.utils._pytree.tree_leaves(example) if example is not None else []
        leaves = [leaf for leaf in given if isinstance(leaf, torch.Tensor)]
        if len(leaves) != len(tape.inputs):
            leaves = [_made_up(torch, value) for value in tape.inputs]
        return bound(torch, tape, state, leaves)


@dataclass(frozen=True, slots=True)
class Shipped:
    """A live module, captured already; `folder` has what was captured and the tensors."""

    name: str
    folder: str

    def prepare(self) -> Prepared:
        """Read what was captured."""
        torch = torch_package("running PyTorch modules")
        tape = pickle.loads(Path(self.folder, "tape").read_bytes())
        held = torch.load(Path(self.folder, "tensors"), weights_only=True)
        return Prepared(tape, Numbering(tape), {int(number): tensor for number, tensor in held.items()})


def ship(prepared: Prepared, name: str, folder: Path) -> Shipped:
    """Write a prepared model into a private folder for workers to read."""
    torch = import_module("torch")
    try:
        _private(folder / "tape").write_bytes(_pickled(torch, prepared.tape))
        tensors = {str(number): tensor.detach() for number, tensor in prepared.start.items()}
        torch.save(tensors, _private(folder / "tensors"))
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise BadInput(f"{name} cannot be sent to workers: {one_line(str(error), 200)}") from error
    return Shipped(name, str(folder))


def captured(
    module: Any,
    inputs: Any,
    loss_fn: Callable[..., Any] | None = None,
    *,
    targets: Sequence[Any] = (),
    update: Update = "adam",
    name: str = "",
    export: bool = False,
) -> Prepared:
    """A live module on its way to workers; `export` takes the operators of `from_torch`, not of `from_capture`."""
    torch = torch_package("running PyTorch modules")
    title = name or type(module).__name__
    positional, named = arguments_of(torch, inputs)
    state = {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }
    if export:
        if loss_fn is not None:
            raise BadInput("a training step is captured, not exported; leave export out")
        tape = _exported(torch, module, positional, named, title)
    else:
        tape = capture(module, inputs, loss_fn, targets=targets, update=update, name=title)
    given = torch.utils._pytree.tree_leaves(
        (positional, [named[key] for key in sorted(named)], list(targets))
    )
    leaves = [leaf for leaf in given if isinstance(leaf, torch.Tensor)]
    return bound(torch, tape, state, leaves)


def _exported(torch: Any, module: Any, positional: Any, named: dict[str, Any], title: str) -> Tape:
    try:
        with torch.no_grad():
            program = torch.export.export(module, positional, dict(sorted(named.items())), strict=False)
    except Exception as error:  # torch.export lets errors of every kind through, the model's own included
        reason = one_line(str(error).strip().partition("\n")[0], 300)
        raise BadInput(f"{title}: torch.export cannot follow it: {type(error).__name__}: {reason}") from error
    return tape_of_exported(program, name=title)


def bound(torch: Any, tape: Tape, state: Mapping[str, Any], leaves: Sequence[Any]) -> Prepared:
    """A tape with the tensors that a step begins with."""
    numbering = Numbering(tape)
    start: dict[int, Any] = {}

    def begin(value: Any, tensor: Any) -> None:
        start[numbering.number_of[id(value)]] = tensor

    for held in (tape.parameters, tape.buffers):
        for name, value in held.items():
            if name not in state:
                raise BadInput(f"{tape.trace.name} has no {name}; it is not what was captured")
            begin(value, state[name].detach())
    for name, value in tape.slots.items():
        begin(value, torch.zeros_like(state[name.rpartition(".")[0]].detach()))
    for name, (value, tensor) in tape.constants.items():
        if tensor.is_meta or type(tensor).__name__ == "FakeTensor":
            raise BadInput(f"{name} had no contents when it was captured; make it a buffer of the module")
        begin(value, tensor.detach())
    if len(leaves) != len(tape.inputs):
        raise BadInput(f"{tape.trace.name} was captured with {len(tape.inputs)} input tensors, got {len(leaves)}")
    for value, leaf in zip(tape.inputs, leaves, strict=True):
        begin(value, leaf.detach())
    for v, tensor in start.items():
        if tensor.is_meta:
            name = numbering.values[v].name
            raise BadInput(f"{name} is on the meta device and has no contents; load the weights first")
    return Prepared(tape, numbering, start)


def fresh_inputs(torch: Any, tensors: Sequence[Any], seed: int) -> list[Any]:
    """Other inputs of the same kind; numbers of classes and tokens change places, so that they stay in range."""
    generator = torch.Generator().manual_seed(seed)
    made = []
    for tensor in tensors:
        if tensor.is_floating_point():
            drawn = torch.randn(tensor.shape, generator=generator)
            made.append(drawn.to(tensor.dtype))
        else:
            order = torch.randperm(tensor.numel(), generator=generator)
            made.append(tensor.reshape(-1)[order].reshape(tensor.shape))
    return made


def _made_up(torch: Any, value: Any) -> Any:
    dtype = getattr(torch, _TORCH_DTYPES.get(value.dtype, "float32"))
    if dtype.is_floating_point:
        return torch.randn(value.shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    return torch.zeros(value.shape, dtype=dtype)


# Sending captures


def _private(path: Path) -> Path:
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    return path


def _pickled(torch: Any, tape: Tape) -> bytes:
    overload, higher = torch._ops.OpOverload, torch._ops.HigherOrderOperator

    class Pickler(pickle.Pickler):
        def reducer_override(self, given: Any) -> Any:
            if isinstance(given, overload):
                return operator_named, (given.namespace, given._opname, given._overloadname)
            if isinstance(given, higher):
                return operator_named, ("higher_order", given.name(), "")
            return NotImplemented

    stream = io.BytesIO()
    Pickler(stream, protocol=5).dump(tape)
    return stream.getvalue()


def operator_named(library: str, name: str, overload: str) -> Any:
    """An operator of torch by its name."""
    found = getattr(getattr(import_module("torch").ops, library), name)
    return getattr(found, overload) if overload else found
