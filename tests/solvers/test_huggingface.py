"""The device maps of Hugging Face on module trees small enough to walk by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from stead.cluster import Cluster, Device, link_all
from stead.costs import Costs
from stead.errors import Infeasible
from stead.graph import GraphBuilder, OperatorId, TensorId
from stead.problem import Constraints, Problem
from stead.solvers import Budget, Solver
from stead.solvers.rules.huggingface import HfAuto, HfBalancedLow0, HfSequential, _Layers
from stead.testing.contracts import SolverContract


def gpus(*memory: int, cpu: int | None = None) -> Cluster:
    """Accelerators g0, g1, ... of some bytes, and a CPU."""
    devices = [Device(f"g{i}", memory_bytes=size) for i, size in enumerate(memory)]
    if cpu is not None:
        devices.append(Device("cpu", kind="cpu", memory_bytes=cpu))
    names = [device.name for device in devices]
    return Cluster(tuple(devices), link_all(names, bytes_per_second=float("inf")))


def model(
    modules: Mapping[str, int],
    cluster: Cluster,
    *,
    tied: Mapping[str, str] | None = None,
    constraints: Constraints | None = None,
) -> Problem:
    """A chain of one operator per module with weights of some bytes; `tied` maps a user to an owner."""
    build = GraphBuilder()
    operators: dict[str, OperatorId] = {}
    last: list[TensorId] = []
    for path in modules:
        operators[path] = build.operator(path, module=path, reads=last)
        last = [build.tensor(operators[path], size_bytes=0)]
    for path, size in modules.items():
        users = [operators[path], *(operators[user] for user, owner in (tied or {}).items() if owner == path)]
        build.weight(f"{path}.weight", size_bytes=size, users=users)
    graph = build.build()
    costs = Costs(graph, cluster, np.ones((len(graph), len(cluster))))
    return Problem(graph, cluster, costs, constraints=constraints)


def names(solver: Solver, problem: Problem) -> str:
    """The devices of all operators in order."""
    placement = solver.solve(problem, Budget()).placement
    return " ".join(placement.by_name().values())


def parameters(sizes: Mapping[str, int], tied: Mapping[str, str], cluster: Cluster) -> Problem:
    """One operator per parameter, in the module that holds it."""
    build = GraphBuilder()
    operators = {name: build.operator(name, module=name.rpartition(".")[0]) for name in sizes}
    for name, size in sizes.items():
        if name not in tied:
            sharers = [user for user, owner in tied.items() if owner == name]
            build.weight(name, size_bytes=size, users=[operators[user] for user in (name, *sharers)])
    graph = build.build()
    return Problem(graph, cluster, Costs(graph, cluster, np.ones((len(graph), len(cluster)))))


def longest_prefix(device_map: Mapping[str, str], name: str) -> str:
    """The device of the closest module above a parameter, or of itself."""
    above = [key for key in device_map if not key or f"{name}.".startswith(f"{key}.")]
    return device_map[max(above, key=len)]


RULES = {"auto": HfAuto(), "sequential": HfSequential(), "balanced_low_0": HfBalancedLow0()}
MAPS = Path(__file__).parent.parent / "data" / "transformers_device_maps.json"
PUBLISHED = json.loads(MAPS.read_text())["cases"]
FOUR_LAYERS = {"embed": 10, "h.0": 10, "h.1": 10, "h.2": 10, "h.3": 10, "head": 10}


def test_sequential_keeps_room_for_the_largest_layer_on_the_first_device_only() -> None:
    # g0: embed, h.0 and h.1 make 30, plus 10 for the largest to come; g1 may be filled: 30
    assert names(HfSequential(), model(FOUR_LAYERS, gpus(40, 30))) == "g0 g0 g0 g1 g1 g1"


def test_the_room_kept_shrinks_when_the_largest_layer_is_placed() -> None:
    modules = {"embed": 30, "h.0": 10, "h.1": 10, "head": 5}
    # embed: 30 + 10 to come; h.0: 40 + 10; h.1: 50 + 5 = 55 does not fit into 54
    assert names(HfSequential(), model(modules, gpus(54, 100))) == "g0 g0 g1 g1"


def test_auto_fills_the_first_device_with_its_part_and_a_buffer() -> None:
    # part 60 // 2 = 30, buffer int(1.25 * 10) = 12: cap 42, of which 10 stay free: embed, h.0, h.1
    assert names(HfAuto(), model(FOUR_LAYERS, gpus(1000, 1000))) == "g0 g0 g0 g1 g1 g1"


def test_auto_does_not_cap_the_last_device() -> None:
    # parts of 20 + 12: g0 takes 22 (2 modules), g1 32 (3 modules), the rest goes to g2
    assert names(HfAuto(), model(FOUR_LAYERS, gpus(1000, 1000, 1000))) == "g0 g0 g1 g1 g1 g2"


def test_balanced_low_0_leaves_the_first_device_empty_if_it_can() -> None:
    assert names(HfBalancedLow0(), model(FOUR_LAYERS, gpus(1000, 1000))) == "g1 g1 g1 g1 g1 g1"


def test_balanced_low_0_uses_the_first_device_for_what_the_others_cannot_take() -> None:
    # g1 takes 30, so g0 must take 30 and keeps 10 of them free: embed and h.0; head does not fit g1: disk
    problem = model(FOUR_LAYERS, gpus(1000, 30, cpu=1000))
    assert names(HfBalancedLow0(), problem) == "g0 g0 g1 g1 g1 cpu"


def test_with_one_accelerator_all_three_are_the_same() -> None:
    problem = model(FOUR_LAYERS, gpus(45, cpu=1000))
    found = {names(rule, problem) for rule in (HfAuto(), HfSequential(), HfBalancedLow0())}
    assert found == {"g0 g0 g0 cpu cpu cpu"}


def test_without_an_accelerator_everything_is_on_the_cpu() -> None:
    assert names(HfAuto(), model(FOUR_LAYERS, gpus(cpu=70))) == " ".join(["cpu"] * 6)


def test_what_would_go_to_disk_does_not_fit() -> None:
    with pytest.raises(Infeasible, match="20 B of weights are left over for the disk after g0") as raised:
        HfSequential().solve(model(FOUR_LAYERS, gpus(30, 20)), Budget())
    assert raised.value.short_bytes == {"g1": 20}


def test_a_block_is_never_split() -> None:
    modules = {f"h.{i}.{part}": 10 for i in range(3) for part in "ab"}
    # h.0: 20, and 20 kept free; h.1 needs 20 more, while h.1.a alone would fit
    assert names(HfSequential(), model(modules, gpus(50, 100))) == "g0 g0 g1 g1 g1 g1"


def test_other_modules_are_split_into_their_children() -> None:
    modules = {"tower.a": 10, "tower.b": 10, "tower.c": 10}
    # tower: 30; a: 10, and 10 kept free; b: 20, and 10 kept free
    assert names(HfSequential(), model(modules, gpus(29, 100))) == "g0 g1 g1"


def test_weights_that_a_module_holds_beside_children_come_before_them() -> None:
    build = GraphBuilder()
    for name, module in (("a", "tower.a"), ("own", "tower"), ("b", "tower.b")):
        build.weight(f"w{name}", size_bytes=10, users=[build.operator(name, module=module)])
    graph = build.build()
    cluster = gpus(25, 100)
    problem = Problem(graph, cluster, Costs(graph, cluster, np.ones((3, 2))))
    found = HfSequential().solve(problem, Budget()).placement.by_name()
    assert found == {"a": "g1", "own": "g0", "b": "g1"}  # own: 10, 10 kept free; a: 20 and 10 kept free


def test_tied_modules_go_along_and_count_once() -> None:
    modules = {"embed": 10, "h.0": 10, "h.1": 10, "head": 0}
    problem = model(modules, gpus(20, 100), tied={"head": "embed"})
    assert names(HfSequential(), problem) == "g0 g1 g1 g0"  # embed with head: 10, 10 kept free


def test_a_tied_module_is_split_before_the_whole_moves_on() -> None:
    modules = {"shared": 10, "encoder.a": 10, "decoder.embed": 0, "decoder.b": 30}
    problem = model(modules, gpus(45, 100), tied={"decoder.embed": "shared"})
    # shared with decoder: 40, and 10 kept free: too much. Without decoder.b: 10, and 30 kept free
    assert names(HfSequential(), problem) == "g0 g1 g0 g1"


def test_pins_are_kept() -> None:
    problem = model(FOUR_LAYERS, gpus(1000, 1000), constraints=Constraints(pin=(("head", "g0"),)))
    found = HfAuto().solve(problem, Budget())
    assert found.placement.by_name()["head"] == "g0"
    assert found.notes == ("1 operator moved: not allowed on the device the rule gives",)


@pytest.mark.parametrize("number", range(len(PUBLISHED)))
@pytest.mark.parametrize("kind", ["auto", "sequential", "balanced_low_0"])
def test_a_map_is_the_one_that_transformers_gives(kind: str, number: int) -> None:
    case = PUBLISHED[number]
    expected = case["device_map"][kind]
    *memory, cpu = case["max_memory"].values()
    problem = parameters(case["parameters"], case["tied"], gpus(*memory, cpu=cpu))
    if "disk" in expected.values():
        with pytest.raises(Infeasible, match="left over for the disk"):
            RULES[kind].wish(problem)
        return
    wish = RULES[kind].wish(problem)
    found = {
        name: problem.cluster.names[d].removeprefix("g")
        for name, d in zip(problem.graph.operator_names, wish.devices.tolist(), strict=True)
    }
    assert found == {name: longest_prefix(expected, name) for name in case["parameters"]}


class TestHfAuto(SolverContract):
    @pytest.fixture
    def solver(self) -> Solver:
        return HfAuto()


class TestHfSequential(SolverContract):
    @pytest.fixture
    def solver(self) -> Solver:
        return HfSequential()


class TestHfBalancedLow0(SolverContract):
    @pytest.fixture
    def solver(self) -> Solver:
        return HfBalancedLow0()


def test_the_largest_layer_to_come_is_known_after_others_are_taken_out() -> None:
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 1000, size=700)
    layers = _Layers(sizes.tolist())
    for begin in rng.integers(0, 690, size=60).tolist():
        end, sought = begin + int(rng.integers(0, 10)), int(sizes.max())
        assert layers.take_out(begin, end, sought=sought) == (sought in sizes[begin:end])
        sizes[begin:end] = 0
        for place in (0, begin, 255, 256, 511, 699, 700):
            assert layers.largest_from(place) == sizes[place:].max(initial=0)
