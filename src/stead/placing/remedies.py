"""What to change when nothing fits: the smallest fix of each kind, each tried before it is offered."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations

from stead import clock
from stead.cluster import UNLIMITED_BYTES, add_host
from stead.cluster.quantities import format_bytes
from stead.errors import Infeasible, SteadError
from stead.placing.loading import Loaded
from stead.problem import Constraints, Objective, Problem
from stead.sim import simulate
from stead.solvers import Budget, Search, Solution
from stead.solvers.build.split import Split
from stead.solvers.rules.huggingface import HfSequential
from stead.solvers.rules.simple import Balanced, FitMemory, Single
from stead.solvers.search.climb import climb_to_fit
from stead.solvers.whole_blocks import whole_blocks as blocks_of

CLOSE = 0.01  # an amount of memory is searched to within this share of itself
MOST_DROPPED = 2  # constraints dropped at once
MOST_TRIES = 64  # sets of constraints tried
MEMORY_SHARE = 0.2  # of the time, for how much memory would suffice
SIZES = ("batch", "context")  # options of readers that memory depends on
READING_SECONDS = 1.3e-3  # per operator, to read a model again at another size: it may have to be captured anew

Asked = Callable[
    [Loaded, Constraints], Problem
]  # the question about other devices or under other constraints


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change that makes the problem feasible, and the problem as it then is."""

    text: str
    problem: Problem
    asks: Mapping[str, str | int] = field(default_factory=dict)  # the same for a program: what to ask instead


def remedies(
    loaded: Loaded,
    objective: Objective,
    constraints: Constraints,
    *,
    whole_blocks: bool = False,
    seconds: float = math.inf,
) -> tuple[Remedy, ...]:
    """The smallest change of each kind that lets a placement be found, also of whole blocks if so asked.

    After so many seconds nothing more is tried: there may be fewer changes then, or larger ones than need be.
    An interrupt ends the search for them, too.
    """
    end = clock.now() + seconds

    def asked(loaded: Loaded, constraints: Constraints) -> Problem:
        problem = loaded.problem(objective, constraints)
        return blocks_of(problem) if whole_blocks else problem

    found: list[Remedy] = []
    try:
        if whole_blocks:
            found.extend(_split_blocks(loaded.problem, objective, constraints, end))
        found.extend(_fewer_constraints(loaded, constraints, asked, end))
        first = len(found)
        # Reading a model again may take all the time there is, so it comes last, though it is said first.
        now = clock.now()
        found.extend(_more_memory(asked(loaded, constraints), now + MEMORY_SHARE * (end - now)))
        found.extend(_another_device(loaded, constraints, asked, end))
        for option in SIZES:
            for one in _smaller(loaded, option, constraints, asked, end):
                found.insert(first, one)
                first += 1
    except (Infeasible, KeyboardInterrupt):
        pass  # what was found until then helps
    return tuple(found)


def first_feasible(problem: Problem, *, end: float = math.inf) -> Solution | None:
    """Some placement that works, quickly; None if none was found, at the latest at the moment `end` of the clock."""
    if int(problem.graph.weight_bytes.sum()) > sum(device.usable_bytes for device in problem.cluster):
        return None  # wherever they are: most of the looks for how much memory would suffice end here
    seconds = None if end == math.inf else max(0.0, end - clock.now())
    search = Search(problem, Budget(seconds, evaluations=20_000), solver="feasibility")
    for member in (Single(), Split(), Balanced(), FitMemory(), HfSequential()):
        if search.done:
            return None
        search.try_solver(member)
        if search.best is not None:
            return search.solution()
    climb_to_fit(search)
    return search.solution() if search.best is not None else None


def _more_memory(problem: Problem, end: float) -> Iterator[Remedy]:
    """Least memory to add to each single device; what suffices, though maybe not the least, when time is up."""
    for d, device in enumerate(problem.cluster):
        now = clock.now()
        end_here = now + (end - now) / (len(problem.cluster) + 1 - d)  # the others and the CPU have their turn, too
        found = first_feasible(problem.with_memory(device.name, UNLIMITED_BYTES), end=end_here)
        if found is None:
            continue
        low = device.usable_bytes  # known not to suffice
        high = int(simulate(problem.with_memory(device.name, UNLIMITED_BYTES), found.placement).peak_bytes[d])
        while high - low > max(1, int(CLOSE * (high - device.usable_bytes))) and clock.now() < end_here:
            middle = (low + high) // 2
            better = first_feasible(problem.with_memory(device.name, middle), end=end_here)
            if better is None:
                low = middle
            else:
                high = middle
        changed = problem.with_memory(device.name, high)
        extra = high - device.usable_bytes
        asks = {"set": f"{device.name}.memory={device.memory_bytes + extra}"}
        yield Remedy(f"{format_bytes(extra)} more on {device.name} ({extra} bytes)", changed, asks)


def _smaller(
    loaded: Loaded, option: str, constraints: Constraints, asked: Asked, end: float
) -> Iterator[Remedy]:
    """The largest batch or context that fits; a half, quarter and so on of what was asked for when time is up."""
    now = loaded.source.size(option) if loaded.source is not None else None
    if now is None or now < 2:
        return
    seconds = READING_SECONDS * len(loaded.graph)

    def fitting(size: int) -> Problem | None:
        """The problem at that size, if something fits it."""
        nonlocal seconds
        began = clock.now()
        problem = asked(loaded.at_size(option, size), constraints)
        seconds = clock.now() - began
        return problem if first_feasible(problem, end=end) is not None else None

    share = _share_that_fits(asked(loaded, constraints), end)
    size, found = now, None
    try:
        while found is None and size > 1 and clock.now() + seconds < end:
            size //= 2
            if size <= share * now or size == 1:
                found = fitting(size)
        if found is None:
            return
        too_much = min(2 * size + 1, now)
        while too_much - size > max(1, int(CLOSE * size)) and clock.now() + seconds < end:
            middle = (size + too_much) // 2
            better = fitting(middle)
            size, too_much, found = (middle, too_much, better) if better is not None else (size, middle, found)
    except SteadError:  # not every model can take every size
        if found is None:
            return
    yield Remedy(f"--{option} {size} (now {now})", found, {option: size})


def _share_that_fits(problem: Problem, end: float) -> float:
    """About what share of all but the weights fits into all memory together; 1 where that is not known."""
    vast = problem
    for device in problem.cluster:
        vast = vast.with_memory(device.name, UNLIMITED_BYTES)
    found = first_feasible(vast, end=end)
    if found is None:
        return 1.0
    weights = int(problem.graph.weight_bytes.sum()) - problem.graph.kv_cache_bytes
    room = sum(device.usable_bytes for device in problem.cluster)
    rest = int(simulate(vast, found.placement).peak_bytes.sum()) - weights
    return (room - weights) / rest if rest > 0 else 1.0


def _split_blocks(
    ask: Callable[[Objective, Constraints], Problem],
    objective: Objective,
    constraints: Constraints,
    end: float,
) -> Iterator[Remedy]:
    """Letting the operators of a block go to several devices."""
    try:
        problem = ask(objective, constraints)
    except Infeasible:
        return
    if first_feasible(problem, end=end) is not None:
        yield Remedy("split blocks: --granularity operator", problem, {"granularity": "operator"})


def _another_device(loaded: Loaded, constraints: Constraints, asked: Asked, end: float) -> Iterator[Remedy]:
    """Letting the CPU take part, where it does not yet."""
    if any(device.is_host for device in loaded.cluster):
        return
    try:
        problem = asked(loaded.on(add_host(loaded.cluster)), constraints)
    except SteadError:
        return
    if first_feasible(problem, end=end) is not None:
        yield Remedy("allow the cpu: add it to --devices", problem, {"add": "cpu"})


def _fewer_constraints(
    loaded: Loaded, constraints: Constraints, asked: Asked, end: float
) -> Iterator[Remedy]:
    """All smallest sets of constraints whose absence helps."""
    items = constraints.items()
    tries = 0
    for size in range(1, MOST_DROPPED + 1):
        helped = False
        for dropped in combinations(range(len(items)), size):
            tries += 1
            if tries > MOST_TRIES or clock.now() >= end:
                return
            kept = Constraints.of(item for number, item in enumerate(items) if number not in dropped)
            try:
                problem = asked(loaded, kept)
            except Infeasible:
                continue
            if first_feasible(problem, end=end) is not None:
                helped = True
                names = ", ".join(_spelled(*items[number]) for number in dropped)
                yield Remedy(f"drop {names}", problem)
        if helped:
            return


def _spelled(field: str, value: object) -> str:
    """A constraint as the command line spells it."""
    assert isinstance(value, tuple)
    return f"--{field} {(',' if field == 'colocate' else '=').join(value)}"
