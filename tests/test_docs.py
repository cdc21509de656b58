"""What the README shows is what happens. (Pages with >>> examples are collected by pytest itself.)"""

from __future__ import annotations

import doctest
import os
import re
import shlex
import shutil
from pathlib import Path

import pytest

from stead.cli.main import exit_code

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


TRANSCRIPT = re.compile(r"^\$ stead (.*?)\n(.*?)^```", re.MULTILINE | re.DOTALL)
TRANSCRIPTS = [
    (page, number)
    for page in (ROOT / "README.md", ROOT / "docs" / "questions.md")
    for number, _ in enumerate(TRANSCRIPT.finditer(page.read_text()))
]


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the models that pages speak of, after an installation without the optional partitioners."""
    monkeypatch.setattr("stead.solvers.build.partition.find_spec", lambda _: None)
    monkeypatch.chdir(tmp_path)
    for model in (ROOT / "examples" / "models").iterdir():
        (tmp_path / model.name).symlink_to(model)
    return tmp_path


def onnx_example(folder: Path) -> None:
    """The ResNet-50 that comes with the onnx package."""
    onnx = pytest.importorskip("onnx")
    source = Path(onnx.__file__).parent / "backend/test/data/light/light_resnet50.onnx"
    if not source.exists():
        pytest.skip("this release of onnx comes without light_resnet50.onnx")
    shutil.copy(source, folder / "light_resnet50.onnx")


@pytest.mark.parametrize(("page", "number"), TRANSCRIPTS, ids=lambda part: getattr(part, "stem", str(part)))
def test_a_page_shows_what_a_command_prints(
    page: Path, number: int, workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`STEAD_REWRITE=1 pytest -n 0 tests/test_docs.py` writes pages anew after a change that was meant."""
    shown = list(TRANSCRIPT.finditer(page.read_text()))[number]
    command = shlex.split(shown.group(1).replace("\\\n", " "))
    if any(word.endswith(".onnx") for word in command):
        onnx_example(workplace)
    assert exit_code(command) == 0
    printed = capsys.readouterr().out
    if os.environ.get("STEAD_REWRITE"):
        text = page.read_text()
        page.write_text(text[: shown.start(2)] + printed + text[shown.end(2) :])
    else:
        assert shown.group(2) == printed


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_the_examples_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = doctest.testfile(str(page), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert result.failed == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_within_the_project_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)\)", page.read_text())
    assert [target for target in targets if not (page.parent / target).exists()] == []
