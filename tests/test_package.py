"""The package as a whole: what it exports, what importing it costs, how its stub stays true."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import stead

ROOT = Path(__file__).parent.parent


def loaded_after(code: str) -> set[str]:
    """Top-level modules loaded by some code in a new interpreter; anything printed counts as a failure."""
    script = (
        f"{code}\nimport sys; print(' '.join(sorted({{name.partition('.')[0] for name in sys.modules}})))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert done.stdout.count("\n") == 1
    return set(done.stdout.split())


def test_all_public_names_are_importable() -> None:
    assert [name for name in stead.__all__ if not hasattr(stead, name)] == []


def test_the_list_of_names_and_their_homes_agree() -> None:
    assert sorted(stead.__all__) == sorted(stead._MODULE_OF)


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    assert not hasattr(stead, "placeholder")


def test_importing_stead_loads_no_framework() -> None:
    assert not {"torch", "onnx", "openvino", "ortools", "highspy"} & loaded_after("import stead")


def test_the_whole_api_loads_no_framework() -> None:
    assert not {"torch", "onnx", "openvino", "ortools"} & loaded_after(
        "import stead; stead.place, stead.simulate"
    )


def test_the_command_line_starts_without_numpy() -> None:
    assert "numpy" not in loaded_after("import stead.cli.main")


def test_the_committed_stub_is_the_generated_one() -> None:
    generated = Path(
        stead._core.__file__ if hasattr(stead, "_core") else __import__("stead._core")._core.__file__
    )
    fresh = generated.with_name("_core.pyi").read_text()
    assert (ROOT / "src/stead/_core.pyi").read_text() == fresh
