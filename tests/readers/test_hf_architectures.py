"""`stead doctor` counts the parameters that transformers counts, for many architectures.

`python tests/readers/test_hf_architectures.py` prints the table of docs/howto/huggingface.md.
"""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from hf_configs import CAPTURED, SMALL, Values, small

from stead.readers.hf import HuggingFace
from stead.report.checkup import checkup

torch = pytest.importorskip("torch", reason="needs torch: pip install 'stead[hf]'")
transformers = pytest.importorskip("transformers", reason="needs transformers: pip install 'stead[hf]'")

BY_FORMULA = [name for name in SMALL if " " not in name]  # variants have a second word
ARCHITECTURES = [*BY_FORMULA, *CAPTURED]


def configuration(name: str) -> Values:
    """What transformers writes for a small model."""
    logging.disable(logging.CRITICAL)
    try:
        values = small(name) if name in SMALL else {"model_type": name, **CAPTURED[name]}
        own = transformers.CONFIG_MAPPING[name].from_dict(values)
        written: Values = json.loads(own.to_json_string())
        return {**written, "architectures": values["architectures"], "dtype": "bfloat16"}
    finally:
        logging.disable(logging.NOTSET)


def counts(name: str) -> tuple[str, int, int]:
    """The class, and bytes of parameters as stead and as transformers count them."""
    values = configuration(name)
    kind: Any = getattr(transformers, values["architectures"][0])
    own = kind.config_class.from_dict(
        small(name) if name in SMALL else {"model_type": name, **CAPTURED[name]}
    )
    with torch.device("meta"):
        module = kind._from_config(own, dtype=torch.bfloat16)
    expected = sum(parameter.numel() * parameter.itemsize for parameter in module.parameters())
    return kind.__name__, checkup(HuggingFace().from_config(values).graph).parameter_bytes, expected


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_parameter_bytes_are_those_of_transformers(name: str) -> None:
    _, found, expected = counts(name)
    assert found == expected > 0


def table() -> str:
    """Markdown."""
    lines = [
        "| model_type | class | by | bytes by stead | bytes by transformers | equal |",
        "|---|---|---|---|---|---|",
    ]
    for name in ARCHITECTURES:
        kind, found, expected = counts(name)
        way = "formula" if name in SMALL else "capture"
        equal = "yes" if found == expected else "no"
        lines.append(f"| {name} | {kind} | {way} | {found} | {expected} | {equal} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
