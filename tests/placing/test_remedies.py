"""Remedies: what is printed makes the problem feasible, and a little less of it does not."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from stead import clock
from stead.cli.main import exit_code
from stead.cluster import Cluster, Device, link_all
from stead.errors import Infeasible
from stead.graph import Graph, GraphBuilder
from stead.placing.loading import Loaded, load
from stead.placing.remedies import _smaller, first_feasible, remedies
from stead.problem import Constraints, Latency
from stead.solvers import Budget
from stead.solvers.auto import Auto

RATE = {"fp32": 1e12}


def weighted_chain(sizes: list[int]) -> Graph:
    build = GraphBuilder("chain")
    tensor = None
    for v, size in enumerate(sizes):
        operator = build.operator(f"v{v}", reads=[] if tensor is None else [tensor], flops=1e9)
        tensor = build.tensor(operator, size_bytes=8)
        build.weight(f"w{v}", size_bytes=size, users=[operator])
    return build.build()


def two_devices(first: int, second: int) -> Cluster:
    devices = (
        Device("a", memory_bytes=first, flops_per_second=RATE, bytes_per_second=1e9),
        Device("b", memory_bytes=second, flops_per_second=RATE, bytes_per_second=1e9),
    )
    return Cluster(devices, link_all(["a", "b"], bytes_per_second=1e9))


def short_problem(seed: int) -> Loaded:
    """Weights that exceed both memories by about a tenth."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(500_000, 2_000_000, size=8)
    half = int(sizes.sum() * 0.45)
    return load(weighted_chain(sizes.tolist()), two_devices(half, half))


@pytest.mark.parametrize("seed", range(4))
def test_each_remedy_works_and_one_percent_less_memory_does_not(seed: int) -> None:
    loaded = short_problem(seed)
    with pytest.raises(Infeasible):
        Auto().solve(loaded.problem(Latency()), Budget())
    found = remedies(loaded, Latency(), Constraints())
    assert [one.text.split()[-4:-2] for one in found[:2]] == [["on", "a"], ["on", "b"]]
    assert "allow the cpu" in found[2].text
    for one in found:
        assert Auto().solve(one.problem, Budget(evaluations=500)) is not None
    for device, one in zip(("a", "b"), found[:2], strict=True):
        before = loaded.cluster.devices[loaded.cluster.index(device)].usable_bytes
        after = one.problem.cluster.devices[one.problem.cluster.index(device)].usable_bytes
        less = before + int((after - before) * 0.98)
        assert first_feasible(one.problem.with_memory(device, less)) is None


def test_weights_beyond_all_memory_are_not_looked_for_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stead.placing.remedies.Search", None)  # any look would fail
    loaded = load(weighted_chain([60, 60]), two_devices(60, 59))
    assert first_feasible(loaded.problem(Latency())) is None


def test_pins_that_contradict_each_other_are_offered_for_dropping() -> None:
    loaded = load(weighted_chain([10, 10]), two_devices(100, 100))
    constraints = Constraints(pin=(("v0", "a"), ("v0", "b"), ("v1", "a")))
    texts = [one.text for one in remedies(loaded, Latency(), constraints)]
    assert texts == ["drop --pin v0=a", "drop --pin v0=b"]


def test_a_forbid_that_leaves_too_little_memory_is_offered_for_dropping() -> None:
    loaded = load(weighted_chain([60, 60]), two_devices(100, 100))
    texts = [one.text for one in remedies(loaded, Latency(), Constraints(forbid=(("*", "b"),)))]
    assert texts[0] == "drop --forbid *=b"


def test_after_the_time_for_remedies_nothing_more_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[object] = []
    monkeypatch.setattr("stead.placing.remedies.climb_to_fit", tried.append)
    assert remedies(short_problem(0), Latency(), Constraints(), seconds=-1.0) == ()
    assert tried == []


def llama(here: Path) -> Path:
    """Four small blocks; keys and values take 4 x 2 x 256 x 2 = 4096 bytes per token."""
    values = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256, "num_hidden_layers": 4,
        "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 96, "vocab_size": 128,
        "max_position_embeddings": 10**6, "torch_dtype": "bfloat16",
    }  # fmt: skip
    (here / "config.json").write_text(json.dumps(values))
    return here


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"batch": 8, "context": 8192}, {"batch": 2, "context": 2473}),
        ({"batch": 1, "context": 8192 * 8}, {"context": 19791}),
    ],
)
def test_the_largest_batch_or_context_that_fits_is_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, int], said: dict[str, int]
) -> None:
    monkeypatch.setattr("stead.placing.remedies._more_memory", lambda *_: iter(()))  # looked for in the tests above
    loaded = load(llama(tmp_path), two_devices(40 << 20, 40 << 20), options={"phase": "decode", **given})
    # Two blocks with 672,768 bytes of weights each and a table of 65,536 leave room for 19,791 tokens of 2048 bytes.
    found = [one for one in remedies(loaded, Latency(), Constraints()) if one.text.startswith("--")]
    assert [one.text.split()[0] for one in found] == [f"--{option}" for option in said]
    for one, (option, most) in zip(found, said.items(), strict=True):
        size = int(one.text.split()[1])
        assert one.text == f"--{option} {size} (now {given[option]})"
        assert 0.98 * most <= size <= most
        assert Auto().solve(one.problem, Budget(evaluations=500)).objective_seconds > 0


def test_when_time_is_up_a_half_that_fits_is_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load(llama(tmp_path), two_devices(40 << 20, 40 << 20), options={"phase": "decode", "context": 65536})
    times = iter([0.0] * 4)  # the end is set, then one look at a model of a quarter; then it is late
    monkeypatch.setattr("stead.placing.remedies._share_that_fits", lambda *_: 0.3)
    monkeypatch.setattr("stead.placing.remedies.first_feasible", lambda problem, end: problem)
    with clock.read_from(lambda: next(times, 10.0)):
        [found] = _smaller(loaded, "context", Constraints(), lambda one, rules: one.problem(Latency(), rules), 5.0)
    assert found.text == "--context 16384 (now 65536)"


def test_a_model_is_not_read_again_where_there_is_no_time_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load(llama(tmp_path), two_devices(1 << 20, 1 << 20), options={"phase": "decode", "batch": 8})
    monkeypatch.setattr("stead.placing.remedies.READING_SECONDS", 60.0)
    monkeypatch.setattr("stead.placing.loading.read_model", None)
    assert not [one for one in remedies(loaded, Latency(), Constraints(), seconds=5) if "batch" in one.text]


def test_a_smaller_batch_that_was_not_settled_is_still_mentioned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("stead.placing.remedies.READING_SECONDS", 1e9)  # then no model is read again
    monkeypatch.chdir(tmp_path)
    code = exit_code([
        "place", str(llama(tmp_path)), "-d", "3090", "-g", "latency", "--phase", "decode", "--batch", "64",
        "--context", "1000000", "--evaluations", "20", "--time-limit", "5",
    ])  # fmt: skip
    assert code == 3
    assert "a smaller --batch (now 64) may help" in capsys.readouterr().err
