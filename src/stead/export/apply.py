"""Plans that run: a torch module, operator by operator on the devices of a plan, in one process.

A call runs on the device of its operator. What it reads from another device is sent there once for each device,
however many operators read it: as much as the graph says, which is what a view shows of a storage. Weights are held
wherever they are used. Nothing else moves: results stay where they were made.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stead.cluster import Cluster
from stead.errors import BadInput
from stead.graph import Graph
from stead.plan import Plan
from stead.readers.torch.aten import Value, overwrites, region_of
from stead.readers.torch.exported import arguments_of, tape_of_exported, torch_package
from stead.readers.torch.tape import Tape

_ANSWERS = "the graph of the plan and that of the module differ"


def apply(
    plan: Plan,
    module: Any,
    inputs: Any = None,
    *,
    devices: Mapping[str, str] | None = None,
) -> Placed:
    """A module that computes what `module` does, every operator where the plan has it.

    `module` is a torch module, an `ExportedProgram`, a file that `torch.export.save` wrote, or a captured `Tape` with
    the module it was captured from, as a pair. Of a plain module `inputs` are the example that the plan's graph was
    made with. `devices` says which device of torch each device of the plan is; without it CPUs are the CPU, and the
    others the accelerators of this machine in their order.
    """
    torch = torch_package("running plans")
    tape, tensors, shape = _recorded(torch, module, inputs)
    built = tape.build()
    operators = _matched(plan.problem.graph, built.graph)
    return Placed(
        torch, tape, [operators[v] if v >= 0 else -1 for v in built.operator_of], plan,
        torch_devices(torch, plan.problem.cluster, devices), tensors, shape,
    )  # fmt: skip


def torch_devices(torch: Any, cluster: Cluster, given: Mapping[str, str] | None) -> list[Any]:
    """The device of torch for each device of a cluster."""
    named = dict(given or {})
    unknown = next((name for name in named if name not in cluster.names), None)
    if unknown is not None:
        raise BadInput(f"the plan has no device {unknown!r}; it has {', '.join(cluster.names)}")
    accelerator = torch.accelerator.current_accelerator()
    count = torch.accelerator.device_count() if accelerator is not None else 0
    found, number = [], 0
    for device in cluster:
        if device.name in named:
            found.append(torch.device(named[device.name]))
        elif device.is_host:
            found.append(torch.device("cpu"))
        elif accelerator is not None and number < count:
            found.append(torch.device(accelerator.type, number))
        else:
            raise BadInput(
                f"{device.name} is accelerator {number} of the plan, and torch sees {count} here; say which device "
                f'stands for it: devices={{"{device.name}": "cpu"}}'
            )
        number += not device.is_host
    return found


def _recorded(torch: Any, module: Any, inputs: Any) -> tuple[Tape, dict[str, Any], Any]:
    """The calls of a module, its tensors by name, and how its results are put together."""
    if isinstance(module, tuple) and len(module) == 2 and isinstance(module[0], Tape):
        tape, owner = module
        if tape.loss is not None:
            raise BadInput("a training step is not run by apply; capture the module without loss_fn")
        held = dict((*owner.named_parameters(remove_duplicate=False), *owner.named_buffers(remove_duplicate=False)))
        return tape, held, None
    if isinstance(module, str | Path):
        module = torch.export.load(module)
    if isinstance(module, torch.nn.Module):
        if inputs is None:
            raise BadInput("give the example inputs that the plan's graph was made with: plan.apply(module, inputs)")
        positional, named = arguments_of(torch, inputs)
        with torch.no_grad():
            module = torch.export.export(module, positional, dict(sorted(named.items())), strict=False)
    if not isinstance(module, torch.export.ExportedProgram):
        raise BadInput(f"apply takes a module, an exported program, its file or a tape, got {type(module).__name__}")
    held = {**module.state_dict, **module.constants}
    return tape_of_exported(module), held, module.call_spec


def _matched(planned: Graph, own: Graph) -> list[int]:
    """The planned operator for each operator of a module, by name."""
    index = {name: v for v, name in enumerate(planned.operator_names)}
    missing = [name for name in own.operator_names if name not in index]
    if missing or len(own) != len(planned):
        first = f": the plan has no {missing[0]!r}" if missing else f": {len(planned)} operators, and {len(own)}"
        raise BadInput(f"{_ANSWERS}{first}; apply the plan to the model that it was made of")
    found = [index[name] for name in own.operator_names]
    for v, u in enumerate(found):
        if own.kinds[v] != planned.kinds[u]:
            raise BadInput(f"{_ANSWERS}: {own.operator_names[v]!r} is {own.kinds[v]}, and was {planned.kinds[u]}")
    return found


@dataclass(frozen=True, slots=True)
class Sent:
    """A tensor of the graph that went to another device."""

    value: str
    source: int  # device of the plan
    target: int
    size_bytes: int


@dataclass(slots=True)
class _Step:
    """Everything that one run holds."""

    tensors: dict[int, Any] = field(default_factory=dict)  # id of a value: its tensor on the home of its storage
    home: dict[int, int] = field(default_factory=dict)  # storage: device of the plan
    there: dict[tuple[int, Any, int], Any] = field(default_factory=dict)  # (storage, region, device): what was sent
    sent: list[Sent] = field(default_factory=list)


class Placed:
    """A module on the devices of a plan; call it as the module.

    `sent` lists what crossed between devices in the last run: the transfers of the simulator.
    """

    def __init__(
        self, torch: Any, tape: Tape, operator_of: Sequence[int], plan: Plan, devices: Sequence[Any],
        tensors: Mapping[str, Any], call_spec: Any,
    ) -> None:  # fmt: skip
        self.torch, self.tape, self.devices, self.call_spec = torch, tape, list(devices), call_spec
        self.at = [int(plan.placement.devices[v]) if v >= 0 else -1 for v in operator_of]  # [call]
        self.sent: tuple[Sent, ...] = ()
        self._calls = tape.trace.calls
        self._shown_by = {  # views, and memory without contents
            id(value): index for index, call in enumerate(self._calls) if call.folded for value in call.writes
        }
        self._inputs = {name: v for v, name in enumerate(plan.problem.graph.operator_names)}
        self._plan = plan
        self._last = self._last_uses()
        self._held = self._hold(tensors)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Run the plan once."""
        with self.torch.no_grad():
            return self._run(arguments, named)

    # Weights

    def _hold(self, tensors: Mapping[str, Any]) -> dict[tuple[int, int], Any]:
        """Weights on every device that uses them: by id of a value and device."""
        tape = self.tape
        named = {**tape.parameters, **tape.buffers}
        missing = [name for name in named if name not in tensors]
        if missing:
            raise BadInput(f"{_ANSWERS}: there is no tensor {missing[0]!r}")
        values = [(value, tensors[name]) for name, value in named.items()]
        values += [(value, tensor) for value, tensor in tape.constants.values()]
        self._weights = {value.storage for value, _ in values}
        used: dict[int, set[int]] = {}
        for index, call in enumerate(self._calls):
            for value in call.reads():
                if self.at[index] >= 0:
                    used.setdefault(value.storage, set()).add(self.at[index])
        copies: dict[tuple[int, int], Any] = {}
        held: dict[tuple[int, int], Any] = {}
        for value, tensor in values:
            for d in used.get(value.storage, ()):
                key = value.storage, d
                if key not in copies:
                    copies[key] = tensor.detach().to(self.devices[d])
                copy = copies[key]
                same = copy.shape == tensor.shape and copy.stride() == tensor.stride()
                held[id(value), d] = copy if same else tensor.detach().to(self.devices[d])
        return held

    def _last_uses(self) -> dict[int, list[int]]:
        """Storages by the call that is the last to need them; results are needed to the end."""
        last: dict[int, int] = {}
        for index, call in enumerate(self._calls):
            for value in (*call.reads(), *call.writes):
                last[value.storage] = index
        for value in self.tape.outputs:
            last.pop(value.storage, None)
        needed: dict[int, list[int]] = {}
        for storage, index in last.items():
            needed.setdefault(index, []).append(storage)
        return needed

    # Running

    def _run(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
        tree = self.torch.utils._pytree
        ordered = (tuple(arguments), {key: named[key] for key in sorted(named)})
        leaves = [leaf for leaf in tree.tree_leaves(ordered) if isinstance(leaf, self.torch.Tensor)]
        if len(leaves) != len(self.tape.inputs):
            raise BadInput(f"the plan is for {len(self.tape.inputs)} input tensors, got {len(leaves)}")
        step = _Step()
        for value, leaf in zip(self.tape.inputs, leaves, strict=True):
            if tuple(leaf.shape) != tuple(value.shape):
                raise BadInput(f"{value.name} was planned as {tuple(value.shape)}, got {tuple(leaf.shape)}")
            d = int(self._plan.placement.devices[self._inputs[value.name]]) if value.name in self._inputs else 0
            step.home[value.storage] = d
            step.tensors[id(value)] = leaf.detach().to(self.devices[d])
        for index, call in enumerate(self._calls):
            if self.at[index] >= 0 and not call.folded:
                self._call(step, index)
            for storage in self._last.get(index, ()):
                self._forget(step, storage)
        self.sent = tuple(step.sent)
        return self._results(step)

    def _forget(self, step: _Step, storage: int) -> None:
        for key in [key for key in step.there if key[0] == storage]:
            del step.there[key]
        for value in self._values_of(storage):
            step.tensors.pop(id(value), None)

    def _values_of(self, storage: int) -> list[Value]:
        if not hasattr(self, "_by_storage"):
            self._by_storage: dict[int, list[Value]] = {}
            for value in (*self.tape.inputs, *(value for call in self._calls for value in call.writes)):
                self._by_storage.setdefault(value.storage, []).append(value)
        return self._by_storage.get(storage, [])

    def _call(self, step: _Step, index: int) -> None:
        call, d = self._calls[index], self.at[index]
        blind = {id(value) for value in call.written} if overwrites(call.kind) else set()
        for value in call.written:
            self._bring(step, value, d, blank=id(value) in blind)
        arguments = [self._real(step, item, d) for item in call.arguments]
        named = {key: self._real(step, item, d) for key, item in call.named.items()}
        result = call.function(*arguments, **named)
        for value in call.written:  # what was sent before is of an older version
            for key in [key for key in step.there if key[0] == value.storage]:
                del step.there[key]
        results = result if isinstance(result, list | tuple) else [result]
        places = self.tape.gaps.get(index, range(len(call.writes)))
        for value, place in zip(call.writes, places, strict=True):
            step.tensors[id(value)] = results[place]
            step.home.setdefault(value.storage, d)

    def _real(self, step: _Step, item: Any, d: int) -> Any:
        """An argument on a device."""
        if isinstance(item, Value):
            return self._on(step, item, d)
        if isinstance(item, list | tuple):
            return [self._real(step, one, d) for one in item]
        if isinstance(item, self.torch.device):
            return self.devices[d]
        return item

    def _on(self, step: _Step, value: Value, d: int) -> Any:
        """A tensor on a device: held there, made there, or sent there."""
        if value.storage in self._weights:
            return self._view_of_weight(step, value, d)
        home = step.home.get(value.storage)
        if home is None:  # memory without contents, or made of nothing: it is made where it is first needed
            home = step.home[value.storage] = d
        tensor = self._at_home(step, value)
        return tensor if home == d else self._sent_to(step, value, tensor, d)

    def _at_home(self, step: _Step, value: Value) -> Any:
        """A tensor where its storage is; views are taken when somebody looks through them."""
        found = step.tensors.get(id(value))
        if found is None:
            index = self._shown_by[id(value)]
            call, home = self._calls[index], step.home[value.storage]
            arguments = [self._local(step, item, home) for item in call.arguments]
            named = {key: self._local(step, item, home) for key, item in call.named.items()}
            result = call.function(*arguments, **named)
            results = result if isinstance(result, list | tuple) else [result]
            places = self.tape.gaps.get(index, range(len(call.writes)))
            for one, place in zip(call.writes, places, strict=True):
                step.tensors[id(one)] = results[place]
            found = step.tensors[id(value)]
        return found

    def _local(self, step: _Step, item: Any, d: int) -> Any:
        if isinstance(item, Value) and item.storage not in self._weights:
            return self._at_home(step, item)
        return self._real(step, item, d)

    def _view_of_weight(self, step: _Step, value: Value, d: int) -> Any:
        found = self._held.get((id(value), d))
        if found is None:
            index = self._shown_by[id(value)]
            call = self._calls[index]
            arguments = [self._real(step, item, d) for item in call.arguments]
            named = {key: self._real(step, item, d) for key, item in call.named.items()}
            result = call.function(*arguments, **named)
            results = result if isinstance(result, list | tuple) else [result]
            places = self.tape.gaps.get(index, range(len(call.writes)))
            for one, place in zip(call.writes, places, strict=True):
                self._held[id(one), d] = results[place]
            found = self._held[id(value), d]
        return found

    def _sent_to(self, step: _Step, value: Value, tensor: Any, d: int) -> Any:
        """The part of a storage that a tensor shows, on another device, laid out as at home; it crosses once."""
        region = None  # as it is here: programs that were saved and loaded forget where views begin
        if value.region is not None:
            region = region_of(tensor.storage_offset(), tensor.shape, tensor.stride())
        key = value.storage, region, d
        known = step.there.get(key)
        whole = self.tape.trace.storages[value.storage]
        if known is None:
            shown = _all_of_storage(tensor) if value.region is None else tensor
            known = step.there[key] = _copied(self.torch, shown, self.devices[d])
            size = value.size_bytes if value.region is not None else whole.size_bytes
            step.sent.append(Sent(value.name, step.home[value.storage], d, size))
        room, begin = known
        return room.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset() - begin)

    def _bring(self, step: _Step, value: Value, d: int, *, blank: bool) -> None:
        """Let a storage live on the device of who writes into it."""
        storage = value.storage
        home = step.home.get(storage)
        if storage in self._weights or home in (None, d):
            return
        held = next(tensor for one in self._values_of(storage) if (tensor := step.tensors.get(id(one))) is not None)
        full = _all_of_storage(held)
        if blank and value.region is None:
            room, begin = self.torch.empty(full.shape, dtype=full.dtype, device=self.devices[d]), 0
        else:
            self._sent_to(step, self.tape.trace.storages[storage], full, d)
            room, begin = step.there[storage, None, d]
            room = room.clone()  # what others read there is the older version
        for one in self._values_of(storage):
            old = step.tensors.get(id(one))
            if old is not None:
                offset = old.storage_offset() - begin
                step.tensors[id(one)] = room.as_strided(old.shape, old.stride(), offset)
        step.home[storage] = d

    def _results(self, step: _Step) -> Any:
        found = [
            self._at_home(step, value) if value.storage not in self._weights else self._anywhere(value)
            for value in self.tape.outputs
        ]
        if self.call_spec is None:
            return found[0] if len(found) == 1 else found
        return self.torch.utils._pytree.tree_unflatten(found, self.call_spec.out_spec)

    def _anywhere(self, value: Value) -> Any:
        return next(tensor for (key, _), tensor in self._held.items() if key == id(value))


def _all_of_storage(tensor: Any) -> Any:
    """Everything in the storage of a tensor, in a row."""
    return tensor.as_strided((tensor.untyped_storage().nbytes() // tensor.element_size(),), (1,), 0)


def _room_for(torch: Any, tensor: Any, device: Any) -> tuple[Any, int]:
    """Memory on a device for the stretch of its storage that a tensor spans, and where that stretch begins."""
    span = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    count = 0 if math.prod(tensor.shape) == 0 else span
    return torch.empty(count, dtype=tensor.dtype, device=device), tensor.storage_offset()


def _copied(torch: Any, tensor: Any, device: Any) -> tuple[Any, int]:
    """What a tensor shows, on another device at the same distances from each other."""
    room, begin = _room_for(torch, tensor, device)
    if room.numel():
        sizes = [1 if stride == 0 else size for size, stride in zip(tensor.shape, tensor.stride(), strict=True)]
        plain = tensor.as_strided(sizes, tensor.stride(), begin)
        room.as_strided(sizes, tensor.stride(), 0).copy_(plain)
    return room, begin

