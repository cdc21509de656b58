"""Inference graphs of PyTorch modules by `torch.export`.

Export keeps linear layers, normalisations, attention and recurrent layers whole, which is the granularity that
placed pieces are run in. Modules may live on the `meta` device: no weight needs memory. For graphs of training,
and of models that unroll to tens of thousands of operators, see `torch_capture`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from importlib import import_module
from operator import getitem
from typing import TYPE_CHECKING, Any

from stead.errors import BadInput, MissingExtra
from stead.files import collector_paused
from stead.printing.wording import one_line
from stead.readers.base import Model
from stead.readers.common.checked_values import about
from stead.readers.common.open_sizes import Given, check_shapes
from stead.readers.common.symbolic_sizes import SymbolicSizes
from stead.readers.torch.aten import DTYPES, Value, values_in
from stead.readers.torch.aten_graph import Trace, build_graph
from stead.readers.torch.aten_record import (
    Layout,
    Recorder,
    bodies_note,
    body_price,
    clean_module,
    kind_of,
    runs_once,
    trips,
)

if TYPE_CHECKING:
    from stead.readers.torch.tape import Tape


def torch_package(purpose: str) -> Any:
    """The package torch, or MissingExtra."""
    try:
        return import_module("torch")
    except ImportError:
        raise MissingExtra("torch", "torch", purpose) from None


def from_torch(
    module: Any,
    example_inputs: Sequence[Any] | Mapping[str, Any] | Any,
    *,
    dynamic_shapes: Any = None,
    shapes: Mapping[str, Given] | None = None,
    name: str = "",
) -> Model:
    """The inference graph of a module, as `torch.export` sees it on example inputs.

    `example_inputs` are the arguments of `forward`: a tuple, a mapping by name, or a single tensor. They and the
    module may be on the `meta` device. `dynamic_shapes` is handed to `torch.export`; `shapes` sets dimensions that
    stay open, by symbol or as `"x[0]"`.
    """
    torch = torch_package("reading PyTorch modules")
    positional, named = arguments_of(torch, example_inputs)
    title = name or type(module).__name__
    try:
        with torch.no_grad():
            program = torch.export.export(
                module, positional, dict(sorted(named.items())), dynamic_shapes=dynamic_shapes, strict=False
            )
    except Exception as error:  # torch.export lets errors of every kind through, the model's own included
        reason = one_line(str(error).strip().partition("\n")[0], 300)
        raise BadInput(f"{title}: torch.export cannot follow it: {type(error).__name__}: {reason}") from error
    model = from_exported(program, shapes=shapes, name=title)
    if getattr(module, "training", False) and _differs_in_training(torch, module):
        note = "the module is in training mode, and so is its graph; call eval() first for inference"
        return Model(model.graph, notes=(*model.notes, note), assumed=model.assumed)
    return model


def from_exported(program: Any, *, shapes: Mapping[str, Given] | None = None, name: str = "exported") -> Model:
    """The graph of an `ExportedProgram`; open dimensions that `shapes` leaves out are as in its example."""
    found = _program(program, shapes, name)
    with collector_paused():
        return found.model()


def tape_of_exported(program: Any, *, name: str = "exported") -> Tape:
    """An `ExportedProgram` as a tape: the operators of `from_exported`, at the sizes of its example, to be run."""
    return _program(program, None, name).tape()


def _program(program: Any, shapes: Mapping[str, Given] | None, name: str) -> _Program:
    """What an exported program does, written down."""
    torch = torch_package("reading exported programs")
    check_shapes(shapes or {})
    found = _Program(torch, program, name, SymbolicSizes(shapes or {}))
    with about(one_line(name, 100)), collector_paused():
        found.write_down()
    return found


def arguments_of(torch: Any, inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Example inputs as positional and named arguments."""
    if isinstance(inputs, torch.Tensor):
        return (inputs,), {}
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if isinstance(inputs, tuple | list):
        return tuple(inputs), {}
    raise BadInput(
        f"example inputs must be a tuple, a mapping or a tensor, got {type(inputs).__name__}; "
        "wrap a single argument of another kind in a tuple"
    )


def dtype_of(torch_dtype: Any) -> tuple[str, int]:
    """What stead calls a dtype of torch, and the bits of an element."""
    name = str(torch_dtype).removeprefix("torch.")
    return DTYPES.get(name) or (name, 8 * torch_dtype.itemsize)


def module_path(stack: Mapping[str, Any] | None) -> str:
    """The innermost module of a stack that export recorded, without the number of its call."""
    if not stack:
        return ""
    entry = list(stack.values())[-1]
    return clean_module(str(entry[0] if isinstance(entry, tuple) else entry))


def _differs_in_training(torch: Any, module: Any) -> bool:
    kinds = (torch.nn.modules.dropout._DropoutNd, torch.nn.modules.batchnorm._NormBase)
    return any(isinstance(part, kinds) and part.training for part in module.modules())


class _Program:
    """One exported program on its way to a Model."""

    def __init__(self, torch: Any, program: Any, name: str, sizes: SymbolicSizes) -> None:
        self.torch = torch
        self.program = program
        self.sizes = sizes
        self.record = Recorder(name)
        self.bodies: list[str] = []  # kinds of operators that stay whole although they hold graphs
        self.held: dict[str, Value] = {}  # weights by name
        self.constants: dict[str, tuple[Value, Any]] = {}  # with the tensor itself
        self.gaps: dict[int, tuple[int, ...]] = {}  # call: places of its results, if not all

    def write_down(self) -> None:
        """Record every operator."""
        placeholders = [node for node in self.program.graph.nodes if node.op == "placeholder"]
        specs = self.program.graph_signature.input_specs
        for node in placeholders:
            self._learn(node)
        self.sizes.check()
        known: dict[Any, Any] = {}
        memory: dict[Any, Value] = {}  # of weights
        for node, spec in zip(placeholders, specs, strict=True):
            known[node] = self._placeholder(node, spec, memory)
        outputs = self._run(self.program.graph_module, known)
        for value, spec in zip(outputs, self.program.graph_signature.output_specs, strict=True):
            if spec.kind.name in ("USER_OUTPUT", "LOSS_OUTPUT"):  # new contents of buffers stay inside
                self.record.trace.outputs.extend(values_in(value))

    def model(self) -> Model:
        """The graph with its remarks."""
        built = build_graph(self.record.trace)
        notes = (*built.notes(), *bodies_note(self.bodies), *self.sizes.notes())
        return Model(built.graph, notes=notes, assumed=self.sizes.assumed)

    def tape(self) -> Tape:
        """What was recorded, to be run on real tensors."""
        from stead.readers.torch.tape import Tape

        trace, signature = self.record.trace, self.program.graph_signature
        parameters = {name: self.held[name] for name in signature.parameters if name in self.held}
        return Tape(
            trace,
            parameters=parameters,
            buffers={name: value for name, value in self.held.items() if name not in parameters},
            inputs=list(trace.inputs),
            constants=self.constants,
            outputs=list(trace.outputs),
            gaps=self.gaps,
        )

    # Sizes and layouts

    def _learn(self, node: Any) -> None:
        held = node.meta.get("val")
        for axis, size in enumerate(held.shape if isinstance(held, self.torch.Tensor) else ()):
            if isinstance(size, int):
                self.sizes.fixed(node.name, axis, size, len(held.shape))
            else:
                self.sizes.learn(node.name, axis, _text(size), size.node.hint, len(held.shape))

    def _number(self, size: Any) -> int:
        return size if isinstance(size, int) else self.sizes.size(_text(size), size.node.hint)

    def _layout(self, name: str, held: Any) -> Layout:
        dtype, bits = dtype_of(held.dtype)
        dense = held.layout == self.torch.strided
        return Layout(
            name,
            tuple(self._number(size) for size in held.shape),
            dtype,
            bits,
            tuple(self._number(stride) for stride in held.stride()) if dense else (),
            self._number(held.storage_offset()) if dense else 0,
        )

    def _plain(self, held: Any) -> Any:
        """A number that follows from sizes, as a number."""
        if isinstance(held, self.torch.SymInt):
            return self._number(held)
        if isinstance(held, self.torch.SymFloat | self.torch.SymBool):
            return held.node.hint
        return held

    # Weights and inputs

    def _placeholder(self, node: Any, spec: Any, memory: dict[Any, Value]) -> Any:
        held = node.meta.get("val")
        if not isinstance(held, self.torch.Tensor):
            return self._plain(held)
        layout = self._layout(node.name, held)
        if spec.kind.name not in ("PARAMETER", "BUFFER", "CONSTANT_TENSOR"):
            return self.record.input(layout)
        key = self._memory_key(spec.target)
        value = self.record.weight(layout, spec.target, tied_to=memory.get(key))
        if key is not None:
            memory.setdefault(key, value)
        if spec.kind.name == "CONSTANT_TENSOR":
            self.constants[spec.target] = value, self.program.constants[spec.target]
        else:
            self.held[spec.target] = value
        return value

    def _memory_key(self, name: str) -> Any:
        """The same for two names of one tensor."""
        held = self.program.state_dict.get(name)
        if held is None:
            held = self.program.constants.get(name)
        if not isinstance(held, self.torch.Tensor):
            return None
        layout = tuple(held.shape), tuple(held.stride()), held.storage_offset()
        return held.untyped_storage()._cdata, layout

    # Operators

    def _run(self, owner: Any, known: dict[Any, Any]) -> Any:
        """Record the nodes of a graph module; gives what it returns."""
        for node in owner.graph.nodes:
            if node.op == "get_attr":
                known[node] = reduce(getattr, node.target.split("."), owner)
            elif node.op == "call_function":
                known[node] = self._call(node, known)
            elif node.op == "output":
                return self._resolved(node.args[0], known)
        return None

    def _call(self, node: Any, known: dict[Any, Any]) -> Any:
        arguments = [self._resolved(item, known) for item in node.args]
        if node.target is getitem:
            items, position = arguments
            return items[position] if isinstance(items, list | tuple) else self._plain(node.meta.get("val"))
        named = {key: self._resolved(item, known) for key, item in node.kwargs.items()}
        bodies = [one for one in arguments if isinstance(one, self.torch.fx.GraphModule)]
        kind = kind_of(_target(node.target))
        if runs_once(kind, len(bodies)):
            return self._inlined(node, bodies[0], arguments)
        price, inner_bytes, function = None, 0.0, node.target
        if bodies:
            self.bodies.append(kind)
            times = trips(kind, arguments)
            price, inner_bytes = body_price([self._inside(body) for body in bodies], times)
            function = WithBodies(node.target, tuple(_places_of(arguments, bodies)))
            arguments = [one for one in arguments if one not in bodies]
        held = node.meta.get("val")
        results = self._results(node, held)
        if isinstance(held, list | tuple) and len(results) < len(held):
            self.gaps[len(self.record.trace.calls)] = tuple(results)
        made = self.record.call(
            node.name,
            kind,
            arguments,
            named,
            list(results.values()),
            module=module_path(node.meta.get("nn_module_stack")),
            written=_written(node.target, arguments, named),
            price=price,
            inner_bytes=inner_bytes,
            function=function,
        )
        if isinstance(held, list | tuple):
            found = dict(zip(results, made, strict=True))
            return [found.get(position, self._plain(item)) for position, item in enumerate(held)]
        return made[0] if made and results else self._plain(held)

    def _results(self, node: Any, held: Any) -> dict[int, Layout]:
        """Layouts of the tensors that a node gives, by position."""
        if isinstance(held, self.torch.Tensor):
            return {0: self._layout(node.name, held)}
        if not isinstance(held, list | tuple):
            return {}
        names = {user.args[1]: user.name for user in node.users if user.target is getitem}
        return {
            position: self._layout(names.get(position, f"{node.name}_unused_{position}"), item)
            for position, item in enumerate(held)
            if isinstance(item, self.torch.Tensor)
        }

    def _inlined(self, node: Any, body: Any, arguments: Sequence[Any]) -> Any:
        """A body in the place of the operator around it."""
        entries = [inner for inner in body.graph.nodes if inner.op == "placeholder"]
        operands = arguments[len(arguments) - len(entries) :]
        result = self._run(body, dict(zip(entries, operands, strict=True)))
        several = isinstance(node.meta.get("val"), list | tuple)
        return [result] if several and not isinstance(result, list | tuple) else result

    def _inside(self, body: Any) -> Trace:
        """What a body does, apart from everything around it."""
        outer, self.record = self.record, Recorder("")
        known: dict[Any, Any] = {}
        for node in body.graph.nodes:
            if node.op == "placeholder":
                held = node.meta.get("val")
                tensor = isinstance(held, self.torch.Tensor)
                known[node] = (
                    self.record.input(self._layout(node.name, held)) if tensor else self._plain(held)
                )
        self._run(body, known)
        inner, self.record = self.record, outer
        return inner.trace

    def _resolved(self, item: Any, known: Mapping[Any, Any]) -> Any:
        """An argument with tensors and numbers in the place of nodes."""
        if isinstance(item, self.torch.fx.Node):
            return known[item]
        if isinstance(item, list | tuple):
            return [self._resolved(one, known) for one in item]
        if isinstance(item, dict):
            return {key: self._resolved(one, known) for key, one in item.items()}
        return item


@dataclass(frozen=True, slots=True)
class WithBodies:
    """An operator with its graphs, to be called without them."""

    function: Any
    bodies: tuple[tuple[int, Any], ...]  # (place among all arguments, graph)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        given = list(arguments)
        for place, body in self.bodies:
            given.insert(place, body)
        return self.function(*given, **named)


def _places_of(arguments: Sequence[Any], bodies: Sequence[Any]) -> list[tuple[int, Any]]:
    return [(place, one) for place, one in enumerate(arguments) if any(one is body for body in bodies)]


def _text(size: Any) -> str:
    """The expression of an open size."""
    text: str = import_module("sympy").srepr(size.node.expr)
    return text


def _target(target: Any) -> str:
    """How a file names the target of a call."""
    if hasattr(target, "namespace"):
        return f"torch.ops.{target.namespace}.{getattr(target, '_opname', target.__name__)}"
    return f"{getattr(target, '__module__', '')}.{getattr(target, '__name__', target)}"


def _written(target: Any, arguments: Sequence[Any], named: Mapping[str, Any]) -> list[Value] | None:
    """Arguments that the schema of an operator says it writes into; None without a schema."""
    schema = getattr(target, "_schema", None)
    if schema is None:
        return None
    written: list[Value] = []
    for position, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = arguments[position] if position < len(arguments) else named.get(argument.name)
            written.extend(values_in(given))
    return written
