"""llama.cpp itself puts layers and tensors where the flags say; skipped where LLAMA_CPP_LIB_PATH names no build."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from layered import drawn_counts, layered, plan_by_layers

from stead.errors import RunFailed
from stead.export.llama_cpp import LIBRARY, Llama, wrongly_placed
from stead.export.llama_library import LlamaLibrary, Seen
from stead.export.tiny_gguf import tiny_gguf
from stead.placing.loading import load
from stead.problem import Latency
from stead.readers import read
from stead.testing.exporters import plan_of

SERVERS = 3
NO_BUILD = f"{LIBRARY} names no build of llama.cpp with RPC"


@pytest.fixture(scope="module")
def library() -> Iterator[LlamaLibrary]:
    folder = os.environ.get(LIBRARY)
    if not folder or not (Path(folder) / "libllama.so").exists():
        pytest.skip(NO_BUILD)
    with LlamaLibrary(Path(folder), SERVERS) as found:
        yield found


def loads(library: LlamaLibrary, random: np.random.Generator) -> tuple[list[str], bool]:
    """What the library puts elsewhere of a random plan, and whether its logits are those of the CPU alone."""
    layers, cards = int(random.integers(2, 13)), int(random.integers(1, SERVERS + 1))
    experts = bool(random.integers(2))
    counts = drawn_counts(random, layers + 1, cards + 1, empty=True)
    order = [0, *random.permutation(np.arange(1, cards + 1)).tolist()]
    away = {n: int(random.integers(0, cards + 1)) for n in range(layers) if random.random() < 0.3}
    problem = layered(layers, cards, experts=experts)
    told = Llama().assignment(plan_by_layers(problem, np.repeat(order, counts).tolist(), before=0, experts=away))
    servers = {name: n for n, name in enumerate(told.devices)}
    overrides = [(one.pattern, servers.get(one.buffer, -1)) for one in told.overrides]
    seen = library.load(layers, ngl=told.ngl, split=told.split, overrides=overrides, experts=experts)
    alone = library.load(layers, ngl=0, split=[], overrides=[], experts=experts)
    return wrongly_placed(told, seen, library.endpoints), seen.logits == alone.logits


def test_a_few_random_plans_are_loaded_as_planned(library: LlamaLibrary) -> None:
    random = np.random.default_rng(0)
    assert [loads(library, random) for _ in range(8)] == [([], True)] * 8


@pytest.mark.slow
def test_four_hundred_random_plans_are_loaded_as_planned(library: LlamaLibrary) -> None:
    random = np.random.default_rng(1)
    assert [loads(library, random) for _ in range(400)] == [([], True)] * 400


def test_what_the_library_puts_elsewhere_is_named() -> None:
    told = Llama().assignment(plan_by_layers(layered(3, 2, experts=True), [1, 1, 2], before=0, experts={0: 2, 1: 0}))
    endpoints = ("127.0.0.1:1", "127.0.0.1:2")
    moved = {
        f"blk.{n}.ffn_{part}_exps.weight": buffer
        for n, buffer in ((0, "RPC0[127.0.0.1:2]"), (1, "CPU"))
        for part in ("up", "down", "gate")
    }
    table = ("RPC0", "RPC0", "RPC1", "RPC1")
    assert wrongly_placed(told, Seen(table, moved, ()), endpoints) == []
    assert wrongly_placed(told, Seen(("RPC0", "RPC1", *table[2:]), moved, ()), endpoints) == ["layer 1"]
    other = moved | {"blk.0.ffn_up_exps.weight": "RPC0[127.0.0.1:1]", "blk.2.ffn_up_exps.weight": "CPU"}
    del other["blk.1.ffn_gate_exps.weight"]
    assert wrongly_placed(told, Seen(table, other, ()), endpoints) == [
        "blk.0.ffn_up_exps.weight", "blk.1.ffn_gate_exps.weight", "blk.2.ffn_up_exps.weight",
    ]  # fmt: skip


def test_the_command_asks_the_library(library: LlamaLibrary) -> None:
    plan = plan_by_layers(layered(4, 2, experts=True), [0, 1, 1, 2], before=0, experts={2: 0})
    verdict = Llama().verify(plan)
    assert (verdict.outputs.result, verdict.placed.result) == ("passed", "passed")
    assert "by the library itself" in verdict.placed.detail


def test_without_a_server_the_rules_are_all_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIBRARY, str(tmp_path))
    answer = Llama().verify(plan_by_layers(layered(4, 1), [1] * 4, before=0)).placed
    assert answer.result == "passed"
    assert "the library could not be asked" in answer.detail
    with pytest.raises(RunFailed, match=r"build llama\.cpp with GGML_RPC=ON"):
        LlamaLibrary(tmp_path, 1)


@pytest.mark.parametrize("experts", [False, True])
def test_a_tiny_file_is_a_model_with_all_its_layers(experts: bool, tmp_path: Path) -> None:
    (tmp_path / "tiny.gguf").write_bytes(tiny_gguf(3, experts=experts))
    model = read(tmp_path / "tiny.gguf")
    assert [one for one in model.graph.operator_names if one.endswith("experts")] == [
        f"blk.{n}.experts" for n in range(3) if experts
    ]
    assert not any("cut off" in note or "complete" in note for note in model.notes)


def test_patterns_are_checked_by_the_tensors_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(tiny_gguf(4, experts=True))
    problem = load(path, "4090 + cpu 64GB").problem(Latency())
    card, cpu = (problem.cluster.index(name) for name in ("4090", "cpu"))
    on_cpu = ("token_embd", "blk.1.experts", "blk.3.experts")
    plan = plan_of(problem, [cpu if name in on_cpu else card for name in problem.graph.operator_names])
    answer = Llama(model=str(path)).verify(plan).placed
    assert answer.result == "passed"
    assert "patterns on 43 names of" in answer.detail  # 4 layers of 10, embedding, norm and output
    assert r"-ot '^blk\.(1|3)\." in Llama(model=str(path)).export(plan).text
