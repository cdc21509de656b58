"""Configurations that make no sense: one line with the file, the key and a remedy; never a traceback, never slow."""

from __future__ import annotations

import copy
import json
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hf_configs import LLAMA_7B, SMALL, Values, small

from stead.errors import BadInput, MissingExtra, SteadError
from stead.readers import Model, read
from stead.readers.hf import HuggingFace, recorded

ROUNDS = int(os.environ.get("STEAD_FUZZ", "300"))
Refusal = Callable[..., str]
Save = Callable[..., str]


@pytest.fixture(autouse=True)
def without_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine that has neither transformers nor torch."""
    monkeypatch.setattr(recorded, "is_installed", lambda: False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": None}, 'the key "hidden_size" is missing, which "llama" needs'),
        ({"hidden_size": -64}, "hidden_size: must be a whole number from 1 to 268435456, got -64"),
        ({"hidden_size": 0}, "hidden_size: must be a whole number from 1"),
        ({"hidden_size": 10**30}, "hidden_size: must be a whole number from 1 to 268435456, got 1000000"),
        ({"hidden_size": "wide"}, 'hidden_size: must be a whole number from 1 to 268435456, got "wide"'),
        ({"hidden_size": 64.5}, "hidden_size: must be a whole number"),
        ({"hidden_size": True}, "hidden_size: must be a whole number"),
        (
            {"num_hidden_layers": 10**9},
            "num_hidden_layers: must be a whole number from 1 to 16384, got 1000000000",
        ),
        (
            {"num_attention_heads": 5, "num_key_value_heads": 5},
            "num_attention_heads: 5 heads do not divide a width of 64",
        ),
        ({"num_key_value_heads": 3}, "num_key_value_heads: 3 heads of keys do not divide 4 heads of queries"),
        ({"tie_word_embeddings": "yes"}, 'tie_word_embeddings: must be true or false, got "yes"'),
        ({"hidden_act": 3}, "hidden_act: must be text, got 3"),
        ({"torch_dtype": "float7"}, "torch_dtype: dtype 'float7' is none that weights can have"),
        ({"architectures": "LlamaForCausalLM"}, "architectures: must be a list of names"),
        ({"model_type": 7}, "model_type: must be text, got 7"),
        ({"model_type": None}, 'the key "model_type" is missing'),
    ],
)
def test_a_value_that_makes_no_sense_is_told_with_its_key(
    save: Save, refusal: Refusal, change: Values, message: str
) -> None:
    values = {key: value for key, value in {**small("llama"), **change}.items() if value is not None}
    told = refusal(HuggingFace().read, save(values, "config.json"))
    assert told.startswith("config.json: ")
    assert message in told


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("mixtral", {"num_experts_per_tok": 5}, "num_experts_per_tok: a token cannot use 5 of 4 experts"),
        ("gemma2", {"layer_types": ["full_attention"]}, "layer_types: 1 types for 3 layers"),
        ("vit", {"patch_size": 64}, "patch_size: patches of 64 x 64 are larger than images of 32 x 32"),
        ("vit", {"image_size": [32, 32, 3]}, "image_size: must be one number or two, got 3"),
        ("llava", {"text_config": []}, "text_config: must be an object, got a list"),
        (
            "llava",
            {"vision_config": {"model_type": "clip_vision_model"}},
            '"vision_config.hidden_size" is missing',
        ),
        (
            "whisper",
            {"decoder_attention_heads": 7},
            "decoder_attention_heads: 7 heads do not divide a width of 64",
        ),
        ("gpt2", {"n_head": 7}, "n_head: 7 heads do not divide a width of 64"),
    ],
)
def test_other_architectures_are_checked_as_well(
    save: Save, refusal: Refusal, name: str, change: Values, message: str
) -> None:
    assert message in refusal(HuggingFace().read, save({**small(name), **change}, "config.json"))


def test_a_misspelt_key_is_offered(save: Save, refusal: Refusal) -> None:
    values = small("llama")
    values["hiden_size"] = values.pop("hidden_size")
    assert refusal(HuggingFace().read, save(values, "config.json")) == (
        'config.json: the key "hidden_size" is missing, which "llama" needs; did you mean \'hiden_size\'?'
    )


def test_an_unknown_architecture_says_what_to_install(save: Save) -> None:
    path = save({**small("llama"), "model_type": "lama"}, "config.json")
    with pytest.raises(MissingExtra) as caught:
        read(path)
    assert str(caught.value) == (
        "config.json: capturing the model (model_type is \"lama\"; did you mean 'llama' or 'llava'?) "
        'needs transformers: pip install "stead[hf]"'
    )


@pytest.mark.parametrize(
    ("values", "why"),
    [
        (small("llama", "LlamaForSequenceClassification"), 'it is a "LlamaForSequenceClassification"'),
        ({**small("bert"), "is_decoder": True}, "it is used as a decoder"),
        ({**small("phi"), "qk_layernorm": True}, "qk_layernorm is true"),
        ({**small("opt"), "do_layer_norm_before": False}, "do_layer_norm_before is false"),
        ({**small("opt"), "word_embed_proj_dim": 32}, "word_embed_proj_dim differs from hidden_size"),
        ({**small("gpt2"), "add_cross_attention": True}, "add_cross_attention is true"),
        ({**small("gemma2"), "layer_types": ["linear_attention"] * 3}, "layer_types has 'linear_attention'"),
        (
            {**small("llava"), "vision_feature_layer": [1, 2]},
            "vision_feature_layer is not the number of one layer",
        ),
    ],
)
def test_variants_without_formulas_are_left_to_capture(values: Values, why: str) -> None:
    with pytest.raises(MissingExtra, match=r"stead\[hf\]") as caught:
        HuggingFace(phase="prefill").from_config(values)
    assert why in str(caught.value)


def test_single_operators_need_transformers() -> None:
    with pytest.raises(MissingExtra, match="single operators are wanted"):
        HuggingFace(granularity="operators").from_config(LLAMA_7B)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch": 0}, "batch must be a whole number from 1 to 1048576, got 0"),
        ({"batch": 2.0}, "batch must be a whole number"),
        ({"context": -1}, "context must be a whole number from 0 to 4294967296, got -1"),
        ({"phase": "training"}, "phase is one of infer, prefill, decode, train, got 'training'"),
        ({"granularity": "fine"}, "granularity is one of blocks, layers, operators, got 'fine'"),
        ({"traffic": "none"}, "traffic is one of all, weights, got 'none'"),
        ({"dtype": "bf17"}, "dtype 'bf17' is none that weights can have; did you mean 'bf16'"),
        ({"dtype": "int64"}, "dtype 'int64' is none that weights can have"),
    ],
)
def test_options_are_checked_when_the_reader_is_made(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput) as caught:
        HuggingFace(**options)
    assert message in str(caught.value)


def test_what_does_not_write_cannot_decode(refusal: Refusal) -> None:
    told = refusal(HuggingFace(phase="decode").from_config, small("bert"), name="x")
    assert told.startswith("x: a bert model does not write token by token; take phase infer or prefill")


@pytest.mark.parametrize("phase", ["decode", "prefill", "train"])
def test_a_table_of_positions_ends(refusal: Refusal, phase: Any) -> None:
    told = refusal(HuggingFace(phase=phase, context=65).from_config, small("gpt2"), name="x")
    assert told == "x: the model has positions for 64 tokens, not for a context of 65"


def test_an_image_needs_room_among_the_tokens(refusal: Refusal) -> None:
    told = refusal(HuggingFace(phase="prefill", context=15).from_config, small("llava"), name="x")
    assert told == "x: a context of 15 tokens has no room for the 16 tokens of an image; take 16 or more"


def test_sizes_beyond_all_memory_are_refused(save: Save, refusal: Refusal) -> None:
    values = {**LLAMA_7B, "hidden_size": 2**28, "vocab_size": 2**28, "num_attention_heads": 2**10}
    path = save(values, "config.json")
    assert "bytes must be a whole number from 0 to 2^62" in refusal(HuggingFace(batch=2**20, context=2**32).read, path)


def test_too_many_experts_are_given_up_early(refusal: Refusal) -> None:
    values = {**small("mixtral"), "num_hidden_layers": 16_384, "num_local_experts": 65_536}
    started = time.process_time()
    assert "more than 65536 operators" in refusal(HuggingFace(expert_groups=65_536).from_config, values)
    assert time.process_time() - started < 10


def test_a_folder_without_a_configuration_is_told(here: Path, refusal: Refusal) -> None:
    Path("empty").mkdir()
    assert (
        refusal(HuggingFace().read, "empty") == "empty: the folder has no config.json; name the folder of one model"
    )


@pytest.mark.parametrize(
    "data", [b"\x00\x01\x02" * 50, b"\xff\xfe{", b"{" * 3000, b"[]", b"3", b'{"model_type": NaN}']
)
def test_junk_is_one_line(here: Path, refusal: Refusal, data: bytes) -> None:
    Path("config.json").write_bytes(data)
    assert refusal(HuggingFace().read, "config.json").startswith("config.json: ")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a safetensors file, its header would have 0 bytes"),
        (b"\xff" * 100, "not a safetensors file, its header would have 18446744073709551615 bytes"),
        (b"\x05" + b"\x00" * 7 + b"{nope", "its header is damaged"),
        (b"\x02" + b"\x00" * 7 + b"[]", "must be an object, got a list"),
        (b"\x0c" + b"\x00" * 7 + b'{"a": {}}   ', 'tensor "a" has no type or no shape'),
        (b"\x29" + b"\x00" * 7 + b'{"a": {"dtype": "F77", "shape": [1, 2]}}  ', 'of an unknown type, "F77"'),
        (
            b"\x28" + b"\x00" * 7 + b'{"a": {"dtype": "F32", "shape": [-1]}}   ',
            'tensor "a" has an impossible shape',
        ),
    ],
)
def test_damaged_weights_are_told_with_their_file(
    save: Save, refusal: Refusal, data: bytes, message: str
) -> None:
    save(small("llama"), "config.json")
    Path("model.safetensors").write_bytes(data)
    told = refusal(HuggingFace().read, ".")
    assert told.startswith("model.safetensors: ")
    assert message in told


def test_an_index_may_not_lead_out_of_its_folder(save: Save, refusal: Refusal) -> None:
    save(small("llama"), "config.json")
    save({"weight_map": {"a": "../secret.safetensors"}}, "model.safetensors.index.json")
    assert "is no file of the same folder" in refusal(HuggingFace().read, "config.json")
    save({"weight_map": []}, "model.safetensors.index.json")
    assert "weight_map must be an object" in refusal(HuggingFace().read, "config.json")


ODD_VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 3, 7, 1.5, 1e308, 2**31, 2**63, 10**399, "", "relu", "\u0000", "a" * 300, [], {},
    [None], [1, 2], {"model_type": "llama"}, ["full_attention"] * 3,
]  # fmt: skip


def damaged(chance: random.Random, valid: Values) -> Values:
    """A configuration with some values replaced, removed or exchanged, inside its parts too."""
    values = copy.deepcopy(valid)
    for _ in range(chance.randint(1, 2)):
        place = values
        parts = [part for part in values.values() if isinstance(part, dict)]
        if parts and chance.random() < 0.5:
            place = chance.choice(parts)
        if not place:
            continue
        key = chance.choice(list(place))
        if chance.random() < 0.2:
            del place[key]
        else:
            place[key] = copy.deepcopy(chance.choice(ODD_VALUES))
    return values


def outcome(reading: Callable[[], Model]) -> Model | str:
    """A model, or the message of an error that stead raises on purpose."""
    try:
        return reading()
    except SteadError as error:
        return str(error)


@pytest.mark.fuzz(ROUNDS)
def test_a_damaged_configuration_gives_a_model_or_one_line() -> None:
    readable = 0
    names = list(SMALL)
    for seed in range(ROUNDS):
        chance = random.Random(seed)
        values = damaged(chance, small(chance.choice(names)))
        reader = HuggingFace(
            batch=chance.choice([1, 7]), context=chance.choice([0, 5, 40]),
            phase=chance.choice(["infer", "prefill", "decode", "train"]),
            granularity=chance.choice(["layers", "blocks"]),
        )  # fmt: skip
        started = time.process_time()
        found = outcome(lambda reader=reader, values=values: reader.from_config(values))  # type: ignore[misc]
        assert time.process_time() - started < 20
        readable += isinstance(found, Model)
        assert isinstance(found, Model) or (found.isprintable() and len(found) < 2000)
    assert readable > ROUNDS / 20


@pytest.mark.fuzz(ROUNDS // 3)
def test_a_damaged_file_gives_a_model_or_one_line(here: Path) -> None:
    for seed in range(ROUNDS // 3):
        chance = random.Random(seed)
        data = bytearray(json.dumps(small(chance.choice(list(SMALL)))).encode())
        for _ in range(chance.randint(1, 5)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        Path("config.json").write_bytes(data)
        found = outcome(lambda: read("config.json"))
        assert isinstance(found, Model) or found.isprintable()
