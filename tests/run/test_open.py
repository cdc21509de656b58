"""Which executor runs which model."""

from __future__ import annotations

from pathlib import Path

import pytest

from stead.errors import BadInput
from stead.run.open import executor_for


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "net.xml").write_text('<?xml version="1.0"?>\n<net name="n" version="11"></net>')
    (tmp_path / "net.onnx").write_bytes(b"\x08\x08\x12\x00")
    (tmp_path / "net.gguf").write_bytes(b"GGUF....")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "asked", "taken"),
    [
        ("net.xml", "auto", "openvino"),
        ("net.onnx", "auto", "ort"),
        ("net.onnx", "openvino", "openvino"),
    ],
)
def test_the_kind_of_a_file_decides_unless_one_asks(files: Path, name: str, asked: str, taken: str) -> None:
    assert executor_for(files / name, asked) == taken


def test_modules_and_models_of_the_zoo_are_run_by_torch() -> None:
    assert executor_for("zoo:resnet50") == "torch"
    assert executor_for(object(), "torch") == "torch"


@pytest.mark.parametrize(
    ("name", "asked", "told"),
    [
        ("net.xml", "ort", "cannot run files of openvino"),
        ("net.gguf", "auto", "has no operators that can be run"),
        ("net.xml", "openvin", "did you mean 'openvino'?"),
    ],
)
def test_what_cannot_be_run_is_refused_in_one_line(files: Path, name: str, asked: str, told: str) -> None:
    with pytest.raises(BadInput, match=r"^[^\n]*$") as caught:
        executor_for(files / name, asked)
    assert told in str(caught.value)


def test_the_zoo_is_not_for_runtimes_of_files() -> None:
    with pytest.raises(BadInput, match="runs files, not zoo:resnet50"):
        executor_for("zoo:resnet50", "openvino")
