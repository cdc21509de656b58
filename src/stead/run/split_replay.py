"""A worker's part of a placed step, on real tensors.

Everything that does not change from run to run is made when a program is bound: tensors over slots of shared memory,
over state and over private copies, and the arguments of every call. A run then only calls, waits and copies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter_ns, thread_time_ns
from typing import Any

from stead.readers.torch.aten import Value
from stead.readers.torch.tape import Tape
from stead.run.instructions import (
    Blank,
    Call,
    Copy,
    Crossing,
    Keep,
    Send,
    View,
    Wait,
    WorkerProgram,
)
from stead.run.sheet import Layout, Numbering
from stead.run.transport import Channel

Action = Callable[[], None]


@dataclass(slots=True)
class Material:
    """A model on one worker: what was recorded, and real tensors for what a step begins with."""

    torch: Any
    tape: Tape
    numbering: Numbering
    device: Any
    dtype: str  # "fp32": as recorded; otherwise floating point numbers are of this type here
    start: dict[int, Any]  # tensor number: state, constants and inputs
    pristine: dict[int, Any] = field(default_factory=dict)  # storage: bytes of state that a step changes
    layouts: list[Layout] = field(default_factory=list)  # [tensor]

    def storage_tensors(self) -> dict[int, Any]:
        """One tensor of every storage that a step begins with."""
        return {self.numbering.values[v].storage: tensor for v, tensor in self.start.items()}

    def converted(self, tensor: Any) -> Any:
        """A tensor on the device and in the type of this worker."""
        torch = self.torch
        wanted = torch.bfloat16 if self.dtype == "bf16" and tensor.dtype == torch.float32 else tensor.dtype
        return tensor.to(device=self.device, dtype=wanted)

    def plain(self, item: Any) -> Any:
        """An argument that is no tensor, as this worker wants it."""
        torch = self.torch
        if isinstance(item, torch.device):
            return self.device
        if self.dtype == "bf16" and item is torch.float32:
            return torch.bfloat16
        if isinstance(item, torch.Tensor):
            return self.converted(item)
        return item

    def is_random(self, function: Any) -> bool:
        """Whether a function draws random numbers."""
        return self.torch.Tag.nondeterministic_seeded in getattr(function, "tags", ())

    def reset(self) -> None:
        """State as it was in the beginning."""
        tensors = self.storage_tensors()
        for storage, contents in self.pristine.items():
            self.bytes_of(tensors[storage]).copy_(contents)

    def bytes_of(self, tensor: Any) -> Any:
        """All bytes of the storage of a tensor."""
        torch = self.torch
        return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())

    def shown(self, raw: Any, layout: Layout) -> Any:
        """The tensor that lies in some bytes as a layout says."""
        torch = self.torch
        dtype = getattr(torch, layout.dtype)
        if not raw.numel():
            return torch.empty(layout.shape, dtype=dtype, device=raw.device)
        usable = raw[: raw.numel() // dtype.itemsize * dtype.itemsize].view(dtype)
        return usable.as_strided(layout.shape, layout.strides, usable.storage_offset() + layout.offset)

    def learn(self) -> None:
        """Run every call once as recorded, and write down how each tensor lies in its memory."""
        torch, tape = self.torch, self.tape
        changed = {value.storage for call in tape.trace.calls for value in call.written}
        states = {
            value.storage for held in (tape.parameters, tape.buffers, tape.slots) for value in held.values()
        }
        tensors = self.storage_tensors()
        for s in changed & set(tensors):
            self.pristine[s] = self.bytes_of(tensors[s]).clone()
        real: dict[int, Any] = dict(self.start)
        found: dict[int, Layout] = {v: self._layout(tensor) for v, tensor in real.items()}
        last = self._last_use()
        with torch.inference_mode():
            for index, call in enumerate(tape.trace.calls):
                seed_for(torch, self, call.function, 0, index)
                result = resolved(call.function)(
                    *(self._filled(item, real) for item in call.arguments),
                    **{key: self._filled(item, real) for key, item in call.named.items()},
                )
                self._note(index, result, real, found)
                for v in last.get(index, ()):
                    real.pop(v, None)
        self.layouts = [found.get(v) or _UNKNOWN for v in range(len(self.numbering.values))]
        self.reset()
        self.pristine = {s: raw for s, raw in self.pristine.items() if s in states}

    def _note(self, index: int, result: Any, real: dict[int, Any], found: dict[int, Layout]) -> None:
        """Keep the results of a call, and how they lie."""
        call = self.tape.trace.calls[index]
        several = isinstance(result, list | tuple)
        places = self.tape.gaps.get(index, range(len(call.writes)))
        base = [real[v] for v in self.numbering.of(call.reads())] if call.folded else []
        for value, place in zip(call.writes, places, strict=True):
            tensor = result[place] if several else result
            v = self.numbering.number_of[id(value)]
            alias = not base or any(_share(tensor, one) for one in base)
            known = found.get(v)
            if known is None:
                found[v] = self._layout(tensor, alias=alias)
            real[v] = tensor

    def _layout(self, tensor: Any, *, alias: bool = True) -> Layout:
        plain = not tensor.is_conj() and not tensor.is_neg()
        return Layout(
            str(tensor.dtype).removeprefix("torch."),
            tuple(tensor.shape),
            tuple(tensor.stride()),
            tensor.storage_offset(),
            tensor.untyped_storage().nbytes(),
            tensor.element_size(),
            plain,
            alias,
        )

    def _filled(self, item: Any, real: Mapping[int, Any]) -> Any:
        if isinstance(item, Value):
            return real[self.numbering.number_of[id(item)]]
        if isinstance(item, list | tuple):
            return [self._filled(one, real) for one in item]
        return self.plain(item)

    def _last_use(self) -> dict[int, list[int]]:
        last: dict[int, int] = {}
        for index, call in enumerate(self.tape.trace.calls):
            for v in self.numbering.of((*call.reads(), *call.writes)):
                last[v] = index
        needed: dict[int, list[int]] = {}
        for v, index in last.items():
            if v not in self.start:
                needed.setdefault(index, []).append(v)
        return needed


_UNKNOWN = Layout("uint8", (0,), (1,), 0, 0, 1)


def _share(one: Any, other: Any) -> bool:
    first, second = one.untyped_storage(), other.untyped_storage()
    return not first.nbytes() or first.data_ptr() == second.data_ptr()


def resolved(function: Any) -> Any:
    """The quickest way to call a function of torch."""
    return getattr(function, "_op", None) or function


def seed_for(torch: Any, material: Material, function: Any, step: int, index: int) -> None:
    """The same random numbers for one call of one step, on whatever worker it runs."""
    if material.is_random(function):
        torch.manual_seed(1_000_003 * step + index)


class Replay:
    """One worker's program, bound to memory; `rings` sets of slots are used in turn."""

    def __init__(
        self,
        material: Material,
        program: WorkerProgram,
        crossings: Sequence[Crossing],
        sent: Mapping[int, Layout],  # crossing: layout of the tensor that is sent, at its source
        channel: Channel,
        rings: int,
    ) -> None:
        self.material = material
        self.torch = material.torch
        self.program = program
        self.crossings = crossings
        self.sent = sent
        self.channel = channel
        self.step = 0  # of training; sets random numbers
        self.sequence = 0
        self.tensors = material.storage_tensors()
        self.originals = {s: material.bytes_of(self.tensors[s]).clone() for s in program.restored}
        self.environments: list[list[Any]] = []
        self.actions: list[list[Action]] = []
        for ring in range(rings):
            self._bind(ring)

    # Binding

    def _bind(self, ring: int) -> None:
        material, program = self.material, self.program
        env: list[Any] = [None] * program.places
        slots: dict[int, Any] = {}  # crossing: bytes
        private: dict[int, Any] = {}
        for number in self._touched():
            slots[number] = self.channel.slot(number, ring, self.torch)
        for number in program.private:
            crossing = self.crossings[number]
            size = material.layouts[material_whole(material, crossing.storage)].storage_bytes
            private[number] = self.torch.empty(size, dtype=self.torch.uint8, device=material.device)
        for bound in program.bound:
            layout = material.layouts[bound.tensor]
            if bound.kind in ("held", "given"):
                known = material.start.get(bound.tensor)
                if known is None:
                    known = material.shown(material.bytes_of(self.tensors[bound.number]), layout)
                env[bound.place] = known
            else:
                raw = (slots if bound.kind == "slot" else private)[bound.number]
                env[bound.place] = material.shown(raw, layout)
        self.environments.append(env)
        actions: list[Action] = [self._restoring(s) for s in program.restored]
        self.prologue = len(actions)
        for number, instruction in enumerate(program.instructions):
            action = self._action(instruction, env, slots, private)
            drops = program.drops.get(number, ())
            actions.append(_dropping(action, env, drops) if drops else action)
        self.actions.append(actions)

    def _touched(self) -> set[int]:
        found: set[int] = {one.number for one in self.program.bound if one.kind == "slot"}
        for one in self.program.instructions:
            if isinstance(one, Wait | Send | Copy | Keep) and one.crossing >= 0:
                found.add(one.crossing)
        return found

    def _action(self, instruction: Any, env: list[Any], slots: Any, private: Any) -> Action:
        if isinstance(instruction, Call):
            return self._calling(instruction, env)
        if isinstance(instruction, View):
            layout = self.material.layouts[instruction.tensor]
            return _viewing(env, instruction, layout)
        if isinstance(instruction, Blank):
            return self._blank(instruction, env)
        if isinstance(instruction, Wait):
            return self._waiting(instruction, slots, private)
        if isinstance(instruction, Send):
            return self._sending(instruction, env, slots)
        if isinstance(instruction, Copy):
            source, target = slots[instruction.crossing], private[instruction.crossing]
            return lambda: target.copy_(source)
        assert isinstance(instruction, Keep)
        return self._keeping(instruction, env, slots)

    def _restoring(self, s: int) -> Action:
        target, source = self.material.bytes_of(self.tensors[s]), self.originals[s]
        return lambda: target.copy_(source)

    def _calling(self, one: Call, env: list[Any]) -> Action:
        call = self.material.tape.trace.calls[one.index]
        places = iter(one.reads)
        arguments = [self._template(item, places) for item in call.arguments]
        named = {key: self._template(item, places) for key, item in call.named.items()}
        function = resolved(call.function)
        flat = [(at, item.place) for at, item in enumerate(arguments) if isinstance(item, _Place)]
        nested = [(at, item) for at, item in enumerate(arguments) if isinstance(item, list) and _has_places(item)]
        moving = {key: item for key, item in named.items() if isinstance(item, _Place) or _has_places(item)}
        where = self.material.tape.gaps.get(one.index, range(len(one.gives)))
        gives = [(at, place) for at, place in zip(where, one.gives, strict=True) if place >= 0]
        call_it = _caller(function, env, arguments, flat, nested, named, moving)
        keep_it = _keeper(env, gives, bool(self._gives_several(call)))
        if self.material.is_random(call.function):
            torch, replay, index = self.torch, self, one.index

            def drawing() -> None:
                torch.manual_seed(1_000_003 * replay.step + index)
                keep_it(call_it())

            return drawing

        def calling() -> None:
            keep_it(call_it())

        return calling

    def _gives_several(self, call: Any) -> bool:
        schema = getattr(call.function, "_schema", None)
        if schema is None:
            return True  # looked at when it comes
        returns = schema.returns
        return len(returns) != 1 or "List" in str(returns[0].type) or "[]" in str(returns[0].type)

    def _template(self, item: Any, places: Any) -> Any:
        if isinstance(item, Value):
            return _Place(next(places))
        if isinstance(item, list | tuple):
            return [self._template(one, places) for one in item]
        if isinstance(item, dict):
            return {key: self._template(one, places) for key, one in item.items()}
        return self.material.plain(item)

    def _blank(self, one: Blank, env: list[Any]) -> Action:
        layout = self.material.layouts[one.tensor]
        dtype, make, device = getattr(self.torch, layout.dtype), self.torch.empty_strided, self.material.device

        def blank() -> None:
            env[one.place] = make(layout.shape, layout.strides, dtype=dtype, device=device)

        return blank

    def _waiting(self, one: Wait, slots: Any, private: Any) -> Action:
        number, channel, replay = one.crossing, self.channel, self
        if not one.lands:
            return lambda: channel.wait(number, replay.sequence)
        crossing = self.crossings[number]
        material = self.material
        target = material.shown(private[number], material.layouts[crossing.tensor])
        source = material.shown(slots[number], self.sent[number])

        def landing() -> None:
            channel.wait(number, replay.sequence)
            target.copy_(source)

        return landing

    def _sending(self, one: Send, env: list[Any], slots: Any) -> Action:
        number, place, channel, replay = one.crossing, one.place, self.channel, self
        raw = slots[number]
        if self.crossings[number].tensor >= 0:
            target = self.material.shown(raw, self.sent[number])

            def sending() -> None:
                channel.free(number, replay.sequence)
                target.copy_(env[place])
                channel.tell(number, replay.sequence)

            return sending
        material = self.material

        def sending_bytes() -> None:
            channel.free(number, replay.sequence)
            raw.copy_(material.bytes_of(env[place]))
            channel.tell(number, replay.sequence)

        return sending_bytes

    def _keeping(self, one: Keep, env: list[Any], slots: Any) -> Action:
        material = self.material
        whole = material_whole(material, one.storage)
        held = self.tensors[one.storage]
        target = material.shown(material.bytes_of(held), material.layouts[whole])
        if one.crossing < 0:
            place = one.place

            def keeping() -> None:
                target.copy_(env[place])

            return keeping
        crossing = self.crossings[one.crossing]
        if crossing.tensor >= 0:
            source = material.shown(slots[one.crossing], self.sent[one.crossing])
            return lambda: target.copy_(source)
        raw, all_bytes = slots[one.crossing], material.bytes_of(held)
        return lambda: all_bytes.copy_(raw)

    # Running

    def run(self, sequence: int) -> None:
        """One step; crossings of it carry `sequence`."""
        self.sequence = sequence
        for action in self.actions[sequence % len(self.actions)]:
            action()

    def timed(self, sequence: int, *, cpu: bool = False) -> list[int]:
        """One step; nanoseconds of every instruction."""
        self.sequence = sequence
        clock = thread_time_ns if cpu else perf_counter_ns
        actions = self.actions[sequence % len(self.actions)]
        taken = []
        for action in actions[: self.prologue]:
            action()
        for action in actions[self.prologue :]:
            begin = clock()
            action()
            taken.append(clock() - begin)
        return taken

    def results(self, sequence: int) -> dict[int, tuple[str, tuple[int, ...], bytes]]:
        """What the last step gave on this worker: by number, the type, the shape and the contents."""
        env = self.environments[sequence % len(self.environments)]
        return {number: plain_tensor(self.torch, env[place]) for number, place in self.program.results}


def material_whole(material: Material, storage: int) -> int:
    """The tensor that is all of a storage."""
    return material.numbering.number_of[id(material.tape.trace.storages[storage])]


def plain_tensor(torch: Any, tensor: Any) -> tuple[str, tuple[int, ...], bytes]:
    """A tensor without torch: type, shape, contents."""
    plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    dtype = str(plain.dtype).removeprefix("torch.")
    raw = plain.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b""
    return dtype, tuple(plain.shape), raw


@dataclass(frozen=True, slots=True)
class _Place:
    place: int


def _has_places(item: Any) -> bool:
    if isinstance(item, list):
        return any(isinstance(one, _Place) or _has_places(one) for one in item)
    if isinstance(item, dict):
        return any(isinstance(one, _Place) or _has_places(one) for one in item.values())
    return False


def _fill(item: Any, env: list[Any]) -> Any:
    if isinstance(item, _Place):
        return env[item.place]
    if isinstance(item, list):
        return [_fill(one, env) for one in item]
    if isinstance(item, dict):
        return {key: _fill(one, env) for key, one in item.items()}
    return item


def _caller(
    function: Any,
    env: list[Any],
    arguments: list[Any],
    flat: list[tuple[int, int]],
    nested: list[tuple[int, Any]],
    named: dict[str, Any],
    moving: dict[str, Any],
) -> Callable[[], Any]:
    """A call with as little to do as its arguments allow."""
    if not nested and not moving:
        if len(flat) == 1 and flat[0][0] == 0:
            only, rest = flat[0][1], arguments[1:]
            return lambda: function(env[only], *rest, **named)

        def plain() -> Any:
            given = arguments.copy()
            for at, place in flat:
                given[at] = env[place]
            return function(*given, **named)

        return plain

    def general() -> Any:
        given = arguments.copy()
        for at, place in flat:
            given[at] = env[place]
        for at, item in nested:
            given[at] = _fill(item, env)
        filled = {**named, **{key: _fill(item, env) for key, item in moving.items()}}
        return function(*given, **filled)

    return general


def _keeper(env: list[Any], gives: list[tuple[int, int]], several: bool) -> Callable[[Any], None]:
    if not gives:
        return lambda result: None
    if not several:
        (_, place), *_ = gives

        def keep_one(result: Any) -> None:
            env[place] = result

        return keep_one

    def keep_all(result: Any) -> None:
        if isinstance(result, list | tuple):
            for at, place in gives:
                env[place] = result[at]
        else:
            env[gives[0][1]] = result

    return keep_all


def _viewing(env: list[Any], one: View, layout: Layout) -> Action:
    source, place = one.source, one.place
    shape, strides, offset = layout.shape, layout.strides, layout.offset

    def viewing() -> None:
        env[place] = env[source].as_strided(shape, strides, offset)

    return viewing


def _dropping(action: Action, env: list[Any], places: Sequence[int]) -> Action:
    if len(places) == 1:
        (only,) = places

        def dropping_one() -> None:
            action()
            env[only] = None

        return dropping_one

    def dropping() -> None:
        action()
        for place in places:
            env[place] = None

    return dropping


