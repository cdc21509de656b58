"""Module paths: what some of them have in common, and that they are found once per graph."""

from __future__ import annotations

import pytest

from stead.coarsen.blocks import layers_of
from stead.graph.paths import common_path, module_paths
from stead.testing import two_towers


@pytest.mark.parametrize(
    ("paths", "shared"),
    [
        (["model.layers.3"], "model.layers.3"),
        (["model.layers.3", "model.layers.31"], "model.layers"),
        (["dec.1#7", "dec.1#71"], "dec.1"),
        (["dec.1#7/gates", "dec.1#7/gates#2", "dec.1#7"], "dec.1#7"),
        (["encoder", "decoder"], ""),
        (["", "encoder"], ""),
        (["ab", "a"], ""),
        ([], ""),
    ],
)
def test_what_paths_share_ends_at_a_border_of_all_of_them(paths: list[str], shared: str) -> None:
    assert common_path(paths) == shared


def test_paths_and_layers_are_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = two_towers()
    paths, layers = module_paths(problem.graph), layers_of(problem)
    monkeypatch.setattr("stead.graph.paths.forward_anchors", lambda graph: pytest.fail("looked for again"))
    assert module_paths(problem.graph) is paths
    assert layers_of(problem) is layers
