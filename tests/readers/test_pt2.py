"""Exported programs: read without torch, the same as torch sees them, hostile ones refused.

STEAD_FUZZ sets the number of damaged files (300 otherwise).
"""

from __future__ import annotations

import json
import os
import pickle
import random
import struct
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path
from typing import Any

import pytest
from pt2_files import SYMBOL, graph, meta, node, program, reading, size, write_archive
from test_fuzz import damaged, survives

from stead.errors import BadInput
from stead.graph import Graph
from stead.readers import read
from stead.readers.common.assumed_sizes import Assumed
from stead.readers.common.symbolic_sizes import SymbolicSizes
from stead.readers.torch import pt2_archive
from stead.readers.torch.pt2 import Pt2

ROUNDS = int(os.environ.get("STEAD_FUZZ", "300"))


@pytest.fixture
def saved(here: Path) -> Any:
    """Writes a document as an archive and gives the path."""

    def write(model: Any, **options: Any) -> str:
        return str(write_archive("net.pt2", model, **options))

    return write


def nodes_of(document: dict[str, Any]) -> list[Any]:
    found: list[Any] = document["graph_module"]["graph"]["nodes"]
    return found


# A file written by hand


def test_a_program_is_recognised_and_read(saved):
    graph = read(saved(program())).graph
    assert [(one.name, one.kind, one.module) for one in graph.operators()] == [
        ("x", "input", ""),
        ("linear", "aten.linear", "net.0"),
        ("relu", "aten.relu", "net.1"),
        ("product", "aten.mul", "tail"),
    ]


def test_costs_and_weights_follow_from_shapes(saved):
    graph = Pt2().read(saved(program())).graph
    linear = graph.operator(graph.index("linear"))
    assert linear.flops == 2 * 2 * 4 * 6 + 12
    assert linear.moved_bytes == 4 * (8 + 24 + 6 + 12)
    assert dict(zip(graph.weight_names, graph.weight_bytes.tolist(), strict=True)) == {
        "net.0.bias": 24,
        "net.0.weight": 96,
    }


def test_halves_are_tensors_of_their_own_and_names_lead_back(saved):
    graph = Pt2().read(saved(program())).graph
    linear = graph.operator(graph.index("linear"))
    assert [(graph.tensor_names[t], int(graph.tensor_bytes[t])) for t in linear.writes] == [
        ("first", 24),
        ("second", 24),
    ]
    assert dict(graph.folded) == {"first": "linear", "second": "linear"}
    assert graph.tensor_names[graph.tensor_kept.nonzero()[0][0]] == "product"


def test_a_compressed_archive_is_the_same(saved):
    plain = Pt2().read(saved(program())).graph
    assert Pt2().read(saved(program(), packed=True)).graph == plain


def test_two_names_of_one_stored_tensor_are_one_weight(saved):
    document = program()
    module = document["graph_module"]
    module["graph"]["tensor_values"]["p_tied"] = meta(6, 4)
    module["graph"]["nodes"].append(node("aten.linear.default", ["x", "p_tied"], ["again"]))
    module["graph"]["tensor_values"]["again"] = meta(2, 6)
    module["signature"]["input_specs"].append(
        {"parameter": {"arg": {"name": "p_tied"}, "parameter_name": "tied.weight"}}
    )
    from pt2_files import weights

    config = weights()
    config["config"]["tied.weight"] = config["config"]["net.0.weight"]
    graph = Pt2().read(saved(document, **{"data/weights/model_weights_config.json": config})).graph
    assert sorted(graph.weight_names) == ["net.0.bias", "net.0.weight"]
    users = {graph.operator_names[v] for v in graph.weight_users.tolist()}
    assert users == {"linear", "again"}


def test_a_branch_is_one_operator_with_the_price_of_the_dearer_side(saved):
    document = program()
    values = {"a": meta(2, 3), "b": meta(2, 3)}
    sides = [
        graph(["a"], ["b"], [node(f"aten.{kind}.default", ["a"], ["b"])], dict(values))
        for kind in ("relu", "tanh")
    ]
    bodies = [{"as_graph": {"name": f"side{i}", "graph": side}} for i, side in enumerate(sides)]
    nodes_of(document).append(
        node("higher_order.cond", ["x", *bodies, {"as_tensors": [{"name": "relu"}]}], ["c"])
    )
    document["graph_module"]["graph"]["tensor_values"]["c"] = meta(2, 3)
    model = Pt2().read(saved(document))
    assert model.graph.operator(model.graph.index("c")).flops == 6 * 4
    assert "1 operators hold graphs and are placed as one (higher_order.cond 1)" in model.notes[0]


def test_an_operator_of_another_library_is_priced_by_bytes_and_reported(saved):
    document = program()
    nodes_of(document)[4] = node("mylib.relu.default", ["first"], ["relu"])
    model = Pt2().read(saved(document))
    assert model.notes == ("1 operators of unknown kinds have a price by their bytes alone: mylib.relu 1",)


def test_an_unknown_tag_of_an_argument_is_passed_over(saved):
    document = program()
    nodes_of(document)[4]["inputs"].append({"name": "n", "arg": {"as_tomorrow": {"deep": []}}, "kind": 2})
    assert len(Pt2().read(saved(document)).graph) == 4


def test_another_schema_is_tried_and_remarked(saved):
    document = program()
    document["schema_version"] = {"major": 9, "minor": 0}
    assert Pt2().read(saved(document)).notes == (
        "the file has schema 9 and this reader is made for 8: look at the graph with care",
    )


# Open sizes


def test_open_sizes_are_those_of_the_example_or_as_set(saved):
    path = saved(program(SYMBOL))
    as_exported = Pt2().read(path)
    assert as_exported.assumed == (Assumed("x[0]", 2, "batch"),)
    assert as_exported.graph.flops.sum() == 2 * 2 * 4 * 6 + 12 + 6 + 6
    for options in ({"shapes": {"x[0]": 10}}, {"shapes": {"s7": 10}}, {"shapes": {"x": (10, 4)}}, {"batch": 10}):
        larger = Pt2(**options).read(path)
        assert larger.assumed == ()
        assert larger.graph.flops.sum() == 5 * as_exported.graph.flops.sum()
        assert larger.notes == ()


def test_a_size_that_is_not_open_cannot_be_set(saved, refusal):
    path = saved(program(SYMBOL))
    assert refusal(Pt2(shapes={"x[1]": 3}).read, path) == (
        'net.pt2: shapes: no open dimension "x[1]"; did you mean \'x[0]\'?; open: "x[0]"'
    )
    assert "must be a whole number" in refusal(Pt2, shapes={"x": 0})
    assert refusal(Pt2(shapes={"x": (3, 5)}).read, path) == (
        'net.pt2: shapes: dimension 1 of "x" is 4 in the file, not 5'
    )
    assert "has 2 dimensions, got 3x5x1" in refusal(Pt2(shapes={"x": (3, 5, 1)}).read, path)


def test_a_size_that_depends_on_data_must_be_set(saved, refusal):
    document = program()
    document["graph_module"]["graph"]["tensor_values"]["relu"]["sizes"][0] = size("Symbol('u0')")
    document["range_constraints"] = {"u0": {"min_val": 0, "max_val": None}}
    path = saved(document)
    assert refusal(Pt2().read, path) == (
        'net.pt2: node 5 ("relu"): tensor "relu": the size u0 depends on data; '
        'set it with the option shapes, as in shapes={"u0": 100}'
    )
    graph = Pt2(shapes={"u0": 100}).read(path).graph
    assert graph.flops[graph.index("relu")] == 300


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Add(Symbol('s', integer=True), Integer(1))", 11),
        ("Mul(Integer(2), Pow(Symbol('s'), Integer(2)))", 200),
        ("FloorDiv(Symbol('s'), Integer(3))", 3),
        ("Max(Integer(1), Mod(Symbol('s'), Integer(4)))", 2),
        ("CeilToInt(IntTrueDiv(Symbol('s'), Integer(4)))", 3),
        ("2*s + 1 - s//5", 19),
        ("Mul(Rational(1, 2), Symbol('s'))", 5),
    ],
)
def test_expressions_over_symbols_are_computed(text: str, value: int):
    sizes = SymbolicSizes({"s": 10})
    assert sizes.size(text, 1) == value


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('touch executed')",
        "s**s**s**s",
        "9**9**9",
        "(" * 5000,
        "f(s)",
        "s/0",
        "'a'*s",
        "[s][0]",
    ],
)
def test_other_expressions_fall_back_on_the_example_and_run_nothing(here: Path, text: str):
    sizes = SymbolicSizes({"s": 10})
    assert sizes.size(text, 7) == 7
    assert list(sizes.notes()) == [
        "some open sizes could not be computed from `shapes` and have the size of the example"
    ]
    assert not Path("executed").exists()


# Without torch


def test_reading_imports_no_torch_and_opens_no_pickle(saved):
    path = saved(program())
    code = (
        "import sys, stead.readers as f; "
        f"model = f.read({path!r}); "
        "assert len(model.graph) == 4; "
        "loaded = {'torch', 'pickle', 'onnx'} & set(sys.modules); "
        "assert not {'torch', 'onnx'} & loaded, loaded"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    assert not Path("pickled").exists()


def test_only_json_is_opened(saved, monkeypatch):
    opened: list[str] = []
    real = zipfile.ZipFile.open

    def watched(self: Any, name: Any, *arguments: Any, **options: Any) -> Any:
        opened.append(getattr(name, "filename", name))
        return real(self, name, *arguments, **options)

    path = saved(program())
    monkeypatch.setattr(zipfile.ZipFile, "open", watched)
    monkeypatch.setattr(pickle, "loads", None)
    Pt2().read(path)
    assert opened == ["net/models/model.json", "net/data/weights/model_weights_config.json"]


# Hostile files


def test_a_truncated_archive_is_refused(saved, refusal):
    path = Path(saved(program()))
    whole = path.read_bytes()
    for length in (30, len(whole) // 2, len(whole) - 5):
        path.write_bytes(whole[:length])
        message = refusal(Pt2().read, str(path))
        assert message == "net.pt2: no zip archive, or one that was not written completely; export it again"


def test_damaged_contents_are_refused(saved, refusal):
    path = Path(saved(program()))
    data = bytearray(path.read_bytes())
    at = data.index(b'"graph_module"')
    data[at + 3] ^= 1
    path.write_bytes(data)
    assert "a damaged archive (Bad CRC-32" in refusal(Pt2().read, str(path))


def test_a_document_that_unpacks_to_hundreds_of_times_its_size_is_refused(here, refusal):
    bomb = b"[" + b" " * 2**25 + b"]"
    path = str(write_archive("bomb.pt2", bomb, packed=True))
    assert refusal(Pt2().read, path) == (
        'bomb.pt2: "models/model.json" unpacks to over 300 times its size: no program'
    )


def test_a_document_of_absurd_size_is_refused_before_it_is_read(saved, refusal):
    path = Path(saved(program(), packed=True))
    data = bytearray(path.read_bytes())
    name = data.rindex(b"net/models/model.json")  # in the list of entries
    struct.pack_into("<I", data, name - 46 + 24, 2**31)
    path.write_bytes(data)
    assert '"models/model.json" has 2147483648 bytes; at most 2^28 are read' in refusal(Pt2().read, str(path))


def test_a_list_of_entries_of_absurd_size_is_refused(saved, refusal):
    path = Path(saved(program()))
    data = bytearray(path.read_bytes())
    struct.pack_into("<I", data, len(data) - 10, 2**31)
    path.write_bytes(data)
    assert "the list of entries of the archive has 2147483648 bytes" in refusal(Pt2().read, str(path))


def test_a_missing_model_is_refused(saved, refusal):
    path = saved(program(), **{"models/model.json": None})
    assert refusal(Pt2().read, path) == (
        "net.pt2: no models/model.json in the archive; is it a program that torch.export.save wrote?"
    )


def test_some_other_zip_is_refused(here, refusal):
    with zipfile.ZipFile("other.pt2", "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"a": 1}))
    assert "no models/model.json in the archive" in refusal(read, "other.pt2")
    Path("text.pt2").write_text("not a zip file at all")
    assert "no zip archive" in refusal(read, "text.pt2")


def test_an_encrypted_document_is_refused(saved, refusal):
    path = Path(saved(program()))
    data = bytearray(path.read_bytes())
    name = data.rindex(b"net/models/model.json")
    data[name - 46 + 8] |= 1
    path.write_bytes(data)
    assert refusal(Pt2().read, str(path)) == "net.pt2: the archive is encrypted"


def test_two_models_in_one_archive_are_refused(saved, refusal):
    others = {"models/model.json": None, "models/a.json": program(), "models/b.json": program()}
    path = saved(program(), **others)
    assert '2 models in the archive ("models/a.json", "models/b.json")' in refusal(Pt2().read, path)


def dangling(document: dict[str, Any]) -> None:
    nodes_of(document)[4]["inputs"][0]["arg"] = reading("nowhere")


def cyclic(document: dict[str, Any]) -> None:
    nodes_of(document)[1]["inputs"][0]["arg"] = reading("relu")


def written_twice(document: dict[str, Any]) -> None:
    nodes_of(document).append(nodes_of(document)[4])


def without_meta(document: dict[str, Any]) -> None:
    del document["graph_module"]["graph"]["tensor_values"]["relu"]


def huge(document: dict[str, Any]) -> None:
    document["graph_module"]["graph"]["tensor_values"]["relu"]["sizes"] = [size(10**30)]


def too_large(document: dict[str, Any]) -> None:
    document["graph_module"]["graph"]["tensor_values"]["relu"]["sizes"] = [size(2**40), size(2**40)]


def many_dimensions(document: dict[str, Any]) -> None:
    document["graph_module"]["graph"]["tensor_values"]["relu"]["sizes"] = [size(1)] * 1000


def unknown_type(document: dict[str, Any]) -> None:
    document["graph_module"]["graph"]["tensor_values"]["relu"]["dtype"] = 99


def no_graph(document: dict[str, Any]) -> None:
    del document["graph_module"]["graph"]


def graph_of_text(document: dict[str, Any]) -> None:
    document["graph_module"]["graph"] = "graph"


def no_version(document: dict[str, Any]) -> None:
    document["schema_version"] = {"major": "eight"}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (dangling, 'node 5 ("relu"): reads "nowhere", which nothing before it writes'),
        (cyclic, 'node 2 ("linear"): reads "relu", which nothing before it writes'),
        (written_twice, 'node 7 ("relu"): "relu" is written twice'),
        (without_meta, 'node 5 ("relu"): nothing is known about tensor "relu"'),
        (huge, 'node 5 ("relu"): tensor "relu": a size must be a whole number from 0 to 2^62'),
        (too_large, 'node 5 ("relu"): tensor "relu" would have 4.84e+24 bytes; more than 2^62 make no sense'),
        (many_dimensions, 'node 5 ("relu"): tensor "relu" has 1000 dimensions; at most 64 make sense'),
        (unknown_type, 'node 5 ("relu"): tensor "relu": elements of unknown type 99'),
        (no_graph, 'the key "graph" is missing; is it a program that torch.export.save wrote?'),
        (graph_of_text, 'graph: must be an object, got "graph"'),
        (no_version, 'schema_version: major must be a number, got "eight"'),
    ],
)
def test_what_makes_no_sense_is_told_with_its_place(saved, refusal, damage, message):
    document = program()
    damage(document)
    assert refusal(Pt2().read, saved(document)).startswith(f"net.pt2: {message}")


def test_deep_nesting_is_refused(saved, refusal):
    assert refusal(Pt2().read, saved(b"[" * 100_000)) == 'net.pt2: "models/model.json" is nested too deeply'
    inner = graph(["a"], ["b"], [node("aten.relu.default", ["a"], ["b"])], {"a": meta(2), "b": meta(2)})
    for _ in range(40):
        body = {"as_graph": {"name": "inner", "graph": inner}}
        outer = node("higher_order.wrap_with_set_grad_enabled", [{"as_bool": True}, body, "a"], ["b"])
        inner = graph(["a"], ["b"], [outer], {"a": meta(2), "b": meta(2)})
    document = program()
    nodes_of(document).append(
        node("higher_order.wrap", [{"as_graph": {"name": "inner", "graph": inner}}, "relu"], ["c"])
    )
    assert "graphs are nested more than 32 deep" in refusal(Pt2().read, saved(document))


def test_numbers_of_absurd_length_are_refused(saved, refusal):
    text = json.dumps(program()).replace('"as_int": 4}', '"as_int": ' + "9" * 5000 + "}", 1)
    assert (
        refusal(Pt2().read, saved(text.encode()))
        == "net.pt2: a number of 5000 digits; export the program again"
    )


def test_text_that_is_no_json_is_told_with_its_place(saved, refusal):
    assert refusal(Pt2().read, saved(b"{]")).startswith(
        'net.pt2: "models/model.json": line 1, column 2: not JSON'
    )
    assert "is not text" in refusal(Pt2().read, saved(b"\xff\xfe"))


def test_too_many_nodes_are_refused(saved, refusal, monkeypatch):
    monkeypatch.setattr("stead.readers.torch.pt2.MAX_NODES", 6)
    assert "more than 6 nodes; coarsen the model first" in refusal(Pt2().read, saved(program()))


@pytest.mark.fuzz(ROUNDS)
def test_damaged_programs_give_a_model_or_one_line(here: Path):
    valid = program(SYMBOL)
    readable = 0
    for seed in range(ROUNDS):
        chance = random.Random(seed)
        path = write_archive("damaged.pt2", damaged(chance, valid))
        shapes = {"s7": 5} if chance.random() < 0.3 else {}
        if chance.random() < 0.2:
            data = bytearray(path.read_bytes())
            for _ in range(chance.randint(1, 5)):
                data[chance.randrange(len(data))] = chance.randrange(256)
            path.write_bytes(data[: chance.randint(1, len(data))] if chance.random() < 0.3 else data)
        survives(read, str(path))
        readable += survives(Pt2(shapes=shapes).read, str(path)) is not None
    assert readable, "some damage must be harmless, or only the first check is ever tested"
    assert not Path("pickled").exists()


def test_the_limit_of_the_ratio_leaves_room_for_real_programs(saved):
    document = program()
    values = document["graph_module"]["graph"]["tensor_values"]
    before = "relu"
    for i in range(3000):
        nodes_of(document).append(node("aten.relu.default", [before], [before := f"more_{i}"], "net.1"))
        values[before] = meta(2, 3)
    path = Path(saved(document, packed=True))
    assert path.stat().st_size * 100 > pt2_archive._FREE_BYTES / 10
    assert len(Pt2().read(str(path)).graph) == 3004


# The same as torch sees it


@pytest.fixture(scope="module")
def torch() -> Any:
    return pytest.importorskip("torch", reason="writes files with torch.export.save")


def saved_by_torch(torch: Any, module: Any, inputs: tuple[Any, ...], **options: Any) -> tuple[Any, str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of its own future
        exported = torch.export.export(module.eval(), inputs, strict=False, **options)
        torch.export.save(exported, "model.pt2")
    return exported, "model.pt2"


def assert_same(ours: Graph, theirs: Graph) -> None:
    assert ours.operator_names == theirs.operator_names
    assert ours.flops.tolist() == theirs.flops.tolist()
    assert ours.weight_bytes.tolist() == theirs.weight_bytes.tolist()
    assert ours == theirs


@pytest.mark.parametrize("family", ["rnnlm", "resnet", "bert_fused", "wavenet", "lstm", "tied", "in_place"])
def test_a_file_and_its_program_give_the_same_graph(torch, here, family):
    from torch_models import FAMILIES

    from stead.readers.torch.exported import from_exported

    module = FAMILIES[family].make()
    exported, path = saved_by_torch(torch, module, FAMILIES[family].inputs())
    model = read(path)
    assert model.notes == ()
    assert_same(model.graph, from_exported(exported, name="model").graph)


def test_open_sizes_of_torch_are_set_alike(torch, here):
    from torch_models import Bert

    from stead.readers.torch.exported import from_exported

    batch = torch.export.Dim("batch", min=2, max=64)
    exported, path = saved_by_torch(
        torch, Bert(layers=1), (torch.zeros(2, 6, dtype=torch.long),), dynamic_shapes={"tokens": {0: batch}}
    )
    as_exported = Pt2().read(path)
    assert as_exported.assumed == (Assumed("tokens[0]", 2, "batch"),)
    larger = Pt2(shapes={"tokens[0]": 8}).read(path)
    assert_same(larger.graph, from_exported(exported, shapes={"tokens[0]": 8}, name="model").graph)
    fixed, _ = saved_by_torch(torch, Bert(layers=1), (torch.zeros(8, 6, dtype=torch.long),))
    assert larger.graph.flops.sum() == from_exported(fixed).graph.flops.sum()


def test_regions_without_gradients_and_branches_are_read_alike(torch, here):
    from stead.readers.torch.exported import from_exported

    class Regions(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            with torch.no_grad():
                y = torch.sin(x) + self.b(x)
            return torch.cond(x.sum() > 0, lambda u: self.a(u).sin(), lambda u: u.cos(), (x,)) + y

    exported, path = saved_by_torch(torch, Regions(), (torch.zeros(3, 4),))
    model = Pt2().read(path)
    assert_same(model.graph, from_exported(exported, name="model").graph)
    assert {"aten.sin", "higher_order.cond"} <= set(model.graph.kinds)
    assert "higher_order.wrap_with_set_grad_enabled" not in model.graph.kinds


def test_numbers_that_are_none_do_not_stop_the_reader(torch, here):
    class Masked(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x.masked_fill(x > 0, float("-inf")) + torch.full_like(x, float("nan"))

    _, path = saved_by_torch(torch, Masked(), (torch.zeros(3),))
    assert len(Pt2().read(path).graph) == 5


def test_without_torch_capturing_says_what_to_install(monkeypatch):
    from stead.errors import MissingExtra
    from stead.readers.torch.exported import from_torch

    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(
        MissingExtra, match=r'reading PyTorch modules needs torch: pip install "stead\[torch\]"'
    ):
        from_torch(object(), ())


def test_options_are_checked_when_the_reader_is_made():
    with pytest.raises(BadInput, match="whole number from 1 to 2"):
        Pt2(shapes={"x[0]": -1})
