"""Runs a training step on tensors without data and writes down every operator.

Three things are kept for each operator besides what it does: the call of the module that it is part of, the forward
operator that a backward one belongs to, and whether it adds up gradients. The first comes from hooks on modules.
The second comes from autograd: its nodes are numbered in the order in which forward operators make them, and a
backward operator runs in the name of a node. The third comes from hooks on nodes: what runs in the name of a node
after the node is done is autograd adding up what several readers of a tensor send back.
"""

from __future__ import annotations

import copy
import inspect
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from typing import Any

from stead.errors import BadInput
from stead.graph import Phase
from stead.printing.wording import one_line
from stead.readers.torch.aten import (
    VIEWS,
    Value,
    is_allocation,
    is_in_place,
    region_of,
    short_name,
    shown_part,
    updated_statistics,
)
from stead.readers.torch.aten_graph import Call, Trace, Weight
from stead.readers.torch.exported import dtype_of
from stead.readers.torch.tape import Tape, Update

SGD_RATE = 1e-2
ADAM_RATE, ADAM_BETAS, ADAM_EPSILON = 1e-3, (0.9, 0.999), 1e-8
_SLOTS: dict[Update, tuple[str, ...]] = {"none": (), "sgd": (), "adam": ("exp_avg", "exp_avg_sq")}
LOSS = "loss"  # module path of operators of the loss


@dataclass(frozen=True, slots=True)
class Step:
    """What is asked for."""

    module: Any
    inputs: tuple[Any, ...]
    named_inputs: Mapping[str, Any]
    loss_fn: Callable[..., Any] | None
    targets: tuple[Any, ...]
    update: Update
    name: str


class NeedsFake(Exception):
    """On `meta`, torch takes apart an operator that it keeps whole on real devices."""


@dataclass(frozen=True, slots=True)
class _Known:
    """What there is to know about an operator of torch."""

    kind: str
    name: str
    ignored: bool
    allocates: bool
    turns: bool  # it is a view in place: `transpose_`
    batch_norm: bool  # it may write running statistics, of which its schema is silent
    written: tuple[tuple[int, str], ...]  # positions and names of arguments that it writes into


class Recording:
    """Runs a step and writes down what happens."""

    def __init__(self, torch: Any, step: Step, device: str) -> None:
        self.torch = torch
        self.step = step
        self.device = device
        self.tape = Tape(Trace(step.name), update=step.update)
        self.trace = self.tape.trace
        self.values: dict[int, Value] = {}  # by id of a tensor
        self.alive: list[Any] = []  # tensors, so that no id is used twice
        self.storages: dict[int, int] = {}  # address of a storage: its number
        self.dtypes: dict[Any, tuple[str, int]] = {}
        self.known: dict[Any, _Known] = {}
        self.name_counts: dict[str, int] = {}
        self.module_calls: dict[str, int] = {}
        self.modules: list[tuple[str, str]] = [("", "")]  # open calls: (path of calls, name of the module)
        self.path = ""
        self.phase: Phase = "forward"
        self.sequences: list[int] = []  # numbers of autograd nodes, rising
        self.makers: list[int] = []  # [sequence]: the forward call that made the node
        self.finished = -1  # sequence number of the autograd node whose own work is done
        self.additions: list[int] = []  # calls that add up gradients
        self.parameter = -1  # weight that is being updated
        self.weight_of: dict[str, int] = {}
        self.slots: dict[str, list[Any]] = {}  # of the optimiser, by parameter
        self.sequence_number = torch._C._autograd._get_sequence_nr
        self.current_node = torch._C._current_autograd_node
        self.device_query = torch.ops.prim.device.default
        self.taken_apart = torch.ops.aten._safe_softmax.default if device == "meta" else None

    def run(self) -> None:
        """The whole step; lets go of all tensors, which know this recording through their hooks."""
        try:
            self._run()
        finally:
            self.alive.clear()
            self.values.clear()
            self.slots.clear()

    def _run(self) -> None:
        torch, step = self.torch, self.step
        module, inputs, named, targets = self._without_data()
        self._watch_modules(module)
        training = step.loss_fn is not None
        with _mode(torch)(self), torch.set_grad_enabled(training):
            output = module(*inputs, **named)
            if step.loss_fn is None:
                self.tape.outputs = self._values_of(output)
                self.trace.outputs = self.tape.outputs
                return
            self.path = LOSS
            loss = step.loss_fn(output, *targets)
            self.tape.outputs = self._values_of(output)
            self._backward(module, loss)

    # Tensors without data

    def _without_data(self) -> tuple[Any, tuple[Any, ...], dict[str, Any], tuple[Any, ...]]:
        """The module, its inputs and the targets, with the same shapes and nothing in them."""
        step = self.step
        memo: dict[int, Any] = {}
        for name, parameter in step.module.named_parameters():
            held = memo[id(parameter)] = self._empty_parameter(parameter)
            self.tape.parameters[name] = self._held(held, name)
            if parameter.requires_grad:
                self.slots[name] = [self._empty(parameter) for _ in _SLOTS[step.update]]
        for name, buffer in step.module.named_buffers():
            held = memo[id(buffer)] = self._empty(buffer)
            self.tape.buffers[name] = self._held(held, name)
        for part in step.module.modules():
            for held in vars(part).values():
                if isinstance(held, self.torch.Tensor) and held.grad_fn is not None:  # cannot be copied
                    memo[id(held)] = self._empty(held)
        module = copy.deepcopy(step.module, memo)
        names = list(inspect.signature(step.module.forward).parameters)
        inputs = [
            self._input(held, names[min(at, len(names) - 1)] if names else "input")
            for at, held in enumerate(step.inputs)
        ]
        named = {key: self._input(held, key) for key, held in sorted(step.named_inputs.items())}
        targets = [self._input(held, "target") for held in step.targets]
        return module, tuple(inputs), named, tuple(targets)

    def _empty(self, tensor: Any) -> Any:
        return self.torch.empty_strided(
            tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype, device=self.device
        )

    def _empty_parameter(self, parameter: Any) -> Any:
        return self.torch.nn.Parameter(self._empty(parameter), requires_grad=parameter.requires_grad)

    def _held(self, tensor: Any, name: str, goes_with: int = -1) -> Value:
        """A weight; it stays where its users are."""
        value = self._new_value(tensor, name)
        self.weight_of[name] = len(self.trace.weights)
        self.trace.weights.append(Weight(name, value.size_bytes, value.storage, goes_with))
        return value

    def _input(self, given: Any, name: str) -> Any:
        """An argument of the model with tensors that hold nothing."""
        tree = self.torch.utils._pytree
        leaves, structure = tree.tree_flatten(given)
        made = []
        for leaf in leaves:
            if isinstance(leaf, self.torch.Tensor):
                held = self._empty(leaf).requires_grad_(leaf.requires_grad)
                value = self._new_value(held, name)
                self.tape.inputs.append(value)
                self.trace.inputs.append(value)
                leaf = held
            made.append(leaf)
        return tree.tree_unflatten(made, structure)

    def _constant(self, tensor: Any) -> Value:
        """A tensor that the model brings from elsewhere."""
        name = self._unique("constant")
        value = self._held(tensor, name)
        self.tape.constants[name] = (value, tensor)
        return value

    def _values_of(self, output: Any) -> list[Value]:
        leaves = self.torch.utils._pytree.tree_leaves(output)
        found = (self.values.get(id(leaf)) for leaf in leaves if isinstance(leaf, self.torch.Tensor))
        return [value for value in found if value is not None]

    # Operators

    def record(self, function: Any, arguments: tuple[Any, ...], named: dict[str, Any], result: Any) -> None:
        """Write down one operator that has just run."""
        known = self.known.get(function) or self._look_up(function)
        if known.ignored:
            return
        bound = tuple(map(self._bound, arguments))
        bound_named = {key: self._bound(item) for key, item in named.items()} if named else {}
        name = self._unique(known.name)
        fresh = len(self.trace.storages)
        if known.turns:
            self.values.pop(id(result), None)  # the same tensor with another shape
        writes = self._results(result, name)
        written = self._written(known, bound, bound_named)
        if not writes and not written:
            return
        folded = known.allocates or (not written and len(self.trace.storages) == fresh)
        index = len(self.trace.calls)
        call = Call(name, known.kind, bound, bound_named, writes, written, folded, self.path, self.phase)
        call.function = function
        if isinstance(result, list | tuple) and len(writes) < len(result):
            places = (at for at, item in enumerate(result) if isinstance(item, self.torch.Tensor))
            self.tape.gaps[index] = tuple(places)
        if self.phase != "update":
            self._link(index, call)
        else:
            call.parameter = self.parameter
        self.trace.calls.append(call)

    def _link(self, index: int, call: Call) -> None:
        """The forward call of a backward one, through the sequence number of the autograd node between them."""
        if self.phase == "forward":
            self._made(index)
            return
        node = self.current_node()
        first = node is None  # the gradient of the loss itself
        sequence = self.sequences[-1] if first else node._sequence_nr()
        found = bisect_right(self.sequences, sequence) - 1  # nodes for writing in place come after their call
        call.twin = self.makers[max(found, 0)] if self.makers else -1
        if not first and sequence == self.finished and not call.folded:
            self.additions.append(index)
        self._made(call.twin)  # where parts of the forward pass run again
        if call.twin >= 0:
            call.module = self.trace.calls[call.twin].module

    def _made(self, index: int) -> None:
        """The autograd node that was made last, if it is new, belongs to a call."""
        sequence = self.sequence_number() - 1
        if not self.sequences or sequence > self.sequences[-1]:
            self.sequences.append(sequence)
            self.makers.append(index)

    def _bound(self, item: Any) -> Any:
        """An argument with values in the place of tensors."""
        if isinstance(item, self.torch.Tensor):
            return self.values.get(id(item)) or self._constant(item)
        if isinstance(item, list | tuple) and item and not isinstance(item[0], int | float):
            return [self._bound(one) for one in item]
        return item

    def _results(self, result: Any, name: str) -> list[Value]:
        if isinstance(result, self.torch.Tensor):
            return [self.values.get(id(result)) or self._new_value(result, name)]
        if not isinstance(result, list | tuple):
            return []
        return [
            self.values.get(id(item)) or self._new_value(item, f"{name}:{at}" if at else name)
            for at, item in enumerate(result)
            if isinstance(item, self.torch.Tensor)
        ]

    def _new_value(self, tensor: Any, name: str) -> Value:
        dtype, bits = self.dtypes.get(tensor.dtype) or self._dtype(tensor.dtype)
        shape = tuple(tensor.shape)
        try:
            place = tensor.untyped_storage()._cdata
        except NotImplementedError:  # sparse tensors have none
            place = -id(tensor)
        number = self.storages.get(place)
        size = tensor.numel() * bits // 8
        if number is None:
            number = self.storages[place] = len(self.trace.storages)
            value = Value(name, shape, dtype, size, number, None, bits)
            self.trace.storages.append(value)
        else:
            whole = self.trace.storages[number]
            value = Value(name, shape, dtype, whole.size_bytes, number, None, bits)
            if bits == whole.bits:
                region = region_of(tensor.storage_offset(), shape, tensor.stride())
                value.region, value.size_bytes = shown_part(region, bits, whole.size_bytes)
        self.values[id(tensor)] = value
        self.alive.append(tensor)
        return value

    def _dtype(self, dtype: Any) -> tuple[str, int]:
        found = self.dtypes[dtype] = dtype_of(dtype)
        return found

    def _unique(self, name: str) -> str:
        count = self.name_counts.get(name, 0)
        self.name_counts[name] = count + 1
        return f"{name}_{count}" if count else name

    def _look_up(self, function: Any) -> _Known:
        if function is self.taken_apart:
            raise NeedsFake
        kind = f"{function.namespace}.{function._opname}"
        turns = is_in_place(kind) and short_name(kind) in VIEWS
        written = (
            ()
            if turns
            else tuple(
                (position, argument.name)
                for position, argument in enumerate(function._schema.arguments)
                if argument.alias_info is not None and argument.alias_info.is_write
            )
        )
        known = _Known(
            kind,
            function._opname,
            function is self.device_query,
            is_allocation(kind),
            turns,
            "batch_norm" in kind,
            written,
        )
        self.known[function] = known
        return known

    def _written(
        self, known: _Known, bound: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[Value, ...] | list[Value]:
        if not known.written and not known.batch_norm:
            return ()
        written: list[Value] = []
        for position, name in known.written:
            given = bound[position] if position < len(bound) else named.get(name)
            for item in given if isinstance(given, list) else (given,):
                if isinstance(item, Value):
                    written.append(item)
        return written or updated_statistics(known.kind, bound)

    # Modules

    def _watch_modules(self, module: Any) -> None:
        """Follow calls of modules; the hooks go away with the copy that they are on."""
        for name, part in module.named_modules():
            if name:
                part.register_forward_pre_hook(partial(self._enter, name))
                part.register_forward_hook(self._leave, always_call=True)

    def _enter(self, name: str, module: Any, inputs: Any) -> None:
        path, outer = self.modules[-1]
        count = self.module_calls.get(name, 0)
        self.module_calls[name] = count + 1
        inner = name[len(outer) + 1 :] if outer and name.startswith(f"{outer}.") else name
        self.path = f"{path}/{inner}#{count}" if path else f"{inner}#{count}"
        self.modules.append((self.path, name))

    def _leave(self, module: Any, inputs: Any, output: Any) -> None:
        self.modules.pop()
        self.path = self.modules[-1][0]

    # Backward and update

    def _backward(self, module: Any, loss: Any) -> None:
        torch = self.torch
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            what = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else repr(loss)
            raise BadInput(f"{self.step.name}: the loss must be a single number, got {one_line(what, 100)}")
        trained = {name: held for name, held in module.named_parameters() if held.requires_grad}
        if loss.grad_fn is None or not trained:
            raise BadInput(f"{self.step.name}: the loss depends on no parameter that is trained")
        self.tape.loss = self.values[id(loss)]
        self.trace.outputs = [self.tape.loss]
        self._watch_nodes(loss.grad_fn)
        self.phase, self.path = "backward", ""
        found = torch.autograd.grad(loss, list(trained.values()), allow_unused=True)
        gradients = {name: grad for name, grad in zip(trained, found, strict=True) if grad is not None}
        self.tape.gradients = {name: self.values[id(grad)] for name, grad in gradients.items()}
        self._settle_additions()
        self.phase = "update"
        with torch.no_grad():
            for name, gradient in gradients.items():
                self._update(name, trained[name], gradient)

    def _watch_nodes(self, root: Any) -> None:
        """Learn when an autograd node is done: what runs after that in its name adds up gradients."""
        seen = {root}
        waiting = [root]
        while waiting:
            node = waiting.pop()
            node.register_hook(self._node_done)
            for following, _ in node.next_functions:
                if following is not None and following not in seen:
                    seen.add(following)
                    waiting.append(following)

    def _node_done(self, inputs: Any, outputs: Any) -> None:
        self.finished = self.current_node()._sequence_nr()

    def _settle_additions(self) -> None:
        """Sums of gradients belong to their parameter, or to the forward operator whose result they are about."""
        calls, trace = self.trace.calls, self.trace
        additions = set(self.additions)
        parameter_of = {
            value.storage: self.weight_of[name] for name, value in self.tape.gradients.items()
        }  # storage: weight
        reader: dict[int, int] = {}  # storage: forward call of the first backward call that reads it
        for index in range(len(calls) - 1, -1, -1):
            call = calls[index]
            if call.phase == "forward":
                break
            if call.folded:
                continue
            read = [value.storage for value in call.reads()]
            if index in additions:
                result = call.writes[0].storage
                weight = parameter_of.get(result, -1)
                if weight >= 0:
                    call.parameter, call.twin = weight, -1
                    call.module = trace.weights[weight].module
                    parameter_of.update(dict.fromkeys(read, weight))
                    continue
                if reader.get(result, -1) >= 0:
                    call.twin = reader[result]
                    call.module = calls[call.twin].module
            for storage in read:
                reader[storage] = call.twin

    def _update(self, name: str, held: Any, gradient: Any) -> None:
        """One step of the optimiser, as torch.optim takes the first one."""
        weight = self.weight_of[name]
        self.parameter, self.path = weight, self.trace.weights[weight].module
        value = self.tape.gradients[name]
        self.trace.weights.append(
            Weight(f"{name}.grad", value.size_bytes, goes_with=weight, filled_with=value.storage)
        )
        slots = self.slots[name]
        for slot, empty in zip(_SLOTS[self.step.update], slots, strict=True):
            self.tape.slots[f"{name}.{slot}"] = self._held(empty, f"{name}.{slot}", goes_with=weight)
        if self.step.update == "sgd":
            held.add_(gradient, alpha=-SGD_RATE)
        elif self.step.update == "adam":
            _adam(held, gradient, *slots)


def _adam(held: Any, gradient: Any, mean: Any, square: Any) -> None:
    first, second = ADAM_BETAS
    mean.lerp_(gradient, 1 - first)
    square.mul_(second).addcmul_(gradient, gradient, value=1 - second)
    spread = (square.sqrt() / (1 - second) ** 0.5).add_(ADAM_EPSILON)
    held.addcdiv_(mean, spread, value=-ADAM_RATE / (1 - first))


@cache
def _mode(torch: Any) -> Any:
    """The dispatch mode that shows a recording every operator."""
    base = import_module("torch.utils._python_dispatch").TorchDispatchMode

    def create(self: Any, recording: Recording) -> None:
        base.__init__(self)
        self.record = recording.record

    def dispatch(self: Any, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        result = function(*arguments, **(named or {}))
        self.record(function, arguments, named, result)
        return result

    return type("Recorder", (base,), {"__init__": create, "__torch_dispatch__": dispatch})
