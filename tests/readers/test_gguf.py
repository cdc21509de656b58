"""GGUF files: exact bytes, layers and their costs, and files that lie about themselves."""

from __future__ import annotations

import struct
import time
from pathlib import Path

import numpy as np
import pytest
from model_files import gguf_file

from stead.errors import BadInput
from stead.placing.loading import load
from stead.problem import Latency, Placement
from stead.readers import read
from stead.readers.gguf.reader import Gguf
from stead.report import layer_rows
from stead.report.layer_text import layer_texts
from stead.solvers.whole_blocks import is_language_model, whole_blocks

F32, F16, Q8_0, Q4_K = 0, 1, 8, 12
WIDTH, HIDDEN, WORDS = 256, 512, 1000
METADATA = {
    "general.architecture": "llama", "general.name": "tiny", "llama.block_count": 2, "llama.embedding_length": WIDTH,
    "llama.attention.head_count": 4, "llama.attention.head_count_kv": 2, "llama.context_length": 4096,
    "tokenizer.ggml.tokens": ["a", "b", "c"], "tokenizer.ggml.scores": [0.5, 1.5, 2.5], "general.flag": True,
}  # fmt: skip


def block(number, feed_forward=None):
    """Tensors of one block: 64 per head, 2 of 4 heads for keys and values."""
    dense = {"ffn_norm": ((WIDTH,), F32), "ffn_gate": ((WIDTH, HIDDEN), Q4_K), "ffn_up": ((WIDTH, HIDDEN), Q4_K),
             "ffn_down": ((HIDDEN, WIDTH), Q4_K)}  # fmt: skip
    attention = {"attn_norm": ((WIDTH,), F32), "attn_q": ((WIDTH, WIDTH), Q8_0), "attn_k": ((WIDTH, 128), Q8_0),
                 "attn_v": ((WIDTH, 128), Q8_0), "attn_output": ((WIDTH, WIDTH), Q8_0)}  # fmt: skip
    return {
        f"blk.{number}.{name}.weight": it for name, it in {**attention, **(feed_forward or dense)}.items()
    }


def tiny(*, tied=False, blocks=2, **metadata):
    tensors = {
        "token_embd.weight": ((WIDTH, WORDS), F16),
        **{k: v for i in range(blocks) for k, v in block(i).items()},
    }
    tensors["output_norm.weight"] = ((WIDTH,), F32)
    if not tied:
        tensors["output.weight"] = ((WIDTH, WORDS), F16)
    return gguf_file({**METADATA, **metadata}, tensors)


MOE = {
    "ffn_norm": ((WIDTH,), F32), "ffn_gate_inp": ((WIDTH, 8), F32), "ffn_gate_exps": ((WIDTH, HIDDEN, 8), Q4_K),
    "ffn_up_exps": ((WIDTH, HIDDEN, 8), Q4_K), "ffn_down_exps": ((HIDDEN, WIDTH, 8), Q4_K),
    "ffn_up_shexp": ((WIDTH, HIDDEN), Q4_K),
}  # fmt: skip


@pytest.fixture
def save_gguf(here):
    def write(data, name="tiny.gguf"):
        Path(name).write_bytes(data)
        return name

    return write


def operator(graph, name):
    return graph.operator(graph.index(name))


ATTENTION_BYTES = 4 * WIDTH + 34 * (256 * 256 * 2 + 256 * 128 * 2) // 32
FEED_FORWARD_BYTES = 4 * WIDTH + 144 * (3 * WIDTH * HIDDEN) // 256
VECTOR_BYTES = 4 * WIDTH


def test_a_block_is_an_attention_unit_and_a_feed_forward_unit(save_gguf):
    graph = Gguf(context=0).read(save_gguf(tiny())).graph
    assert graph.name == "tiny"
    assert graph.operator_names == (
        "token_embd", "blk.0.attn", "blk.0.ffn", "blk.1.attn", "blk.1.ffn", "output_norm", "output"
    )  # fmt: skip
    assert graph.edges.tolist() == [[i, i + 1] for i in range(6)]
    assert graph.modules[1] == "blk.0.attn"


def test_bytes_are_exact_by_type(save_gguf):
    graph = Gguf(context=0).read(save_gguf(tiny())).graph
    table = WIDTH * WORDS * 2
    expected = [
        table,
        ATTENTION_BYTES,
        FEED_FORWARD_BYTES,
        ATTENTION_BYTES,
        FEED_FORWARD_BYTES,
        4 * WIDTH,
        table,
    ]
    assert graph.parameter_bytes.tolist() == expected
    assert set(graph.weight_names) >= {"token_embd.weight", "blk.1.attn_q.weight", "output.weight"}


def test_decoding_reads_every_weight_once_with_two_flops_per_element(save_gguf):
    graph = Gguf(context=0).read(save_gguf(tiny())).graph
    unit = operator(graph, "blk.0.ffn")
    assert unit.flops == 2 * (3 * WIDTH * HIDDEN + WIDTH)
    assert unit.moved_bytes == FEED_FORWARD_BYTES + 2 * VECTOR_BYTES


def test_a_lookup_reads_one_row(save_gguf):
    embedding = operator(Gguf().read(save_gguf(tiny())).graph, "token_embd")
    assert (embedding.flops, embedding.moved_bytes) == (0, 2 * WIDTH + VECTOR_BYTES)


def test_the_output_returns_one_number_per_word(save_gguf):
    graph = Gguf(batch=3).read(save_gguf(tiny())).graph
    logits = graph.tensor(graph.tensor_count - 1)
    assert (logits.size_bytes, logits.shape, logits.kept) == (3 * WORDS * 4, (3, WORDS), True)


def test_a_tied_output_shares_the_table(save_gguf):
    graph = Gguf(context=0).read(save_gguf(tiny(tied=True))).graph
    table = graph.weight_names.index("token_embd.weight")
    users = graph.weight_users[graph.weight_user_first[table] : graph.weight_user_first[table + 1]]
    assert [graph.operator_names[v] for v in users] == ["token_embd", "output"]
    assert operator(graph, "output").flops == 2 * WIDTH * WORDS
    assert (
        graph.weight_bytes.sum() == 2 * WIDTH * WORDS + 2 * (ATTENTION_BYTES + FEED_FORWARD_BYTES) + 4 * WIDTH
    )


def test_the_cache_is_a_weight_of_its_layer(save_gguf):
    graph = Gguf(context=1000).read(save_gguf(tiny())).graph
    cache = 1000 * 2 * (64 + 64) * 2  # tokens, heads, key and value of 64, two bytes
    assert graph.weight_bytes[graph.weight_names.index("blk.1.attn.kv_cache")] == cache
    plain = operator(Gguf(context=0).read("tiny.gguf").graph, "blk.1.attn")
    unit = operator(graph, "blk.1.attn")
    assert unit.moved_bytes - plain.moved_bytes == cache
    assert unit.flops - plain.flops == 2 * 1000 * 4 * (64 + 64)


def test_a_batch_shares_weights_and_not_caches(save_gguf):
    one, four = (Gguf(batch=batch, context=100).read(save_gguf(tiny())).graph for batch in (1, 4))
    name = one.weight_names.index("blk.0.attn.kv_cache")
    assert four.weight_bytes[name] == 4 * one.weight_bytes[name]
    assert four.flops.sum() == 4 * one.flops.sum()
    assert operator(four, "output").moved_bytes - operator(one, "output").moved_bytes == 3 * 2 * VECTOR_BYTES


def test_layers_may_have_their_own_numbers(save_gguf):
    path = save_gguf(tiny(**{"llama.attention.head_count_kv": [2, 1]}))
    graph = Gguf(context=10).read(path).graph
    sizes = dict(zip(graph.weight_names, graph.weight_bytes.tolist(), strict=True))
    assert sizes["blk.0.attn.kv_cache"] == 2 * sizes["blk.1.attn.kv_cache"]


def test_a_block_without_attention_keeps_nothing(save_gguf):
    tensors = {"token_embd.weight": ((WIDTH, WORDS), F16), "blk.0.ssm_in.weight": ((WIDTH, WIDTH), F16)}
    graph = Gguf(context=10).read(save_gguf(gguf_file(METADATA, tensors))).graph
    assert not [name for name in graph.weight_names if name.endswith("cache")]


def test_experts_are_apart_and_few_of_them_work(save_gguf):
    tensors = {"token_embd.weight": ((WIDTH, WORDS), F16), **block(0, MOE), **block(1)}
    metadata = {**METADATA, "llama.expert_count": 8, "llama.expert_used_count": 2}
    graph = Gguf().read(save_gguf(gguf_file(metadata, tensors))).graph
    experts = operator(graph, "blk.0.experts")
    assert experts.module == "blk.0.experts"
    assert experts.parameter_bytes == 8 * 144 * 3 * WIDTH * HIDDEN // 256
    assert experts.flops == 2 * 2 * 3 * WIDTH * HIDDEN
    assert experts.moved_bytes == pytest.approx(experts.parameter_bytes / 4 + 2 * VECTOR_BYTES)
    following = operator(graph, "blk.1.attn")
    producers = [graph.operator_names[graph.tensor(t).producer] for t in following.reads]
    assert producers == ["blk.0.attn", "blk.0.ffn", "blk.0.experts"]  # stream, shared experts, experts


@pytest.mark.parametrize(("batch", "launches"), [(1, 2.0), (3, 8 * (1 - 0.75**3))])
def test_experts_are_launched_as_often_as_is_to_be_expected(save_gguf, batch, launches):
    metadata = {**METADATA, "llama.expert_count": 8, "llama.expert_used_count": 2}
    graph = Gguf(batch=batch).read(save_gguf(gguf_file(metadata, block(0, MOE)))).graph
    [kernel] = graph.kernels_of(graph.index("blk.0.experts"))
    assert kernel.launches == pytest.approx(launches)
    assert [one.launches for one in graph.kernels_of(graph.index("blk.0.ffn"))] == [1.0]


def test_experts_in_tensors_of_their_own_are_experts_too(save_gguf):
    old = {f"ffn_{part}.{i}": ((WIDTH, HIDDEN), F16) for part in ("gate", "up", "down") for i in range(4)}
    graph = (
        Gguf()
        .read(save_gguf(gguf_file(METADATA, block(0, {"ffn_gate_inp": ((WIDTH, 4), F32), **old}))))
        .graph
    )
    assert operator(graph, "blk.0.experts").parameter_bytes == 12 * 2 * WIDTH * HIDDEN


def test_an_encoder_feeds_every_block_of_the_decoder(save_gguf):
    tensors = {"token_embd.weight": ((WIDTH, WORDS), F16)}
    for part in ("dec", "enc"):
        for i in range(2):
            tensors |= {f"{part}.{name}": it for name, it in block(i).items()}
    graph = Gguf().read(save_gguf(gguf_file(METADATA, tensors))).graph
    last = graph.index("enc.blk.1.ffn")
    assert all([last, graph.index(f"dec.blk.{i}.attn")] in graph.edges.tolist() for i in range(2))
    assert [0, graph.index("dec.blk.0.attn")] in graph.edges.tolist()


def test_blocks_that_predict_further_tokens_are_held_and_idle(save_gguf):
    graph = Gguf().read(save_gguf(tiny(**{"llama.nextn_predict_layers": 1}))).graph
    assert operator(graph, "blk.1.ffn").parameter_bytes == FEED_FORWARD_BYTES
    assert (operator(graph, "blk.1.ffn").flops, operator(graph, "blk.1.ffn").moved_bytes) == (0, 0)
    assert operator(graph, "blk.0.ffn").flops > 0


def test_tensors_of_unknown_types_end_where_the_next_begins(save_gguf):
    tensors = {"blk.0.attn_q.weight": ((WIDTH, 4), 200), "blk.0.attn_k.weight": ((WIDTH,), F32)}
    model = Gguf().read(save_gguf(gguf_file(METADATA, tensors)))
    assert model.graph.weight_bytes[model.graph.weight_names.index("blk.0.attn_q.weight")] == 1024
    assert any("1 tensors are of unknown types" in note for note in model.notes)


def test_notes_tell_types_and_bytes(save_gguf):
    total = 2 * 2 * WIDTH * WORDS + 2 * (ATTENTION_BYTES + FEED_FORWARD_BYTES) + 4 * WIDTH
    told, *notes = Gguf().read(save_gguf(tiny())).notes
    assert "context 4096 (default; --context N)" in told
    assert notes == [f"21 tensors of {total} bytes in 2 blocks: Q8_0 8, Q4_K 6, F32 5, F16 2"]


def test_a_model_in_several_files_is_one_graph(save_gguf):
    first = {"token_embd.weight": ((WIDTH, WORDS), F16), **block(0)}
    split = {**METADATA, "split.count": 2}
    save_gguf(gguf_file(split, first), "big-00001-of-00002.gguf")
    save_gguf(gguf_file(split, block(1)), "big-00002-of-00002.gguf")
    for name in ("big-00001-of-00002.gguf", "big-00002-of-00002.gguf"):
        assert len(Gguf().read(name).graph) == 6


def test_a_missing_part_is_named(save_gguf, refusal):
    path = save_gguf(gguf_file({**METADATA, "split.count": 2}, block(0)), "big-00001-of-00002.gguf")
    assert refusal(Gguf().read, path) == f"{path}: part 2 of 2 is missing: big-00002-of-00002.gguf"


def test_a_file_is_recognised_by_name_or_by_contents(save_gguf):
    assert len(read(save_gguf(tiny())).graph) == 7
    assert len(read(save_gguf(tiny(), "model.bin")).graph) == 7


def test_no_tensor_is_read(save_gguf):
    header = gguf_file(METADATA, {"blk.0.attn_q.weight": ((2**18, 2**18), F16)}, data=False)
    with Path("huge.gguf").open("wb") as file:
        file.write(header)
        file.truncate(2**38)  # a sparse file of 256 GiB
    started = time.process_time()
    assert read("huge.gguf").graph.weight_bytes.tolist() == [2**37]
    assert time.process_time() - started < 1.0


def test_a_file_that_is_too_short_for_its_tensors_is_told(save_gguf):
    model = Gguf().read(save_gguf(tiny()[:-5000]))
    assert "the file is shorter than its tensors need; was it copied completely?" in model.notes


@pytest.mark.parametrize(
    "options", [{"batch": 0}, {"batch": True}, {"context": -1}, {"context": 1.5}, {"cache_bits": 0}]
)
def test_options_that_make_no_sense_are_refused(refusal, options):
    assert "must be a whole number" in refusal(Gguf, **options)


# Files that are refused


def header(version=3, tensors=0, metadata=0, rest=b""):
    return b"GGUF" + struct.pack("<IQQ", version, tensors, metadata) + rest


def text(data):
    return struct.pack("<Q", len(data)) + data


def entry(*numbers, form="<IIQ"):
    """A header with one piece of metadata, called key."""
    return header(metadata=1, rest=text(b"key") + struct.pack(form, *numbers) + bytes(99))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file is empty"),
        (b"GGML" + bytes(100), "does not start with GGUF"),
        (b"GGUF", "the header ends at byte 4"),
        (header(version=1), "GGUF version 1 is not known"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "its numbers are big-endian"),
        (header(), "holds no tensors, only metadata"),
        (header(tensors=2**63), "claims 9223372036854775808 tensors"),
        (header(metadata=2**40), "claims 1099511627776 metadata entries"),
        (header(metadata=1, rest=text(b"k" * 20)[:-5] + bytes(30))[:50], "in the middle"),
        (header(metadata=1, rest=struct.pack("<Q", 2**63) + bytes(20)), "in the middle"),
        (entry(77, form="<I"), 'metadata "key" has the unknown type 77'),
        (entry(9, 9, 1), "list of the unknown type 9"),
        (entry(9, 8, 2**60), "claims 1152921504606846976"),
        (entry(9, 4, 2**61), "claims 2305843009213693952 items"),
        (entry(9, 8, 1, 2**63, form="<IIQQ"), "past the end of the file"),
        (header(tensors=1, rest=text(b"t") + struct.pack("<I", 2**31) + bytes(99)), "has 2147483648 dimensions"),
        (gguf_file(METADATA, {"blk.0.a": ((2**62, 2**62), F32)}, data=False), "that makes no sense"),
        (gguf_file(METADATA, {"blk.0.a": ((100,), Q8_0)}, data=False), "have 100 elements, no multiple of 32"),
        (gguf_file({**METADATA, "general.alignment": 0}, block(0)), "an alignment of 0 makes no sense"),
        (gguf_file(METADATA, {"blk.999999.a": ((4,), F32)}), "belongs to block 999999"),
        (gguf_file({**METADATA, "split.count": 3}, block(0)), "one of 3 files whose names should end in"),
    ],
)  # fmt: skip
def test_a_file_that_makes_no_sense_is_refused_at_once(save_gguf, refusal, data, message):
    started = time.process_time()
    said = refusal(Gguf().read, save_gguf(data))
    assert said.startswith("tiny.gguf: ")
    assert message in said
    assert time.process_time() - started < 1.0


def test_two_tensors_of_one_name_are_refused(save_gguf, refusal):
    data = gguf_file(METADATA, {"blk.0.a": ((4,), F32), "blk.0.b": ((4,), F32)}).replace(
        b"blk.0.b", b"blk.0.a"
    )
    assert refusal(Gguf().read, save_gguf(data)) == 'tiny.gguf: two tensors are called "blk.0.a"'


def test_a_header_cut_anywhere_is_refused(save_gguf):
    whole = gguf_file(METADATA, block(0), data=False)
    for end in range(len(whole)):
        with pytest.raises(BadInput, match=r"^tiny\.gguf: "):
            Gguf().read(save_gguf(whole[:end]))


def test_a_vocabulary_of_a_quarter_million_words_is_passed_over_quickly(save_gguf):
    path = save_gguf(tiny(**{"tokenizer.ggml.tokens": [f"word{i}" for i in range(256_000)]}))
    started = time.process_time()
    Gguf().read(path)
    assert time.process_time() - started < 1.0


def test_the_blocks_of_a_mixture_are_kept_whole_with_their_experts_apart(save_gguf):
    tensors = {"token_embd.weight": ((WIDTH, WORDS), F16), **block(0, MOE), **block(1, MOE),
               "output_norm.weight": ((WIDTH,), F32), "output.weight": ((WIDTH, WORDS), F16)}  # fmt: skip
    problem = load(save_gguf(gguf_file(METADATA, tensors)), "3090,cpu").problem(Latency())
    assert is_language_model(problem.graph)
    whole = whole_blocks(problem)
    assert whole.unit_count == 7  # token_embd, twice a block and its experts, output_norm, output
    on_cpu = ["experts" in name for name in whole.graph.operator_names]
    rows = layer_rows(whole, Placement(whole, np.array(on_cpu).astype(np.uint8)))
    assert layer_texts(rows) == [
        "3090: token_embd, blk 0-1, output_norm, output",
        "cpu: experts of blk 0-1",
    ]
