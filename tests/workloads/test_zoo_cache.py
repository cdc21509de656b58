"""Where graphs come from: shipped files, the cache, a capture. None of it needs torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stead.errors import BadInput, MissingExtra
from stead.graph import Graph, GraphBuilder
from stead.readers.native.npz import GraphNpz, write_npz
from stead.workloads import get, model_from_zoo, names, parse
from stead.workloads import graph_cache as cache
from stead.workloads.zoo import MODES, Spec


def small_graph(name: str = "gnmt-2") -> Graph:
    build = GraphBuilder(name)
    build.operator("only", flops=1.0)
    return build.build()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a torch that nobody looks at."""
    monkeypatch.setenv("STEAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "torch_version", lambda: "2.13.0")
    return tmp_path / "cache"


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Captures give a small graph; the list says of what."""
    made: list[str] = []

    def capture(spec: Spec) -> Graph:
        made.append(str(spec))
        return small_graph(spec.name)

    monkeypatch.setattr(Spec, "capture", capture)
    return made


PARAMETERS = {
    "rnnlm-2": 2 * (4096 * 8192 + 8192) + 2 * 10_000 * 2048 + 10_000,  # 108,095,248
    "inception-v3": 23_834_568,
    "resnet-50": 25_557_032,
    "resnet-101": 44_549_160,
    "resnet-152": 60_192_808,
    "nasnet-large": 88_753_150,
    "nasnet-mobile": 5_289_978,
    "amoebanet": 86_718_797,  # AmoebaNet-A, N = 6, F = 190: 86.7 million in its paper
    "bert-base": 109_514_298,
    "bert-large": 335_174_458,
    "gpt2-small": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "llama-1b": 1_235_814_400,
    "llama-7b": 6_738_415_616,
    "llama-8b": 8_030_261_248,
    "llama-70b": 70_553_706_496,
    "mixtral-8x7b": 46_702_792_704,
    "t5-small": 60_506_624,
    "t5-base": 222_903_552,
    "t5-large": 737_668_096,
    "vit-base": 86_567_656,
    "vit-large": 304_326_632,
    "vit-huge": 632_045_800,
}


UNUSUAL = get("gnmt", batch=3)  # nothing of the kind ships with stead


def test_every_name_ships_in_both_modes() -> None:
    known = cache.catalogue()
    assert [
        name for name in names() for mode in MODES if parse(name, phase=mode).fingerprint not in known
    ] == []


@pytest.mark.parametrize("entry", cache.catalogue().values(), ids=lambda entry: entry.name)
def test_a_shipped_graph_is_what_the_catalogue_says(entry: cache.Entry) -> None:
    spec = parse(entry.name)
    graph = spec.graph()
    assert (len(graph), graph.tensor_count, graph.fingerprint) == (
        entry.operators,
        entry.tensors,
        entry.graph,
    )
    assert float(graph.flops.sum()) == entry.flops
    assert graph.is_training == (spec.mode == "training")
    assert graph.name == spec.name


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_model_has_the_published_number_of_parameters(name: str) -> None:
    assert cache.catalogue()[parse(name).fingerprint].parameters == PARAMETERS[name]


def test_shipped_files_are_few_megabytes() -> None:
    total = sum(file.stat().st_size for file in cache.SHIPPED.iterdir())
    assert total < 4_000_000  # a tenth of it receives updated weights


def test_every_shipped_file_is_in_the_catalogue() -> None:
    files = {file.name for file in cache.SHIPPED.glob("*.npz")}
    assert files == {entry.file for entry in cache.catalogue().values()}


def test_shipped_graphs_need_no_torch() -> None:
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "from stead.workloads import model_from_zoo\n"
        "print(len(model_from_zoo('zoo:gnmt-2', phase='train').graph))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 7000


def test_a_shipped_graph_says_what_it_is() -> None:
    notes = model_from_zoo("zoo:bert-base").notes
    assert notes[0].startswith("bert-base of the zoo, inference: layers 12, width 768, ")


def test_a_shipped_file_that_is_another_graph_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = cache.catalogue()[parse("gnmt-2").fingerprint]
    write_npz(tmp_path / entry.file, small_graph())
    monkeypatch.setattr(cache, "SHIPPED", tmp_path)
    with pytest.raises(BadInput, match="not the graph that stead was built with; install stead again"):
        parse("gnmt-2").graph()


def test_what_does_not_ship_is_captured_once(folder: Path, captures: list[str]) -> None:
    assert UNUSUAL.graph() == UNUSUAL.graph()
    assert captures == ["zoo:gnmt-2?batch=3"]
    assert [file.name for file in (folder / "graphs").iterdir()] == [cache.cache_file(UNUSUAL).name]


@pytest.mark.parametrize("contents", [b"", b"PK\x03\x04", os.urandom(1000), b'{"format": "stead.graph"}'])
def test_a_damaged_entry_is_made_anew(folder: Path, captures: list[str], contents: bytes) -> None:
    UNUSUAL.graph()
    path = cache.cache_file(UNUSUAL)
    path.write_bytes(contents)
    UNUSUAL.graph()
    assert len(captures) == 2
    assert GraphNpz().read(path).graph == small_graph()


def test_a_truncated_entry_is_made_anew(folder: Path, captures: list[str]) -> None:
    UNUSUAL.graph()
    path = cache.cache_file(UNUSUAL)
    path.write_bytes(path.read_bytes()[:-40])
    UNUSUAL.graph()
    assert len(captures) == 2


def test_an_entry_of_another_model_is_made_anew(folder: Path, captures: list[str]) -> None:
    UNUSUAL.graph()
    write_npz(cache.cache_file(UNUSUAL), small_graph("rnnlm-2"))
    assert UNUSUAL.graph().name == "gnmt-2"
    assert len(captures) == 2


def test_a_folder_in_place_of_an_entry_does_not_hurt(folder: Path, captures: list[str]) -> None:
    cache.cache_file(UNUSUAL).mkdir(parents=True)
    assert UNUSUAL.graph() == small_graph()


def test_a_cache_that_cannot_be_written_does_not_hurt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, captures: list[str]
) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("STEAD_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr(cache, "torch_version", lambda: "2.13.0")
    assert UNUSUAL.graph() == small_graph()
    assert captures == ["zoo:gnmt-2?batch=3"]


def test_a_user_without_a_home_has_no_cache(monkeypatch: pytest.MonkeyPatch, captures: list[str]) -> None:
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("STEAD_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", nowhere)
    monkeypatch.setattr(cache, "torch_version", lambda: "2.13.0")
    assert UNUSUAL.graph() == UNUSUAL.graph() == small_graph()
    assert len(captures) == 2


def test_no_draft_is_left_behind(folder: Path, captures: list[str]) -> None:
    for batch in range(1, 4):
        get("gnmt", batch=batch).graph()
    assert sorted(file.suffix for file in (folder / "graphs").iterdir()) == [".npz"] * 3


def test_versions_and_options_are_part_of_the_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {cache.cache_file(UNUSUAL), cache.cache_file(get("gnmt", batch=4))}
    monkeypatch.setattr(cache, "torch_version", lambda: "2.14.0")
    seen.add(cache.cache_file(UNUSUAL))
    monkeypatch.setattr(cache, "_sources", lambda: "other")
    seen.add(cache.cache_file(UNUSUAL))
    monkeypatch.setattr(cache.metadata, "version", lambda package: "9.9")
    seen.add(cache.cache_file(UNUSUAL))
    assert len(seen) == 5


def test_the_cache_is_where_the_user_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STEAD_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache.cache_folder() == Path.home() / ".cache" / "stead"
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache.cache_folder() == Path("/somewhere/stead")
    monkeypatch.setenv("STEAD_CACHE", "/elsewhere")
    assert cache.cache_folder() == Path("/elsewhere")


def test_without_torch_the_way_out_is_told(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(cache, "torch_version", lambda: "")
    with pytest.raises(MissingExtra) as caught:
        UNUSUAL.graph()
    assert str(caught.value) == (
        "the graph of zoo:gnmt-2?batch=3 does not come with stead, and capturing it needs torch: "
        'pip install "stead[torch]"'
    )


def test_the_catalogue_is_complete() -> None:
    document = json.loads(cache.CATALOGUE.read_text())
    assert document["torch"]
    assert len(document["graphs"]) == len(cache.catalogue()) == 2 * len(names())
