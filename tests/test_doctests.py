"""Examples in docstrings, module by module, of the package as it is installed."""

from __future__ import annotations

import doctest
import pkgutil
from importlib import import_module

import pytest

import stead

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(stead.__path__, "stead.")
    if not module.name.endswith("__main__") and not module.ispkg
)


@pytest.mark.parametrize("name", ["stead", *MODULES])
def test_examples_in_docstrings_are_true(name: str) -> None:
    if name.startswith("stead.learn."):
        pytest.importorskip("torch")
    result = doctest.testmod(import_module(name), optionflags=doctest.ELLIPSIS)
    assert result.failed == 0
