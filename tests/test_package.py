"""The package as a whole: what it exports, what importing it costs, how its stub stays true."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest

import stead
from stead.cli.main import exit_code

ROOT = Path(__file__).parent.parent
VERBS = (
    "demo", "doctor", "place", "explain", "report", "what-if", "compare", "ui", "score", "export", "verify", "simulate",
    "solvers", "devices", "formats", "targets", "zoo", "bench", "train",
)  # fmt: skip


def loaded_after(code: str) -> set[str]:
    """Top-level modules loaded by some code in a new interpreter; anything printed counts as a failure."""
    script = (
        f"{code}\nimport sys; print(' '.join(sorted({{name.partition('.')[0] for name in sys.modules}})))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert done.stdout.count("\n") == 1
    return set(done.stdout.split())


def test_what_is_imported_is_what_pip_installed() -> None:
    installed = distribution("stead")
    origin = json.loads(installed.read_text("direct_url.json") or "{}")
    editable = origin.get("dir_info", {}).get("editable", False)
    home = ROOT / "src" if editable else Path(str(installed.locate_file("")))
    assert Path(stead.__file__).resolve() == (home / "stead" / "__init__.py").resolve()


def test_the_version_is_the_same_wherever_it_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    said = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert stead.__version__ == said
    assert exit_code(["--version"]) == 0
    assert capsys.readouterr().out == f"{said}\n"
    newest = re.search(r"^## (\d\S*) \((\d{4}-\d\d-\d\d)\)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    citation = (ROOT / "CITATION.cff").read_text()
    cited = dict(re.findall(r'^(version|date-released): "?([^"\n]+)"?$', citation, re.MULTILINE))
    assert newest is not None
    assert (newest[1], newest[2]) == (cited["version"], cited["date-released"])
    assert newest[1] == said


def test_the_oldest_version_of_every_dependency_is_named() -> None:
    done = subprocess.run([sys.executable, ROOT / ".ci/oldest", "--list"], capture_output=True, text=True, check=True)
    listed = dict(line.split("==") for line in done.stdout.splitlines())
    assert {"numpy", "typer", "ortools", "highspy", "torch", "onnx", "openvino", "ray", "nanobind"} <= set(listed)
    assert listed["torch"] == "2.13"


def test_a_wheel_with_too_much_or_too_little_is_told(tmp_path: Path) -> None:
    wheel = tmp_path / "stead-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("stead/__init__.py", "")
        archive.writestr("tests/test_package.py", "")
        archive.writestr("stead/_core.cpython-311.so", b"\x7fELF .debug_info")
        archive.writestr("stead-0.1.0.dist-info/METADATA", "Version: 0.0.9\nLicense-Expression: Apache-2.0\n")
    check = runpy.run_path(str(ROOT / ".ci/package"))["faults_of_wheel"]
    wanted = {"src/stead/__init__.py", "src/stead/py.typed", "tests/test_package.py"}
    assert check(wheel, wanted, {"version": "0.1.0", "license": "Apache-2.0"}) == [
        f"{wheel.name}: lacks stead/py.typed",
        f"{wheel.name}: should not hold tests/test_package.py",
        f"{wheel.name}: stead/__init__.py is not that of the checkout",
        f"{wheel.name}: stead/_core.cpython-311.so has debug symbols",
        f"{wheel.name}: its metadata do not say Version: 0.1.0",
    ]


def loaded_by_commands(*commands: str) -> set[str]:
    """Modules that commands load, one after another in a new interpreter: those of stead, and some that take long."""
    script = (
        "import contextlib, io, sys; from stead.cli.main import exit_code\n"
        f"for command in {commands!r}:\n"
        "    with contextlib.redirect_stdout(io.StringIO()):\n"
        "        assert exit_code(command.split()) == 0, command\n"
        "print(*(name for name in sys.modules if name.split('.')[0] in ('stead', 'numpy', 'torch', 'pydantic')))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def below(room: str, modules: set[str]) -> set[str]:
    return {name.removeprefix(f"{room}.") for name in modules if name.startswith(f"{room}.")}


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


def test_help_and_lists_load_no_solver_no_reader_and_no_numpy() -> None:
    loaded = loaded_by_commands("--help", *(f"{verb} --help" for verb in VERBS), "solvers", "formats", "targets")
    assert below("stead.solvers", loaded) == {"registry"}
    assert below("stead.readers", loaded) == {"known_formats"}
    assert below("stead.export", loaded) == {"targets"}
    assert not {"numpy", "torch", "pydantic", "stead.sim", "stead.learn", "stead.problem"} & loaded


def test_a_command_loads_no_other_command() -> None:
    shared = {"main", "interrupts", "streams", "options"}
    assert below("stead.cli", loaded_by_commands("place --help")) == {"place", *shared}


def test_the_old_name_of_the_dispatch_of_placeto_says_the_new_one() -> None:
    with pytest.warns(DeprecationWarning, match=r"stead\.Placeto is now called stead\.PlacetoDispatch"):
        old = stead.Placeto
    assert old is stead.PlacetoDispatch


def test_the_committed_stub_is_the_generated_one() -> None:
    generated = Path(
        stead._core.__file__ if hasattr(stead, "_core") else __import__("stead._core")._core.__file__
    )
    fresh = generated.with_name("_core.pyi").read_text()
    assert (ROOT / "src/stead/_core.pyi").read_text() == fresh
