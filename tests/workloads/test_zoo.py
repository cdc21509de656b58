"""Names and options of the zoo: what they mean, and what is said when they mean nothing. No torch."""

from __future__ import annotations

import pytest

from stead.errors import BadInput
from stead.workloads import FAMILIES, get, model_from_zoo, names, parse
from stead.workloads.families import Family, Option
from stead.workloads.module_calls import unit_calls
from stead.workloads.synthetic import synthetic


@pytest.mark.parametrize("name", names())
def test_a_name_means_a_spec_that_has_that_name(name: str) -> None:
    assert parse(name).name == name


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("phase", ["infer", "train"])
def test_what_a_spec_calls_itself_means_the_same_spec(name: str, phase: str) -> None:
    spec = parse(name, phase=phase)
    assert parse(str(spec)) == spec


@pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda family: family.name)
def test_defaults_sizes_and_choices_of_every_family_are_allowed(family: Family) -> None:
    for settings in ({}, *family.sizes.values()):
        assert get(family.name, **settings).values.items() >= settings.items()


def test_a_name_with_options_is_the_model_with_these_options() -> None:
    spec = parse("zoo:gnmt-8?batch=64,steps=20,phase=train")
    assert spec == get("gnmt", layers=8, batch=64, steps=20, mode="training")
    assert str(spec) == "zoo:gnmt-8?steps=20,batch=64,phase=train"


def test_ampersands_and_underscores_are_fine_too() -> None:
    assert parse("zoo:Inception_v3?batch=1&dropout=0.25") == get("inception_v3", batch=1, dropout=0.25)


def test_options_beside_the_name_win() -> None:
    assert parse("gnmt-8?batch=64", batch=32) == get("gnmt", layers=8, batch=32)


def test_options_from_the_command_line_may_be_text() -> None:
    assert parse("gnmt-8", steps="20", dropout="0.5") == get("gnmt", layers=8, steps=20, dropout=0.5)
    model = model_from_zoo("zoo:lstm-grid", operators="150", phase="infer")
    assert model.graph == synthetic("lstm-grid", operators=150)


def test_context_is_the_length_of_a_text_or_the_number_of_steps() -> None:
    assert parse("llama-8b", context=512) == get("llama", length=512)
    assert parse("gnmt-2?context=20") == get("gnmt", steps=20)


def test_prefill_is_inference_over_a_whole_prompt() -> None:
    assert parse("llama-8b", phase="prefill") == parse("llama-8b")


def test_a_number_after_the_name_may_be_one_that_no_paper_used() -> None:
    assert parse("zoo:rnnlm-3").values["layers"] == 3
    assert get("rnnlm", layers=3).name == "rnnlm-3"


def test_the_size_that_fits_best_gives_the_name() -> None:
    assert str(get("resnet", depth=152, batch=32)) == "zoo:resnet-152?batch=32"
    assert str(get("llama", **{**FAMILIES["llama"].sizes["7b"], "layers": 2})) == "zoo:llama-7b?layers=2"


def test_truth_is_written_in_words() -> None:
    assert parse("llama-8b?tied=yes").values["tied"] is True
    assert "tied=true" in str(parse("llama-8b?tied=1"))


def test_another_mode_or_option_is_another_fingerprint() -> None:
    specs = [parse(name, phase=phase) for name in names() for phase in ("infer", "train")]
    specs += [get("gnmt", batch=1), get("gnmt", mode="training", update="sgd")]
    assert len({spec.fingerprint for spec in specs}) == len(specs)


def test_fingerprints_stay_the_same() -> None:
    assert parse("gnmt-8").fingerprint == "1205f264634b20ad"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("gnmt-8?batc=3", "gnmt has no option 'batc'; did you mean 'batch'?"),
        ("gnmt-8?batch=x", "gnmt-8: batch needs a value like 128, got 'x'"),
        ("gnmt-8?batch=0", "gnmt: batch must be 1 to 1048576; got 0"),
        ("gnmt-8?batch=1,batch=2", "option 'batch' is given twice; keep one"),
        ("gnmt-8?dropout=1.5", "gnmt: dropout must be 0 to 0.95; got 1.5"),
        ("gnmt-8?steps", "options are written option=value, got 'steps'"),
        ("gnmt-8?phase=fly", "phase is infer or train, got 'fly'"),
        ("gnmt-8?update=sgd", "update is an option of training"),
        ("gnmt-8?phase=train,update=rms", "gnmt: update must be none, sgd or adam; got rms"),
        ("gnmt-x", "no 'gnmt-x' in the zoo"),
        ("gmnt-8", "no 'gmnt-8' in the zoo; did you mean 'gnmt-8'"),
        ("resnet-18", "there are resnet-50, resnet-101, resnet-152"),
        ("resnet?depth=18", "resnet: depth must be 50, 101 or 152; got 18"),
        ("wavenet?layers=17", "wavenet: layers must be a multiple of stacks, got 17 and 2"),
        ("bert-base?attention=fast", "bert: attention must be eager or fused; got fast"),
        ("llama-8b?tied=maybe", "llama-8b: tied needs a value like false, got 'maybe'"),
        ("bert-base?length=513", "bert: length must be 1 to 512; got 513"),
        ("", "no '' in the zoo"),
    ],
)
def test_what_is_wrong_with_a_name_is_told(text: str, complaint: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse(f"zoo:{text}")
    assert complaint in str(caught.value)


def test_an_unknown_family_is_told_with_a_suggestion() -> None:
    with pytest.raises(BadInput, match="did you mean 'transformer_xl'"):
        get("transformerxl")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"batch": "64"}, "needs a value like 128, got '64'"),
        ({"batch": True}, "got True"),
        ({"batch": 2.0}, "got 2.0"),
    ],
)
def test_values_of_another_type_are_refused(options: dict[str, object], complaint: str) -> None:
    with pytest.raises(BadInput, match="batch") as caught:
        get("gnmt", **options)  # type: ignore[arg-type]
    assert complaint in str(caught.value)


def test_a_whole_number_is_fine_where_a_fraction_may_be() -> None:
    assert get("gnmt", dropout=0).values["dropout"] == 0.0


def test_synthetic_families_have_names_of_the_zoo() -> None:
    model = model_from_zoo("zoo:lstm-grid?operators=200", phase="train", layers=2, batch=None)
    assert model.graph == synthetic("lstm-grid", operators=200, layers=2, training=True)


def test_options_of_synthetic_families_are_checked() -> None:
    with pytest.raises(BadInput, match="operators needs a value like 1000, got 'many'"):
        model_from_zoo("zoo:lstm-grid?operators=many")
    with pytest.raises(BadInput, match="no option 'heads'"):
        model_from_zoo("zoo:lstm-grid?heads=2")


def test_a_choice_is_told_in_words() -> None:
    assert Option("a", choices=("a", "b", "c")).allowed == "a, b or c"
    assert Option(False).allowed == "true or false"


def test_an_operator_belongs_to_the_outermost_unit() -> None:
    modules = ["blocks.0#0/one#0/conv#0", "blocks.0#0/one#0", "blocks.0#0", "blocks.0.one.conv", ""]
    assert unit_calls(modules, [r"(.+)\.(?:conv|norm)"]) == [
        "blocks.0#0/one#0",
        "blocks.0#0/one#0",
        "",
        "blocks.0#0/one#0",
        "",
    ]


def test_an_update_belongs_to_no_step_where_there_are_several() -> None:
    modules = ["cells.0#0/gates#0", "cells.0#1/gates#1", "cells.0.gates"]
    assert unit_calls(modules, [r"(cells\.\d+)"]) == ["cells.0#0", "cells.0#1", "cells.0"]
