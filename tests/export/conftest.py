"""What several files of these tests load."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hf_models import NAMES
from warm_checks import WarmChecks

HERE = Path(__file__).parent
PROGRAMS = ("llama", "cnn", "pair", "several", "number")


@pytest.fixture(scope="session")
def warm() -> Iterator[WarmChecks]:
    """A process that has imported transformers."""
    with WarmChecks() as checks:
        yield checks


@pytest.fixture
def warm_checks(warm: WarmChecks, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `stead verify --to hf` fork that process instead of starting one of its own."""
    monkeypatch.setattr("stead.export.hf_verify.told_by", warm.told_by)


@pytest.fixture(scope="session")
def models(warm: WarmChecks, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small random model of every architecture."""
    folder = tmp_path_factory.mktemp("models")
    errors = folder / "errors.txt"
    code = warm.run(str(HERE / "hf_models.py"), str(folder), *NAMES, "half", environment={}, errors=errors)
    assert code == 0, errors.read_text()
    return folder


@pytest.fixture(scope="session")
def programs(warm: WarmChecks, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with small random programs as torch exports them."""
    folder = tmp_path_factory.mktemp("programs")
    errors = folder / "errors.txt"
    code = warm.run(str(HERE / "torch_programs.py"), str(folder), *PROGRAMS, environment={}, errors=errors)
    assert code == 0, errors.read_text()
    return folder
