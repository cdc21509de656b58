"""Tiny files in a folder of their own, so that messages show short paths."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_files import GRAPH, INPUT

from stead.errors import SteadError

SaveJson = Callable[..., str]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def save(here: Path) -> SaveJson:
    """Writes plain data as JSON, or text as it is, and gives the path."""

    def write(data: Any, name: str = "demo.json") -> str:
        Path(name).write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
        return name

    return write


@pytest.fixture
def graph_data() -> dict[str, Any]:
    """Plain data of a valid graph, to be changed at will."""
    return copy.deepcopy(GRAPH)


@pytest.fixture
def input_data() -> dict[str, Any]:
    """Plain data of a valid msr-fiddle input, to be changed at will."""
    return copy.deepcopy(INPUT)


@pytest.fixture
def refusal() -> Callable[..., str]:
    """The one line that a call is refused with."""

    def message(call: Callable[..., object], *arguments: Any, **options: Any) -> str:
        with pytest.raises(SteadError) as caught:
            call(*arguments, **options)
        text = str(caught.value)
        assert text.isprintable(), "a message is one printable line"
        assert len(text) < 2000
        return text

    return message
