"""Cuts an exported program into the stages of a pipeline, by the operators of a plan.

    stages    numbers along every edge do not fall; what depends on inputs and constants alone may be anywhere
    weights   belong to each stage that reads them; the gradients of a trained one are added up over its stages
    live      what one stage makes and a later one reads passes through all stages between, as runtimes send no further
    cheap     what depends on inputs and constants alone is computed again where that takes less time than to send it
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import getitem
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stead.errors import BadInput
from stead.graph import Graph
from stead.plan import Plan
from stead.readers.torch.aten import Value
from stead.readers.torch.tape import Tape


def stage_numbers(graph: Graph, row: NDArray[Any], loose: NDArray[np.bool_]) -> NDArray[np.int64]:  # [operator]
    """The stage of each operator: devices in the order in which they are first needed, raised along edges."""
    order: dict[int, int] = {}
    for v in np.flatnonzero(~loose).tolist():
        order.setdefault(int(row[v]), len(order))
    stage = np.array([order.get(int(d), 0) for d in row], dtype=np.int64)
    producers = graph.tensor_producer
    for v in range(len(graph)):
        reads = producers[graph.read_tensors[graph.read_first[v] : graph.read_first[v + 1]]]
        firm = reads[~loose[reads]]
        if firm.size and not loose[v]:
            stage[v] = max(stage[v], int(stage[firm].max()))
    return stage


def stage_devices(row: NDArray[Any], loose: NDArray[np.bool_]) -> list[int]:
    """The device of each stage."""
    return list(dict.fromkeys(row[~loose].tolist()))


def loose_operators(graph: Graph, constants: Callable[[str], bool]) -> NDArray[np.bool_]:  # [operator]
    """Operators that depend on inputs and constants alone: every stage can run them for itself."""
    bound = np.zeros(len(graph), dtype=bool)
    for weight, user in zip(graph.weight_of_use.tolist(), graph.weight_users.tolist(), strict=True):
        bound[user] |= not constants(graph.weight_names[weight])
    producers = graph.tensor_producer
    for v in range(len(graph)):
        reads = producers[graph.read_tensors[graph.read_first[v] : graph.read_first[v + 1]]]
        bound[v] |= bool(bound[reads].any())
    if bound.all() or not bound.any():
        return np.zeros(len(graph), dtype=bool)
    return ~bound


@dataclass(slots=True)
class Stage:
    """One stage on its way to a module."""

    number: int
    device: str
    takes: list[Value] = field(default_factory=list)
    gives: list[Value] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)
    weights: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Shared:
    """A parameter that several stages read, each in a copy of its own."""

    names: tuple[str, ...]  # all that it goes by
    stages: tuple[int, ...]


@dataclass(slots=True)
class Cut:
    """A program, cut."""

    tape: Tape
    stages: list[Stage]
    shared: tuple[Shared, ...]


def cut(tape: Tape, plan: Plan, loose: NDArray[np.bool_]) -> Cut:
    """The stages of a plan's program."""
    return _Cutter(tape, plan, loose).cut()


class _Cutter:
    def __init__(self, tape: Tape, plan: Plan, loose: NDArray[np.bool_]) -> None:
        self.tape, self.plan = tape, plan
        self.calls = tape.trace.calls
        built = tape.build()
        index = {name: v for v, name in enumerate(plan.problem.graph.operator_names)}
        strange = [name for name in built.graph.operator_names if name not in index]
        if strange or len(built.graph) != len(index):
            first = f"the plan has no {strange[0]!r}" if strange else "it has another number of operators"
            raise BadInput(f"the program is not the one that the plan was made of: {first}")
        operators = [index[name] for name in built.graph.operator_names]
        self.home = [operators[v] if v >= 0 else -1 for v in built.operator_of]  # [call]: operator of the plan
        self.loose = loose
        row = plan.placement.devices
        self.stage = stage_numbers(plan.problem.graph, row, loose)
        self.devices = stage_devices(row, loose)
        self.maker = {id(value): n for n, call in reversed(list(enumerate(self.calls))) for value in call.writes}
        self.weight_names: dict[int, list[str]] = {}  # by storage
        self.weight_values = {id(value): name for name, value in {**tape.parameters, **tape.buffers}.items()}
        self.weight_values |= {id(value): name for name, (value, _) in tape.constants.items()}
        for name, value in {**tape.parameters, **tape.buffers}.items():
            self.weight_names.setdefault(value.storage, []).append(name)
        self.weight_storages = set(self.weight_names) | {value.storage for value, _ in tape.constants.values()}

    def cut(self) -> Cut:
        count = len(self.devices)
        stages = [Stage(k, self.plan.problem.cluster.names[d]) for k, d in enumerate(self.devices)]
        wanted: list[dict[int, Value]] = [{} for _ in range(count + 1)]  # what each stage reads from before, in order
        last = {id(value): value for value in self.tape.outputs}
        needs: list[dict[int, Value]] = [{} for _ in range(count)]
        for k in range(count - 1, -1, -1):
            later = dict(wanted[k + 1]) if k + 1 < count else last
            needs[k] = later
            wanted[k] = self._stage(stages[k], later)
        strays = [value for value in wanted[0].values() if id(value) not in {id(one) for one in self.tape.inputs}]
        if strays:
            raise BadInput(f"{strays[0].name} is read before it is made; the plan's stages do not follow each other")
        for k, stage in enumerate(stages):
            stage.gives = list(needs[k].values())
            stage.takes = list(self.tape.inputs) if k == 0 else list(wanted[k].values())
        for k in range(count - 1):
            stages[k].gives = list(wanted[k + 1].values())
        return Cut(self.tape, stages, tuple(self._shared(stages)))

    def _stage(self, stage: Stage, later: dict[int, Value]) -> dict[int, Value]:
        """Fill a stage that has to give some values; gives what it takes from before."""
        k = stage.number
        chosen: set[int] = set()
        taken: dict[int, Value] = {}
        seen: set[int] = set()
        waiting = list(later.values())
        for n, call in enumerate(self.calls):  # everything of this stage that has an effect or a reader
            if not call.folded and self.home[n] >= 0 and not self.loose[self.home[n]] and self.stage[self.home[n]] == k:
                chosen.add(n)
                waiting.extend(call.reads())
        while waiting:
            value = waiting.pop()
            if id(value) in seen or id(value) in self.weight_values:
                continue
            seen.add(id(value))
            n = self.maker.get(id(value), -1)
            if n < 0 or not self._is_here(n, k):
                taken[id(value)] = value
                continue
            if n not in chosen:
                chosen.add(n)
                waiting.extend(self.calls[n].reads())
        stage.calls = sorted(chosen)
        self._check_writing(stage)
        used = {value.storage for n in stage.calls for value in self.calls[n].reads()}
        stage.weights = [name for storage in sorted(used) for name in self.weight_names.get(storage, ())]
        rank = {id(value): place for place, value in enumerate(self.tape.inputs)}
        return dict(sorted(taken.items(), key=lambda one: (self.maker.get(one[0], -1), rank.get(one[0], 0))))

    def _is_here(self, n: int, k: int) -> bool:
        """Whether a stage makes the results of a call itself."""
        call, home = self.calls[n], self.home[n]
        if call.folded and any(value.storage in self.weight_storages for value in call.writes):
            return True
        if home < 0:
            return True
        if self.loose[home]:
            return k == 0 or self._is_cheap(home, k)
        return int(self.stage[home]) == k

    def _is_cheap(self, operator: int, k: int) -> bool:
        """Whether to compute something again takes less time than to send its result."""
        problem = self.plan.problem
        graph, d, before = problem.graph, self.devices[k], self.devices[k - 1]
        again, todo, seconds = {operator}, [operator], 0.0
        while todo:
            v = todo.pop()
            seconds += float(problem.costs.seconds[v, d])
            for t in graph.read_tensors[graph.read_first[v] : graph.read_first[v + 1]].tolist():
                u = int(graph.tensor_producer[t])
                if u not in again:
                    again.add(u)
                    todo.append(u)
        sizes = graph.tensor_bytes[graph.tensor_first[operator] : graph.tensor_first[operator + 1]]
        routes = problem.routes
        sent = float(routes.latency_seconds[before, d]) + float(sizes.sum()) / float(routes.bytes_per_second[before, d])
        return seconds < sent

    def _check_writing(self, stage: Stage) -> None:
        """What is written into in place must have been made in the same stage."""
        made = {value.storage for n in stage.calls for value in self.calls[n].writes}
        own: set[int] = set()
        for n in stage.calls:
            call = self.calls[n]
            for value in call.written:
                if value.storage not in self.weight_storages and value.storage not in own | made - {value.storage}:
                    first = self.maker.get(id(self.tape.trace.storages[value.storage]), n)
                    if first not in stage.calls:
                        raise BadInput(
                            f"{call.name} writes into {value.name}, which another stage makes; put both on one device"
                        )
            own |= {value.storage for value in call.writes}

    def _shared(self, stages: Sequence[Stage]) -> Iterator[Shared]:
        for names in self.weight_names.values():
            holders = tuple(stage.number for stage in stages if names[0] in stage.weights)
            if len(holders) > 1 and any(name in self.tape.parameters for name in names):
                yield Shared(tuple(names), holders)


def stage_module(torch: Any, cut: Cut, k: int, tensors: dict[str, Any], *, trains: bool, parameters: set[str]) -> Any:
    """A stage as a module of torch: its inputs in order, its weights by their names, a tuple of what it gives."""
    tape, stage = cut.tape, cut.stages[k]
    root, graph = torch.nn.Module(), torch.fx.Graph()
    weights = {id(value): name for name, value in {**tape.parameters, **tape.buffers}.items()}
    known: dict[int, Any] = {}
    takes = [graph.placeholder(f"take_{n}") for n in range(len(stage.takes))]
    for value, taken in zip(stage.takes, takes, strict=True):
        known[id(value)] = taken
        if k > 0:  # so that gradients, too, come back in one piece, as sending needs them
            flat = graph.call_function(torch.ops.aten.view.default, (taken, [-1]))
            known[id(value)] = graph.call_function(torch.ops.aten.view.default, (flat, list(value.shape)))
    made: dict[int, Any] = {}
    for name in stage.weights:
        made.setdefault(id(tensors[name]), _held(torch, tensors[name], trains and name in parameters))
        _register(torch, root, name, made[id(tensors[name])])
    constants = {id(value): (name, tensor) for name, (value, tensor) in tape.constants.items()}

    def real(item: Any) -> Any:
        if not isinstance(item, Value):
            return [real(one) for one in item] if isinstance(item, list | tuple) else item
        if id(item) not in known and id(item) in weights:
            known[id(item)] = graph.get_attr(weights[id(item)])
        elif id(item) not in known and id(item) in constants:
            name, tensor = constants[id(item)]
            _register(torch, root, name, tensor.detach().clone())
            known[id(item)] = graph.get_attr(name)
        return known[id(item)]

    for n in stage.calls:
        call = tape.trace.calls[n]
        arguments = tuple(real(item) for item in call.arguments)
        result = graph.call_function(call.function, arguments, {key: real(item) for key, item in call.named.items()})
        several = n in tape.gaps or len(call.writes) > 1 or _gives_tuple(call.function)
        places = tape.gaps.get(n, range(len(call.writes)))
        for value, place in zip(call.writes, places, strict=True):
            known[id(value)] = graph.call_function(getitem, (result, place)) if several else result
    given = [graph.call_function(torch.ops.aten.contiguous.default, (real(value),)) for value in stage.gives]
    graph.output(given[0] if k == len(cut.stages) - 1 and len(given) == 1 else tuple(given))
    return torch.fx.GraphModule(root, graph)


def _gives_tuple(function: Any) -> bool:
    returns = getattr(getattr(function, "_schema", None), "returns", ())
    return len(returns) > 1 or any("[]" in str(one.type) or "List" in str(one.type) for one in returns)


def _held(torch: Any, tensor: Any, trained: bool) -> Any:
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(tensor.detach().clone(), requires_grad=trained)
    return tensor.detach().clone()


def _register(torch: Any, root: Any, name: str, tensor: Any) -> None:
    """Put a tensor into a tree of modules under its name."""
    *path, last = name.split(".")
    for part in path:
        if not hasattr(root, part):
            root.add_module(part, torch.nn.Module())
        root = getattr(root, part)
    if isinstance(tensor, torch.nn.Parameter):
        root.register_parameter(last, tensor)
    elif not hasattr(root, last):
        root.register_buffer(last, tensor)
