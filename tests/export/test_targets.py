"""Every target keeps the promises of an exporter."""

from __future__ import annotations

import pytest

from stead.errors import BadInput
from stead.export import TARGETS, Exporter, exporter
from stead.export.targets import exporter as by_name
from stead.testing.exporters import ExporterContract

NEEDS_A_MODEL = {"hf", "torch", "openvino", "ort", "onnx"}  # they load what a plan alone does not hold


@pytest.mark.parametrize("name", sorted(set(TARGETS) - NEEDS_A_MODEL))
class TestTargets(ExporterContract):
    @pytest.fixture
    def exporter(self, name: str) -> Exporter:
        return exporter(name)


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_the_table_says_what_the_class_says(name: str) -> None:
    made = by_name(name)
    assert (made.name, made.granularity) == (name, TARGETS[name].granularity)


def test_a_target_with_a_slip_of_the_pen_is_offered() -> None:
    with pytest.raises(BadInput, match=r"no target 'vlm'; did you mean 'vllm'\?; `stead targets` lists them"):
        by_name("vlm")


def test_an_option_that_a_target_lacks_is_named() -> None:
    with pytest.raises(BadInput, match=r"target 'vllm' has no option 'modle'; did you mean 'model'\?"):
        by_name("vllm", modle="x")
