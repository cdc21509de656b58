"""llama.cpp: flags that mean the plan, by its own rules."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from layered import drawn_counts, layered, plan_by_layers

from stead.cluster import Cluster
from stead.errors import BadInput
from stead.export.llama_cpp import Llama, buffer_names
from stead.export.llama_rules import (
    buffer_of,
    device_names,
    expert_override,
    expert_tensors,
    layer_table,
    overrides_from,
    rpc_servers,
)
from stead.problem import Problem
from stead.testing.exporters import ExporterContract


class TestLlama(ExporterContract):
    @pytest.fixture
    def exporter(self) -> Llama:
        return Llama()

    def problems(self) -> list[Problem]:
        return [layered(4, 2), layered(3, 2, experts=True), layered(3, 2, host=False)]


def flag(words: list[str], name: str) -> str:
    return words[words.index(name) + 1]


@pytest.mark.parametrize("seed", range(8))
def test_random_plans_of_layers_and_experts_come_back_from_the_flags(seed: int) -> None:
    """Each seed 55 plans, 440 in all, with CPU prefixes, cards without layers and experts elsewhere."""
    random = np.random.default_rng(seed)
    for _ in range(55):
        layers, cards = int(random.integers(2, 12)), int(random.integers(1, 5))
        problem = layered(layers, cards, experts=bool(random.integers(2)))
        counts = drawn_counts(random, layers + 1, cards + 1, empty=True)
        order = [0, *random.permutation(np.arange(1, cards + 1)).tolist()]
        devices = np.repeat(order, counts).tolist()
        away = {n: int(random.integers(0, cards + 1)) for n in range(layers) if random.random() < 0.3}
        plan = plan_by_layers(problem, devices, before=0, experts=away)
        words = shlex.split(Llama().export(plan).text)
        names = flag(words, "-dev").split(",") if "-dev" in words else []
        split = [int(one) for one in flag(words, "-ts").split(",")] if "-ts" in words else [1] * len(names)
        table = layer_table(layers, int(flag(words, "-ngl")), split, len(names))
        called = buffer_names(problem.cluster)
        assert ["CPU" if d < 0 else names[d] for d in table] == [called[d] for d in devices]
        overrides = overrides_from(flag(words, "-ot")) if "-ot" in words else []
        if "--n-cpu-moe" in words:
            overrides = [expert_override(range(int(flag(words, "--n-cpu-moe"))), "CPU")]
        if problem.graph.kinds.count("Experts"):
            wanted = {n: called[d] for n, d in away.items() if d != devices[n]}
            for n in range(layers):
                assert {buffer_of(name, overrides) for name in expert_tensors(n)} == {wanted.get(n)}
        assert Llama().verify(plan).placed.result == "passed"


def test_a_thousand_integer_splits_are_exact_and_two_decimals_are_not() -> None:
    random = np.random.default_rng(5)
    wrong = 0
    for _ in range(1000):
        layers, cards = int(random.integers(4, 81)), int(random.integers(2, 6))
        counts = drawn_counts(random, layers + 1, cards + 1, empty=True)
        prefix, counts = counts[0], counts[1:]
        if not sum(counts):
            continue
        wanted = [-1] * prefix + np.repeat(np.arange(cards), counts).tolist()
        assert layer_table(layers, sum(counts), counts, cards) == wanted
        ratios = [round(one / sum(counts), 2) for one in counts]
        wrong += sum(ratios) == 0 or layer_table(layers, sum(counts), ratios, cards) != wanted
    assert wrong > 200


def test_the_rule_is_in_single_precision() -> None:
    # 1/3 + 1/3 + 1/3: the sums are 1/3, 2/3 and 1 in single precision, and layer 2 of 6 is exactly at a third.
    assert layer_table(5, 6, [1, 1, 1], 3) == [0, 0, 1, 1, 2, 2]
    assert layer_table(5, 99, [2, 1], 2) == [0, 0, 0, 0, 1, 1]
    assert layer_table(5, 0, [1], 1) == [-1] * 6


def test_overrides_select_exactly_the_tensors_of_a_file(tmp_path: Path) -> None:
    names = [f"blk.{n}.{part}.weight" for n in range(12) for part in ("attn_q", "ffn_gate_inp", "ffn_up_exps",
             "ffn_down_exps", "ffn_gate_exps", "ffn_up_shexp")]  # fmt: skip
    problem = layered(12, 2, experts=True)
    plan = plan_by_layers(problem, [1] * 6 + [2] * 6, before=0, experts=dict.fromkeys((1, 11, 3), 0))
    text = Llama().assignment(plan).overrides
    taken = [name for name in names if buffer_of(name, text) == "CPU"]
    assert taken == [f"blk.{n}.ffn_{part}_exps.weight" for n in (1, 3, 11) for part in ("up", "down", "gate")]
    assert all("," not in one.pattern and "=" not in one.pattern for one in text)


def test_rpc_servers_are_devices_with_buffer_types_of_their_own() -> None:
    problem = layered(4, 2, experts=True)
    given = problem.cluster.as_dict()
    for entry, name in zip(given["devices"], ("CPU", "CUDA0", "RPC0[10.0.0.2:50052]"), strict=True):  # type: ignore[arg-type, call-overload]
        entry["alias"] = {"llama": name}
    cluster = Cluster.from_dict(given)
    problem = Problem(problem.graph, cluster, problem.costs)
    plan = plan_by_layers(problem, [2, 2, 1, 1], before=0, experts={3: 2})
    assert Llama().export(plan).text == (
        "--rpc 10.0.0.2:50052 -ngl 5 -dev RPC0,CUDA0 -sm layer -ts 2,3 -fit off "
        r"-ot '^blk\.(3)\.ffn_(up|down|gate|gate_up)_(ch|)exps\.=RPC0[10.0.0.2:50052]'"
    )
    assert device_names(["RPC0[a:1]", "RPC1[a:1]", "CUDA0", "RPC0[b:2]"]) == ["RPC0", "RPC1", "CUDA0", "RPC2"]
    assert rpc_servers(["RPC0[b:2]", "CPU", "RPC0[a:1]", "RPC1[b:2]"]) == ["b:2", "a:1"]


def test_layers_on_the_cpu_in_the_middle_are_refused_by_name() -> None:
    plan = plan_by_layers(layered(4, 1), [1, 0, 0, 1], before=0)
    with pytest.raises(BadInput, match=r"layers 0,3, head \(6 .* d1 to d0: the layers on the CPU must be the first"):
        Llama().export(plan)


def test_all_on_the_cpu_needs_no_device() -> None:
    plan = plan_by_layers(layered(4, 1), [0] * 4, before=0)
    assert Llama().export(plan).text == "-ngl 0 -fit off"


def test_experts_of_the_first_layers_on_the_cpu_have_a_flag_of_their_own() -> None:
    plan = plan_by_layers(layered(4, 1, experts=True), [1] * 4, before=0, experts={0: 0, 1: 0})
    assert Llama().export(plan).text == "-ngl 5 -dev CUDA0 -sm layer -fit off --n-cpu-moe 2"


def test_what_llama_fits_itself_is_the_experts_of_the_last_layers_on_the_card() -> None:
    problem = layered(4, 1, experts=True)
    # Every operator has 8 bytes of weights and 4 of results. The card holds attention, mlp, norm and head (80 bytes),
    # the experts of two layers (16) and two results (8), and not 8 bytes more; what is reserved stands for the margin.
    given = problem.cluster.as_dict()
    given["devices"][1] |= {"memory_bytes": 2**30 + 106, "reserve_bytes": 2**30}  # type: ignore[index]
    small = Problem(problem.graph, Cluster.from_dict(given), problem.costs)
    choice = Llama().own_choice(small)
    assert choice.placement is not None
    experts = [n for n, kind in enumerate(small.graph.kinds) if kind == "Experts"]
    assert choice.placement.devices[experts].tolist() == [0, 0, 1, 1]
    assert choice.placement.devices[-1] == 1
    assert Llama().own_choice(layered(4, 2)).reason.startswith("what llama.cpp fits by itself is modelled for one")


def test_two_devices_of_one_name_are_refused() -> None:
    problem = layered(4, 2)
    given = problem.cluster.as_dict()
    for entry in given["devices"]:  # type: ignore[attr-defined]
        entry["kind"] = "cpu"
    twins = Problem(problem.graph, Cluster.from_dict(given), problem.costs)
    assert re.search("two devices are CPU to llama.cpp; give them aliases", Llama().unsupported(twins) or "")
