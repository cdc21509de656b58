"""What the README shows is what happens. (Pages with >>> examples are collected by pytest itself.)"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import doctest
import io
import json
import os
import re
import shlex
import shutil
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import typer

import stead
from stead import clock
from stead.cli.main import app_for, exit_code
from stead.export import exporter

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BOOKS = [ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "experiments").rglob("README.md"))]


def name_of(page: Path) -> str:
    """A page's name in the list of tests."""
    return page.relative_to(ROOT).as_posix()


TRANSCRIPT = re.compile(r"^\$ stead (.*?)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILE = re.compile(r'^```\w+ title="(\S+)"\n(.*?)^```', re.MULTILINE | re.DOTALL)


def sessions(page: Path) -> list[list[re.Match[str]]]:
    """The commands of a page in groups that share a folder: what reads plan.json goes with what wrote it."""
    groups: list[list[re.Match[str]]] = []
    for shown in TRANSCRIPT.finditer(page.read_text()):
        if groups and "plan.json" in shown.group(1):
            groups[-1].append(shown)
        else:
            groups.append([shown])
    return groups


SESSIONS = [(page, number) for page in PAGES for number in range(len(sessions(page)))]


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the models that pages speak of, after an installation without the optional partitioners."""
    monkeypatch.setattr("stead.solvers.build.partition.find_spec", lambda _: None)
    monkeypatch.chdir(tmp_path)
    for model in (ROOT / "examples" / "models").iterdir():
        (tmp_path / model.name).symlink_to(model)
    return tmp_path


def _patient() -> float:
    """A clock by which a busy machine reaches no limit: where evaluations are counted, they alone decide."""
    return time.monotonic() / 20


def onnx_example(folder: Path) -> None:
    """The ResNet-50 that comes with the onnx package."""
    onnx = pytest.importorskip("onnx")
    source = Path(onnx.__file__).parent / "backend/test/data/light/light_resnet50.onnx"
    if not source.exists():
        pytest.skip("this release of onnx comes without light_resnet50.onnx")
    shutil.copy(source, folder / "light_resnet50.onnx")


@pytest.mark.parametrize(
    ("page", "number"), SESSIONS, ids=lambda part: name_of(part) if isinstance(part, Path) else str(part)
)
def test_a_page_shows_what_a_command_prints(
    page: Path, number: int, workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`STEAD_REWRITE=1 pytest -n 0 tests/test_docs.py` writes pages anew after a change that was meant."""
    for name, content in FILE.findall(page.read_text()):
        (workplace / name).write_text(content)
    for shown in sessions(page)[number]:
        command = shlex.split(shown.group(1).replace("\\\n", " "))
        if any(word.endswith(".onnx") for word in command):
            onnx_example(workplace)
        with clock.read_from(_patient if "--evaluations" in command else time.monotonic):
            assert exit_code(command) == 0
        printed = capsys.readouterr().out
        if os.environ.get("STEAD_REWRITE"):
            fresh = shown.group(0)[: shown.start(2) - shown.start()] + printed + "```"
            page.write_text(page.read_text().replace(shown.group(0), fresh, 1))
        else:
            assert shown.group(2) == printed
    if (page, number) == [one for one in SESSIONS if one[0].name == "tutorial.md"][-1]:
        the_landing_page_shows(workplace / "report.html")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_examples_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = doctest.testfile(str(page), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert result.failed == 0


@pytest.mark.parametrize("page", PAGES + BOOKS, ids=name_of)
def test_links_within_the_project_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)\)", page.read_text())
    assert [target for target in targets if not (page.parent / target).exists()] == []


def bars(report: str) -> str:
    """The first picture of a report, plan and simple rules as bars, as a file of its own; packages aside."""
    drawn = re.search(r'<svg viewBox="0 0 (\d+) (\d+)">(.*?)</svg>', report, re.DOTALL)
    assert drawn
    lines = drawn[3].replace("><text", ">\n<text").split("\n")
    rows = [line for line in lines if "needs pymetis" not in line and "needs mtkahypar" not in line]
    rows = [line for line in rows if not line.endswith((">metis</text>", ">mtkahypar</text>"))]
    height = int(drawn[2]) - 26 * (len(lines) - len(rows)) // 2
    bound = re.findall("<line .*", drawn[3])  # it ends the picture, on the line of the last rule
    text = re.sub(r" \(weights[^<]*", "", "\n".join([*rows, *bound]))
    style = "text { fill: #1c2430; font: 12px system-ui, sans-serif; } .tick { fill: #667085; }"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {drawn[1]} {height}"><style>{style}</style>\n'
        f'<rect width="100%" height="100%" rx="6" fill="#f4f6f9"/>\n{text}\n</svg>\n'
    )


def the_landing_page_shows(report: Path) -> None:
    """The picture of the landing page is that of a report, the tutorial's."""
    drawn, picture = bars(report.read_text()), ROOT / "docs" / "plan.svg"
    if os.environ.get("STEAD_REWRITE"):
        picture.write_text(drawn)
    words = re.compile(r">([^<]+)</text>")  # how a bar is drawn may change, what it says may not
    assert words.findall(picture.read_text()) == words.findall(drawn)


NOTEBOOKS = sorted((ROOT / "docs").rglob("*.ipynb"))


def run_cell(source: str, names: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """What a cell prints and shows, as outputs of the notebook format."""
    parts = ast.parse(source).body
    last = parts.pop() if parts and isinstance(parts[-1], ast.Expr) else None
    printed, outputs = io.StringIO(), []
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(parts, []), "cell", "exec"), names)
        value = eval(compile(ast.Expression(last.value), "cell", "eval"), names) if last else None
    if printed.getvalue():
        text = printed.getvalue().splitlines(keepends=True)
        outputs.append({"name": "stdout", "output_type": "stream", "text": text})
    if value is not None:
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = value._repr_html_().splitlines(keepends=True)
        outputs.append(
            {"data": data, "execution_count": count, "metadata": {}, "output_type": "execute_result"}
        )
    return outputs


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_a_notebook_shows_what_its_cells_give(path: Path, workplace: Path) -> None:
    """`STEAD_REWRITE=1` writes outputs anew; the cells run in one namespace, as a kernel would run them."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    names: dict[str, Any] = {}
    shown = []
    for count, cell in enumerate((c for c in notebook["cells"] if c["cell_type"] == "code"), start=1):
        shown.append(cell["outputs"])
        cell["outputs"] = run_cell("".join(cell["source"]), names, count)
        cell["execution_count"] = count
    if os.environ.get("STEAD_REWRITE"):
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    else:
        assert shown == [cell["outputs"] for cell in notebook["cells"] if cell["cell_type"] == "code"]


def test_the_reference_has_every_public_name() -> None:
    shown = set()
    for page in (ROOT / "docs" / "reference").glob("*.md"):
        shown |= set(re.findall(r"^::: stead\.(\w+)$", page.read_text(), re.MULTILINE))
    assert shown == set(stead.__all__) - {"__version__"}


def test_every_solver_has_a_page_that_names_it() -> None:
    pages = [*(ROOT / "docs" / "solvers").glob("*.md"), *(ROOT / "docs" / "learned").glob("*.md")]
    text = "\n".join(page.read_text() for page in pages)
    assert [name for name in stead.solver_names() if f"`{name}`" not in text] == []


def test_every_room_has_a_line_in_contributing() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    rooms = [f"core/{room.name}/" for room in (ROOT / "core").iterdir() if room.is_dir()]
    packages = (room.parent for room in (ROOT / "src" / "stead").glob("*/__init__.py"))
    rooms += [f"{room.name}/" for room in packages]
    assert [room for room in rooms if f"`{room}`" not in text] == []


@pytest.mark.parametrize("page", PAGES[1:], ids=name_of)
def test_a_page_comes_to_its_first_table_within_two_screens(page: Path) -> None:
    lines = page.read_text().splitlines()
    first = next((number for number, line in enumerate(lines) if line.startswith("|")), len(lines))
    assert first <= 80


def shown_commands(page: Path) -> list[list[str]]:
    """The `stead` commands in shell blocks of a page, which are not run; what stands for others is left out."""
    blocks = re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    words = [shlex.split(line, comments=True) for line in lines]
    cut = [line[line.index("stead") :] for line in words if "stead" in line and "..." not in line]
    return [line[: line.index("&&")] if "&&" in line else line for line in cut]


@pytest.mark.parametrize("page", PAGES + BOOKS, ids=name_of)
def test_commands_that_a_page_shows_have_the_options_they_use(page: Path) -> None:
    known = typer.main.get_command(app_for([])).commands
    wrong = []
    for line in shown_commands(page):
        if len(line) < 2 or line[1].startswith("-"):
            continue
        options = {name for option in known[line[1]].params for name in option.opts}
        wrong += [(line, word) for word in line[2:] if re.match("-+[a-z]", word) and word not in options]
        if line[1] == "what-if":  # what it sets is of devices
            continue
        learns = line[2] if line[1] == "train" else None
        solver = line[line.index("--solver") + 1] if "--solver" in line else learns or "auto"
        taker = exporter(line[line.index("--to") + 1]) if "--to" in line else stead.solver(solver)
        fields = {option.name for option in dataclasses.fields(taker)}
        settings = [after for before, after in pairwise(line) if before == "--set"]
        wrong += [(line, text) for text in settings if text.partition("=")[0] not in fields]
    assert wrong == []
