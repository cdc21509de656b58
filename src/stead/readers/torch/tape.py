"""A training step that was written down, and its run on real tensors: the proof that a capture is complete.

In the order of capture every call runs as it was written down. In any other topological order of the graph only the
operators of the graph run, and views are taken when somebody looks through them: the same results then prove that
the graph has every dependency that it needs, those of writing in place included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from stead.errors import BadInput
from stead.files import collector_paused
from stead.graph import refreshed
from stead.readers.base import Model
from stead.readers.common.tied_updates import part_updates
from stead.readers.torch.aten import Value
from stead.readers.torch.aten_graph import Built, Trace, build_graph
from stead.readers.torch.exported import arguments_of, torch_package

Update = Literal["none", "sgd", "adam"]
UPDATES: tuple[Update, ...] = get_args(Update)


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a step gives on real tensors."""

    loss: Any  # None without one
    outputs: list[Any]
    gradients: dict[str, Any]  # by name of the parameter
    parameters: dict[str, Any]  # after the update
    buffers: dict[str, Any]  # after the step


@dataclass(slots=True)
class Tape:
    """A training step that was written down: a trace to make a graph of, and to run again on real tensors."""

    trace: Trace
    parameters: dict[str, Value] = field(default_factory=dict)
    buffers: dict[str, Value] = field(default_factory=dict)
    slots: dict[str, Value] = field(default_factory=dict)  # of the optimiser: "weight.exp_avg"
    inputs: list[Value] = field(default_factory=list)  # and targets, flat
    constants: dict[str, tuple[Value, Any]] = field(default_factory=dict)  # with the tensor itself
    outputs: list[Value] = field(default_factory=list)
    loss: Value | None = None
    gradients: dict[str, Value] = field(default_factory=dict)
    update: Update = "none"
    gaps: dict[int, tuple[int, ...]] = field(default_factory=dict)  # call: places of its results, if not all

    def build(self) -> Built:
        """The graph, and which operator runs each call."""
        with collector_paused():
            return build_graph(self.trace)

    def model(self) -> Model:
        """The graph with its remarks; the update of a tied weight is shared out among its uses.

        Updated weights reach their readers: operators of kind `Refresh`, of which no call is known, receive them.
        """
        built = self.build()
        return Model(refreshed(part_updates(built.graph)), notes=tuple(built.notes()))

    def replay(
        self,
        module: Any,
        inputs: Any,
        targets: Sequence[Any] = (),
        *,
        order: Sequence[int] | None = None,
    ) -> Replayed:
        """Run the same step on the parameters of a real module, which stay as they are.

        `order` lists the operators of `build().graph` in some topological order; without it they run as captured.
        """
        torch = torch_package("running captured graphs")
        return _replay(torch, self, module, arguments_of(torch, inputs), targets, order)


def _replay(
    torch: Any,
    tape: Tape,
    module: Any,
    arguments: Any,
    targets: Sequence[Any],
    order: Sequence[int] | None,
) -> Replayed:
    """Run every call of a tape in its order, or its operators in another one."""
    positional, named = arguments
    given = torch.utils._pytree.tree_leaves(
        (positional, [named[key] for key in sorted(named)], list(targets))
    )
    leaves = [leaf for leaf in given if isinstance(leaf, torch.Tensor)]
    if len(leaves) != len(tape.inputs):
        raise BadInput(f"the captured step has {len(tape.inputs)} input tensors, got {len(leaves)}")
    run = _Run(torch, tape, module)
    for value, leaf in zip(tape.inputs, leaves, strict=True):
        if tuple(leaf.shape) != value.shape:
            raise BadInput(f"input {value.name} was captured as {value.shape}, got {tuple(leaf.shape)}")
        run.tensors[id(value)] = leaf.detach()
    with torch.no_grad():
        if order is None:
            run.as_captured()
        else:
            run.in_order(order)
    return run.replayed()


class _Run:
    """Tensors on their way through a tape."""

    def __init__(self, torch: Any, tape: Tape, module: Any) -> None:
        self.torch = torch
        self.tape = tape
        parameters = dict(module.named_parameters(remove_duplicate=False))
        buffers = dict(module.named_buffers(remove_duplicate=False))
        missing = (tape.parameters.keys() - parameters.keys()) | (tape.buffers.keys() - buffers.keys())
        if missing:
            raise BadInput(
                f"the module has no {sorted(missing)[0]}; replay with the module that was captured"
            )
        first = next(iter(parameters.values()), None)
        self.device = first.device if first is not None else torch.device("cpu")
        changed = {value.storage for call in tape.trace.calls for value in call.written}
        self.tensors: dict[int, Any] = {}  # by id of a value
        self.waiting: dict[int, int] = {}  # id of a value: the view that gives it, not yet taken
        for held, values in ((parameters, tape.parameters), (buffers, tape.buffers)):
            for name, value in values.items():
                tensor = held[name].detach()
                self.tensors[id(value)] = tensor.clone() if value.storage in changed else tensor
        for name, value in tape.slots.items():
            self.tensors[id(value)] = torch.zeros_like(parameters[name.rpartition(".")[0]])
        for name, (value, tensor) in tape.constants.items():
            if tensor.is_meta or type(tensor).__name__ == "FakeTensor":
                raise BadInput(f"{name} had no contents when it was captured; make it a buffer of the module")
            self.tensors[id(value)] = tensor.detach().to(self.device)

    def as_captured(self) -> None:
        """Every call, forgetting tensors that nobody needs any more."""
        needed = self._last_use()
        for index in range(len(self.tape.trace.calls)):
            self._call(index)
            for key in needed.get(index, ()):
                self.tensors.pop(key, None)

    def in_order(self, order: Sequence[int]) -> None:
        """The operators of the graph in a topological order of it."""
        calls = self.tape.trace.calls
        operator_of = self.tape.build().operator_of
        runs = {operator_of[index]: index for index, call in enumerate(calls) if not call.folded}
        for index, call in enumerate(calls):
            if call.folded:
                self.waiting.update({id(value): index for value in call.writes})
        for operator in order:
            if operator in runs:  # inputs run nothing
                self._call(runs[operator])

    def _call(self, index: int) -> None:
        call = self.tape.trace.calls[index]
        arguments = [self._real(item) for item in call.arguments]
        named = {key: self._real(item) for key, item in call.named.items()}
        self._keep(index, call.writes, call.function(*arguments, **named))

    def _keep(self, index: int, writes: Sequence[Value], result: Any) -> None:
        if isinstance(result, list | tuple):
            places = self.tape.gaps.get(index, range(len(writes)))
            for value, place in zip(writes, places, strict=True):
                self.tensors[id(value)] = result[place]
        elif writes:
            self.tensors[id(writes[0])] = result

    def _last_use(self) -> dict[int, list[int]]:
        """Values by the call that is the last to need them; results of the step are needed to the end."""
        tape = self.tape
        last: dict[int, int] = {}
        for index, call in enumerate(tape.trace.calls):
            for value in (*call.reads(), *call.writes):
                last[id(value)] = index
        for value in (
            *tape.outputs,
            *tape.gradients.values(),
            *tape.parameters.values(),
            *tape.buffers.values(),
        ):
            last.pop(id(value), None)
        if tape.loss is not None:
            last.pop(id(tape.loss), None)
        needed: dict[int, list[int]] = {}
        for key, index in last.items():
            needed.setdefault(index, []).append(key)
        return needed

    def _real(self, item: Any) -> Any:
        if isinstance(item, Value):
            if id(item) not in self.tensors and id(item) in self.waiting:
                self._call(self.waiting[id(item)])
            return self.tensors[id(item)]
        if isinstance(item, list | tuple):
            return [self._real(one) for one in item]
        if isinstance(item, self.torch.device):
            return self.device
        return item

    def replayed(self) -> Replayed:
        tape, real = self.tape, self._real
        return Replayed(
            real(tape.loss),
            [real(value) for value in tape.outputs],
            {name: real(value) for name, value in tape.gradients.items()},
            {name: real(value) for name, value in tape.parameters.items()},
            {name: real(value) for name, value in tape.buffers.items()},
        )
