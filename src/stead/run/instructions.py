"""From a placement and an order to one list of instructions per worker; no torch is needed.

The unit that crosses between workers is a version of a storage: what one call left in it. Every version that somebody
needs elsewhere has one slot in shared memory, however many workers read it. Views are never sent: whoever receives a
storage looks at it through views of its own. Who writes into something received copies it first. State that a step
changes (weights, statistics, moments) goes back at its end to everyone who begins the next step with it.

All workers follow one global topological order, so that no placement can make them wait for each other in a circle.

    instance    the memory that a worker has for a storage: state it holds, an input, what a call made, a slot that was
                received, or a private copy
    place       where a worker keeps one tensor of one instance while it runs
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from stead.errors import BadInput
from stead.run.sheet import Layout, Sheet

InstanceKind = Literal["held", "given", "local", "slot", "private"]
START = -1  # the version before any call


@dataclass(frozen=True, slots=True)
class Call:
    """Run a recorded call on tensors at places; `gives` are places for its results, -1 for those that nobody needs."""

    index: int
    reads: tuple[int, ...]
    gives: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class View:
    """Look at the storage of the tensor at `source` as another tensor of the sheet."""

    tensor: int
    source: int
    place: int


@dataclass(frozen=True, slots=True)
class Blank:
    """Memory without contents for a tensor."""

    tensor: int
    place: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait until a crossing has arrived; `lands` copies it into a private place, as devices and types may differ."""

    crossing: int
    lands: bool = False


@dataclass(frozen=True, slots=True)
class Send:
    """Copy a tensor, or all bytes of its storage, into the slot of a crossing and tell everyone."""

    crossing: int
    place: int


@dataclass(frozen=True, slots=True)
class Copy:
    """A private copy of a crossing that was received."""

    crossing: int


@dataclass(frozen=True, slots=True)
class Keep:
    """New contents for state: from a crossing, or from the tensor at a place where `crossing` is -1."""

    storage: int
    crossing: int
    place: int = -1


Instruction = Call | View | Blank | Wait | Send | Copy | Keep


@dataclass(frozen=True, slots=True)
class Bound:
    """A place that has the same tensor in every run: a part of state, of an input, of a slot or of a private copy."""

    place: int
    kind: InstanceKind
    number: int  # of the storage, or of the crossing
    tensor: int


@dataclass(frozen=True, slots=True)
class Crossing:
    """A version of a storage on its way from one worker to others."""

    number: int
    storage: int
    call: int  # that made this version
    source: int  # worker
    readers: tuple[int, ...]  # workers
    is_refresh: bool  # nobody reads it in the same step
    tensor: int  # that is copied; -1: all bytes of the storage
    size_bytes: int


@dataclass(slots=True)
class WorkerProgram:
    """What one worker does in a step."""

    instructions: list[Instruction] = field(default_factory=list)
    operators: list[int] = field(default_factory=list)  # [instruction]: on whose account it runs; -1: a transfer
    bound: list[Bound] = field(default_factory=list)
    drops: dict[int, tuple[int, ...]] = field(default_factory=dict)  # instruction: places it is the last to need
    results: list[tuple[int, int]] = field(default_factory=list)  # (number of the result, place)
    places: int = 0
    restored: tuple[int, ...] = ()  # inputs that the step writes into
    private: tuple[int, ...] = ()  # crossings with a private copy


@dataclass(frozen=True, slots=True)
class Program:
    """A placed step: what each worker does, and what crosses between them."""

    workers: tuple[WorkerProgram, ...]
    crossings: tuple[Crossing, ...]
    order: tuple[int, ...]  # operators
    waits: tuple[tuple[int, int], ...] = ()  # (crossing, worker that waits for it), in the global order

    @property
    def active(self) -> tuple[int, ...]:
        """Workers that have something to do."""
        return tuple(w for w, program in enumerate(self.workers) if program.instructions)

    @property
    def refreshes(self) -> tuple[Crossing, ...]:
        """State that goes back to those who begin the next step with it."""
        return tuple(one for one in self.crossings if one.is_refresh)


@dataclass(frozen=True, slots=True)
class Alike:
    """Which workers may read each other's memory as it is."""

    groups: tuple[str, ...]  # [worker]: the same for workers with the same device and type

    def same(self, one: int, other: int) -> bool:
        """Whether nothing needs to be converted between two workers."""
        return self.groups[one] == self.groups[other]


class Dependencies:
    """Who needs which version of which storage, in the order of recording."""

    def __init__(self, sheet: Sheet) -> None:
        self.sheet = sheet
        current: dict[int, int] = {}  # storage: version
        readers: dict[int, list[int]] = {}  # storage: calls that read the current version
        self.needs: list[dict[int, int]] = []  # [call]: storage -> version
        self.blind: list[frozenset[int]] = []  # [call]: storages that it fills without looking
        self.before: list[set[int]] = []  # [call]: calls that must come first
        for index, call in enumerate(sheet.calls):
            needs: dict[int, int] = {}
            before: set[int] = set()
            storages = {sheet.storage_of[v]: None for v in (*call.reads, *call.written)}
            if not call.folded:
                for s in storages:
                    version = needs[s] = current.get(s, START)
                    if version != START:
                        before.add(version)
                    readers.setdefault(s, []).append(index)
                for s in {sheet.storage_of[v] for v in call.written}:
                    before.update(one for one in readers.get(s, ()) if one != index)
                    current[s], readers[s] = index, []
                for s in {sheet.storage_of[v] for v in call.gives}:
                    current.setdefault(s, index)
            self.needs.append(needs)
            self.before.append(before)
            self.blind.append(frozenset(sheet.storage_of[v] for v in call.blind))
        self.final = current  # storage: version after the step
        self.call_of = {call.operator: index for index, call in enumerate(sheet.calls) if call.operator >= 0}
        self.maker = {v: index for index, call in enumerate(sheet.calls) if call.folded for v in call.gives}


def topological(dependencies: Dependencies, priority: Sequence[float]) -> tuple[int, ...]:
    """The operators that run something, as `priority` wants them and as dependencies allow; ties by number.

    `priority` is [operator], such as when each begins on a simulated time line.
    """
    sheet = dependencies.sheet
    call_of = dependencies.call_of
    waiting: dict[int, int] = {}
    after: dict[int, list[int]] = {}
    for v, index in call_of.items():
        first = {sheet.calls[one].operator for one in dependencies.before[index]}
        first.discard(-1)
        first.discard(v)
        waiting[v] = len(first)
        for u in first:
            after.setdefault(u, []).append(v)
    ready = [(priority[v], v) for v, count in waiting.items() if not count]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, v = heapq.heappop(ready)
        order.append(v)
        for u in after.get(v, ()):
            waiting[u] -= 1
            if not waiting[u]:
                heapq.heappush(ready, (priority[u], u))
    if len(order) < len(waiting):
        raise BadInput("the recorded calls wait for each other in a circle; the capture is broken")
    return tuple(order)


def compile_program(
    dependencies: Dependencies,
    devices: Sequence[int],  # [operator]: worker
    order: Sequence[int],
    layouts: Sequence[Sequence[Layout]],  # [worker, tensor]
    alike: Alike,
) -> Program:
    """What every worker does in one step of a placement."""
    return _Compiler(dependencies, devices, order, layouts, alike).program()


@dataclass(slots=True, eq=False)
class _Instance:
    kind: InstanceKind
    number: int  # storage or crossing
    version: int
    places: dict[int, int] = field(default_factory=dict)  # tensor: place


class _Compiler:
    def __init__(
        self,
        dependencies: Dependencies,
        devices: Sequence[int],
        order: Sequence[int],
        layouts: Sequence[Sequence[Layout]],
        alike: Alike,
    ) -> None:
        self.known = dependencies
        self.sheet = dependencies.sheet
        self.order = order
        self.layouts = layouts
        self.alike = alike
        self.home = [-1] * len(self.sheet.calls)  # [call]: worker
        for v, index in dependencies.call_of.items():
            self.home[index] = devices[v]
        self.workers = tuple(WorkerProgram() for _ in layouts)
        self.current: list[dict[int, _Instance]] = [{} for _ in layouts]  # [worker]: storage -> instance
        self.starters: dict[int, set[int]] = {}  # state: workers that begin a step with it
        self.crossings: dict[tuple[int, int], Crossing] = {}
        self.landed: list[dict[int, _Instance]] = [{} for _ in layouts]  # [worker]: crossing -> instance
        self.waits: list[tuple[int, int]] = []
        self.account = -1  # operator that instructions are for

    def program(self) -> Program:
        self._find_crossings()
        for v in self.order:
            self._run(self.known.call_of[v])
        self.account = -1
        self._keep_state()
        self._results()
        for w, worker in enumerate(self.workers):
            self._drop(w, worker)
        return Program(self.workers, tuple(self.crossings.values()), tuple(self.order), tuple(self.waits))

    # What crosses

    def _find_crossings(self) -> None:
        needed: dict[tuple[int, int], set[int]] = {}
        sheet = self.sheet
        for v in self.order:
            index = self.known.call_of[v]
            here, blind = self.home[index], self.known.blind[index]
            for s, version in self.known.needs[index].items():
                if version == START:
                    if sheet.keeping[s] == "held":
                        self.starters.setdefault(s, set()).add(here)
                elif self.home[version] != here and s not in blind:
                    needed.setdefault((s, version), set()).add(here)
        read = {key: set(workers) for key, workers in needed.items()}
        for s, starters in self.starters.items():
            version = self.known.final.get(s, START)
            if version != START:
                others = starters - {self.home[version]}
                if others:
                    needed.setdefault((s, version), set()).update(others)
        for (s, version), workers in sorted(needed.items(), key=lambda item: (item[0][1], item[0][0])):
            source = self.home[version]
            layout = self.layouts[source][sheet.whole[s]]
            tensor = sheet.whole[s] if layout.covers else -1
            if tensor < 0 and not all(self.alike.same(source, w) for w in workers):
                raise BadInput(
                    f"what {sheet.operators[sheet.calls[version].operator]!r} makes cannot be converted between unlike "
                    "workers; put it and its readers on one"
                )
            self.crossings[s, version] = Crossing(
                len(self.crossings), s, version, source, tuple(sorted(workers)), (s, version) not in read, tensor,
                layout.storage_bytes,
            )  # fmt: skip

    # Instructions

    def _emit(self, w: int, instruction: Instruction, *, transfer: bool = False) -> None:
        worker = self.workers[w]
        worker.instructions.append(instruction)
        worker.operators.append(-1 if transfer else self.account)

    def _new_place(self, w: int) -> int:
        worker = self.workers[w]
        worker.places += 1
        return worker.places - 1

    def _run(self, index: int) -> None:
        sheet, call, w = self.sheet, self.sheet.calls[index], self.home[index]
        self.account = call.operator
        written = {sheet.storage_of[v] for v in call.written}
        blind = self.known.blind[index]
        for s, version in self.known.needs[index].items():
            self._have(w, s, version, blind=s in blind, writes=s in written)
        reads = tuple(self._place(w, v) for v in call.reads)
        gives = tuple(self._given(w, index, v) for v in call.gives)
        self._emit(w, Call(index, reads, gives))
        for s in written:
            self.current[w][s].version = index
        for s in {sheet.storage_of[v]: None for v in (*call.written, *call.gives)}:
            crossing = self.crossings.get((s, index))
            if crossing is not None:
                self._send(w, crossing)

    def _have(self, w: int, s: int, version: int, *, blind: bool, writes: bool) -> _Instance:
        """The memory of a storage at a version, writable if need be."""
        here = self.current[w]
        instance = here.get(s)
        if instance is None or (instance.version != version and not blind):
            if blind and version != START:
                instance = here[s] = _Instance("local", s, version)
            elif version == START:
                instance = here[s] = self._first(w, s)
            else:
                instance = here[s] = self._received(w, self.crossings[s, version])
        if writes and instance.kind == "slot":
            if blind:
                instance = here[s] = _Instance("local", s, version)
            else:
                self._emit(w, Copy(instance.number), transfer=True)
                self.workers[w].private += (instance.number,)
                instance = here[s] = _Instance("private", instance.number, version)
        if writes and instance.kind == "given" and s not in self.workers[w].restored:
            self.workers[w].restored += (s,)
        return instance

    def _first(self, w: int, s: int) -> _Instance:
        keeping = self.sheet.keeping[s]
        if keeping == "held":
            return _Instance("held", s, START)
        if keeping == "given":
            return _Instance("given", s, START)
        return _Instance("local", s, START)  # memory without contents comes when it is looked at

    def _received(self, w: int, crossing: Crossing) -> _Instance:
        found = self.landed[w].get(crossing.number)
        if found is None:
            lands = not self.alike.same(crossing.source, w)
            self._emit(w, Wait(crossing.number, lands), transfer=True)
            self.waits.append((crossing.number, w))
            if lands:
                self.workers[w].private += (crossing.number,)
            kind: InstanceKind = "private" if lands else "slot"
            found = self.landed[w][crossing.number] = _Instance(kind, crossing.number, crossing.call)
        return found

    def _place(self, w: int, v: int) -> int:
        """Where a worker finds a tensor of the instance that it has now."""
        s = self.sheet.storage_of[v]
        instance = self.current[w].get(s)
        if instance is None:  # a view through another storage than the call reads
            instance = self.current[w][s] = self._first(w, s)
        return self._look(w, instance, v)

    def _look(self, w: int, instance: _Instance, v: int) -> int:
        if v in instance.places:
            return instance.places[v]
        layout = self.layouts[w][v]
        maker = self.known.maker.get(v, -1)
        if maker >= 0 and not layout.alias and self.sheet.keeping[self.sheet.storage_of[v]] != "blank":
            return self._remake(w, instance, v, maker)
        place = self._new_place(w)
        if instance.kind != "local":
            self.workers[w].bound.append(Bound(place, instance.kind, instance.number, v))
        elif not instance.places:
            whole = self.sheet.whole[self.sheet.storage_of[v]]
            first = place if whole == v else self._new_place(w)
            instance.places[whole] = first
            self._emit(w, Blank(whole, first))
            if whole != v:
                self._emit(w, View(v, first, place))
        elif (source := self._source(w, instance, layout)) is not None and layout.plain:
            self._emit(w, View(v, source, place))
        elif maker >= 0:
            return self._remake(w, instance, v, maker)
        else:
            self._emit(w, View(v, next(iter(instance.places.values())), place))
        instance.places[v] = place
        return place

    def _source(self, w: int, instance: _Instance, layout: Layout) -> int | None:
        """A tensor of the same type to make a view of."""
        for v, place in instance.places.items():
            other = self.layouts[w][v]
            if other.dtype == layout.dtype and other.plain and other.alias:
                return place
        return None

    def _remake(self, w: int, instance: _Instance, v: int, maker: int) -> int:
        """Run a folded call again: a view that strides cannot tell, or one that copies after all."""
        call = self.sheet.calls[maker]
        own = self.sheet.storage_of[v]
        reads = tuple(
            self._look(w, instance, u) if self.sheet.storage_of[u] == own else self._place(w, u) for u in call.reads
        )
        gives = []
        for u in call.gives:
            instance.places[u] = self._new_place(w)
            gives.append(instance.places[u])
        self._emit(w, Call(maker, reads, tuple(gives)))
        return instance.places[v]

    def _given(self, w: int, index: int, v: int) -> int:
        """A place for a result."""
        s = self.sheet.storage_of[v]
        instance = self.current[w].get(s)
        if instance is None or (
            instance.version != index and s not in self.known.needs[index]
        ):
            instance = self.current[w][s] = _Instance("local", s, index)
        if v in instance.places and v in self.sheet.calls[index].reads:
            return -1  # an argument that is given back
        place = instance.places[v] = self._new_place(w)
        return place

    def _send(self, w: int, crossing: Crossing) -> None:
        instance = self.current[w][crossing.storage]
        if crossing.tensor >= 0:
            place = self._look(w, instance, crossing.tensor)
        else:
            place = next(iter(instance.places.values()))
        self._emit(w, Send(crossing.number, place), transfer=True)

    # The end of a step

    def _keep_state(self) -> None:
        for s, starters in sorted(self.starters.items()):
            version = self.known.final.get(s, START)
            if version == START:
                continue
            for w in sorted(starters):
                instance = self.current[w][s]
                if instance.version == version and instance.kind == "held":
                    continue
                if self.home[version] == w:
                    place = self._look(w, instance, self.sheet.whole[s])
                    self._emit(w, Keep(s, -1, place), transfer=True)
                else:
                    crossing = self.crossings[s, version]
                    self._received(w, crossing)
                    self._emit(w, Keep(s, crossing.number), transfer=True)

    def _results(self) -> None:
        """Places of what a step gives, on the workers that have it last."""
        active = next((w for w, worker in enumerate(self.workers) if worker.instructions), 0)
        for number, (_, v) in enumerate(self.sheet.results):
            s = self.sheet.storage_of[v]
            version = self.known.final.get(s, START)
            w = active if version == START else self.home[version]
            if version != START and self.current[w][s].version != version:
                continue
            self.workers[w].results.append((number, self._place(w, v)))

    def _drop(self, w: int, worker: WorkerProgram) -> None:
        """When each place is needed for the last time; what is bound, and results, stay."""
        stays = {one.place for one in worker.bound} | {place for _, place in worker.results}
        last: dict[int, int] = {}
        for number, instruction in enumerate(worker.instructions):
            for place in _places_in(instruction):
                last[place] = number
        for place, number in last.items():
            if place not in stays:
                worker.drops[number] = (*worker.drops.get(number, ()), place)


def _places_in(instruction: Any) -> tuple[int, ...]:
    if isinstance(instruction, Call):
        return (*instruction.reads, *(place for place in instruction.gives if place >= 0))
    if isinstance(instruction, View):
        return instruction.source, instruction.place
    if isinstance(instruction, Blank | Send):
        return (instruction.place,)
    if isinstance(instruction, Keep) and instruction.place >= 0:
        return (instruction.place,)
    return ()


def stages(program: Program, names: Sequence[str]) -> tuple[int, ...]:
    """The workers in the order of a pipeline; BadInput where tensors go back and forth, or state between steps."""
    if program.refreshes:
        raise BadInput("a training step cannot be pipelined: updated weights go back to other devices; measure latency")
    after: dict[int, set[int]] = {w: set() for w in program.active}
    for one in program.crossings:
        after[one.source].update(one.readers)
    order: list[int] = []
    while after:
        free = [w for w in after if not any(w in others for others in after.values())]
        if not free:
            stuck = " and ".join(names[w] for w in sorted(after)[:2])
            raise BadInput(
                f"not a pipeline: tensors go back and forth between {stuck}; place it for throughput (-g throughput)"
            )
        order.append(min(free))
        del after[min(free)]
    return tuple(order)


def receivers_of(program: Program, host_of: Sequence[int]) -> dict[int, tuple[int, ...]]:
    """By crossing, the workers on other hosts that receive it: on each, the reader whose turn comes first."""
    first: dict[tuple[int, int], int] = {}
    for number, w in program.waits:
        if host_of[w] != host_of[program.crossings[number].source]:
            first.setdefault((number, host_of[w]), w)
    found: dict[int, tuple[int, ...]] = {}
    for (number, _), w in first.items():
        found[number] = (*found.get(number, ()), w)
    return found
