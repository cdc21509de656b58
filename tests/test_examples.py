"""Every example runs and says what it promises."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def output_of(script: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


FLEET = ROOT / "examples" / "uneven_stages.py"
EXAMPLES = sorted(set((ROOT / "examples").glob("*.py")) - {FLEET})


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(script: Path) -> None:
    assert output_of(script)


def test_the_fleet_comes_out_as_published() -> None:
    text = output_of(FLEET)
    assert re.search(r"latency +113\.895 ms   layers per machine \[0, 0, 0, 40, 0\]   gap 0\.0%", text)
    assert re.search(r"throughput +29\.070 ms   layers per machine \[7, 10, 8, 10, 5\]", text)
    assert re.search(r"capacity +34\.884 ms   \[4, 12, 8, 12, 4\]", text)
    assert re.search(r"bandwidth +29\.155 ms   \[7, 9, 9, 10, 5\]", text)


@pytest.mark.parametrize("script", ["simulator"])
def test_a_benchmark_runs_on_a_small_size(script: str) -> None:
    path = ROOT / "benchmarks" / f"{script}.py"
    done = subprocess.run(
        [sys.executable, str(path), "--sizes", "200"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"^\| 200 \|", done.stdout, re.MULTILINE)


def test_what_experiments_and_benchmarks_import_is_there() -> None:
    """They are run rarely; what moves in the package must not leave them behind."""
    scripts = [path for folder in ("experiments", "benchmarks") for path in (ROOT / folder).rglob("*.py")]
    asked = {
        (node.module, one.name)
        for path in scripts
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "stead"
        for one in node.names
    }
    assert len(asked) > 100
    for module, name in sorted(asked):
        there = importlib.import_module(module)
        assert hasattr(there, name) or importlib.util.find_spec(f"{module}.{name}"), f"{name} of {module}"
