"""The training step of a sketch: forward, loss, backward and update.

Going backward, an operator reads the gradient of its result from everyone who read that, and what it read itself
where the formula needs it; it does the arithmetic of the forward pass twice, once for the gradient of each factor.
Gradients of weights stay where the weights are until the update, which waits for them; moments of Adam stay for good,
both in the type of the weights. An operator, its backward one and its update share a device. Modules that share a
tied weight need not: each updates its part of it, after an all-reduce of the gradients (see `tied_weights`).
"""

from __future__ import annotations

from stead.graph import Graph, GraphBuilder, OperatorId, TensorId
from stead.graph.kernels import Kernel
from stead.readers.common.op_costs import SOFTMAX_FLOPS
from stead.readers.common.tied_weights import Use, all_reduce, are_apart
from stead.readers.hf.module_costs import Act, Part, Sketch

BACKWARD = 2.0  # times the arithmetic of the forward pass
ADAM_FLOPS = 12.0  # per parameter
ADAM_TRAFFIC = 7  # reads weight, gradient and two moments, writes weight and moments
MOMENTS = 2
LOSS_BYTES = 4
LOSS = "loss"


def training_graph(sketch: Sketch) -> Graph:
    """The graph of one training step."""
    return _Training(sketch).graph()


class _Training:
    def __init__(self, sketch: Sketch) -> None:
        self.sketch = sketch
        self.build = GraphBuilder(sketch.name)
        self.types = sketch.step.types
        self.operators: list[OperatorId] = []
        self.tensors: list[TensorId] = []
        self.backward: dict[int, OperatorId] = {}
        self.gradients: dict[int, list[tuple[TensorId, int]]] = {}  # of each result: tensors and bytes
        self.more_users: dict[str, list[OperatorId]] = {}  # of tied weights
        self.uses = self._uses()
        self.group = self._groups()

    def graph(self) -> Graph:
        for part in self.sketch.parts:
            self._forward(part)
        self._loss()
        for number in range(len(self.sketch.parts) - 1, -1, -1):
            self._backward(number, self.sketch.parts[number])
        self._updates()
        self.sketch.emit_weights(self.build, self.more_users)
        return self.build.build()

    def _uses(self) -> dict[str, list[int]]:
        """The operators that each parameter is updated with: its users that learn if they are apart, else one."""
        learns = [part.kept for part in self.sketch.parts]
        for number in range(len(learns) - 1, -1, -1):
            for act in self.sketch.live_reads(self.sketch.parts[number]) if learns[number] else ():
                learns[act.producer] = True
        found = {}
        for name, parameter in self.sketch.parameters.items():
            users = list(dict.fromkeys(parameter.users))
            uses = [user for user in users if learns[user]] or users[:1]
            found[name] = uses if are_apart([self.sketch.parts[user].module for user in uses]) else uses[:1]
        return found

    def _groups(self) -> list[str]:
        """The operator that each one shares a device with: the first use of its weights, or itself."""
        first = list(range(len(self.sketch.parts)))
        for name, parameter in self.sketch.parameters.items():
            for user in parameter.users:
                if user not in self.uses[name]:
                    first[user] = first[self.uses[name][0]]
        return [self.sketch.parts[v].name for v in first]

    def _forward(self, part: Part) -> None:
        added = self.build.operator(
            part.name,
            kind=part.kind,
            reads=[self.tensors[act.producer] for act in self.sketch.live_reads(part)],
            flops=part.work,
            moved_bytes=self.sketch.moved_bytes(part),
            module=part.module,
            dtype=self.types.compute,
            colocate=self.group[len(self.operators)],
            kernels=() if part.is_one_kernel else self.sketch.kernels(part),
        )
        self.operators.append(added)
        self.tensors.append(self.sketch.emit_tensor(self.build, added, part))

    def _loss(self) -> None:
        """A number for everything the model returns, and the gradients of that."""
        results = [(number, part) for number, part in enumerate(self.sketch.parts) if part.kept]
        size = sum(part.size_bytes for _, part in results)
        elements = sum(part.writes.elements for _, part in results)
        reads = [self.tensors[number] for number, _ in results]
        loss = self.build.operator(
            LOSS, kind="Loss", reads=reads, flops=SOFTMAX_FLOPS * elements, moved_bytes=float(size), module=LOSS,
            dtype=self.types.compute, colocate=LOSS,
        )  # fmt: skip
        value = self.build.tensor(loss, size_bytes=LOSS_BYTES, kept=True)
        back = self.build.operator(
            f"{LOSS}.backward", kind="LossBackward", reads=[value, *reads], flops=BACKWARD * elements,
            moved_bytes=2.0 * size, module=LOSS, dtype=self.types.compute, phase="backward", twin=LOSS, colocate=LOSS,
        )  # fmt: skip
        for number, part in results:
            tensor = self.build.tensor(back, size_bytes=part.size_bytes, name=f"{part.name}.gradient")
            self.gradients.setdefault(number, []).append((tensor, part.size_bytes))

    def _backward(self, number: int, part: Part) -> None:
        given = self.gradients.get(number, [])
        if not given:
            return  # nothing that the loss sees depends on it
        inputs = self.sketch.live_reads(part)
        saved = [] if part.forgets else inputs
        sizes = [self._gradient_bytes(part, act) for act in inputs]
        weights = sum(self.sketch.parameters[name].size_bytes for name in part.parameters)
        if part.activation_bytes is not None:  # experts: those that work, and the rows of their tokens
            weights = round(part.share * weights)
            moved = 2 * part.activation_bytes + 2 * weights + (part.then.moved_bytes if part.then else 0)
        else:
            moved = sum(size for _, size in given) + sum(sizes) + weights + part.cache_bytes
            moved += sum(self.sketch.parts[act.producer].size_bytes for act in saved) + (
                weights if inputs else 0
            )
        flops = (BACKWARD if inputs else 1.0) * part.work  # what goes in first needs no gradient
        added = self.build.operator(
            f"{part.name}.backward",
            kind=f"{part.kind}Backward",
            reads=[*(tensor for tensor, _ in given), *(self.tensors[act.producer] for act in saved)],
            flops=flops,
            moved_bytes=float(moved),
            module=part.module,
            dtype=self.types.compute,
            phase="backward",
            twin=part.name,
            colocate=self.group[number],
            kernels=() if part.is_one_kernel else self._kernels_back(part, float(moved)),
        )
        self.backward[number] = added
        for act, size in zip(inputs, sizes, strict=True):
            source = self.sketch.parts[act.producer]
            tensor = self.build.tensor(added, size_bytes=size, name=f"{source.name}.gradient@{part.name}")
            self.gradients.setdefault(act.producer, []).append((tensor, size))

    def _kernels_back(self, part: Part, moved: float) -> list[Kernel]:
        """What experts run going backward: the same as forward with twice the arithmetic, in the other order."""
        if part.then is None:
            return [Kernel(BACKWARD * part.flops, moved, part.launches)]
        then = part.then._replace(flops=BACKWARD * part.then.flops)
        return [then, Kernel(BACKWARD * part.flops, moved - then.moved_bytes, part.launches)]

    def _gradient_bytes(self, part: Part, act: Act) -> int:
        """Of what one operator adds to the gradient of a tensor: all of it, or as many rows as experts work for."""
        size = self.sketch.parts[act.producer].size_bytes
        return size if part.activation_bytes is None else min(size, part.size_bytes)

    def _updates(self) -> None:
        """One update for the weights that the same operators use; of tied ones, a share for each use."""
        together: dict[tuple[int, ...], list[str]] = {}
        for name, parameter in self.sketch.parameters.items():
            together.setdefault(tuple(dict.fromkeys(parameter.users)), []).append(name)
        for users, names in together.items():
            after = [self.backward[user] for user in users if user in self.backward]
            if after:
                self._update(users, names, after)

    def _update(self, users: tuple[int, ...], names: list[str], after: list[OperatorId]) -> None:
        size = sum(self.sketch.parameters[name].size_bytes for name in names)
        uses = self.uses[names[0]]
        label = self.sketch.parts[users[0]].name if len(users) == 1 else names[0]
        if len(uses) > 1:
            updates = self._shared_update(label, size, uses, names)
        else:
            updates = [self._share(f"{label}.update", size, 1, uses[0], after)]
        self.build.weight(f"{label}.gradients", size_bytes=size, users=[*after, *updates])
        self.build.weight(f"{label}.moments", size_bytes=MOMENTS * size, users=updates)

    def _shared_update(self, label: str, size: int, uses: list[int], names: list[str]) -> list[OperatorId]:
        """A share of the update for each use, after an all-reduce of the gradients."""
        parts = [self.sketch.parts[user] for user in uses]
        ends = [
            Use(part.name, part.module, self.types.compute, self.group[user], (self.backward[user],))
            for user, part in zip(uses, parts, strict=True)
        ]
        reduced = all_reduce(self.build, label, size, ends)
        updates = [
            self._share(f"{label}.update@{part.name}", size, len(uses), user, [own[-1]])
            for user, part, own in zip(uses, parts, reduced, strict=True)
        ]
        for name in names:
            self.more_users[name] = [*(v for own in reduced for v in own), *updates]
        return updates

    def _share(self, name: str, size: int, shares: int, user: int, after: list[OperatorId]) -> OperatorId:
        part = self.sketch.parts[user]
        elements = size / self.types.weight_bytes(8) * 8
        flops, moved = ADAM_FLOPS * elements / shares, ADAM_TRAFFIC * size / shares
        # The experts of a layer are updated at once, whatever groups they fall into.
        groups = 1 if part.activation_bytes is None else self.sketch.step.expert_groups
        return self.build.operator(
            name, kind="Adam", after=after, flops=flops, moved_bytes=moved,
            kernels=() if groups == 1 else (Kernel(flops, moved, 1 / groups),), module=part.module,
            dtype=self.types.compute, phase="update", twin=part.name, colocate=self.group[user],
        )  # fmt: skip
