"""Options that make every family of the zoo tiny."""

from __future__ import annotations

from stead.workloads import Spec, get

_RECURRENT = {"layers": 3, "steps": 3, "batch": 2, "hidden": 6, "vocabulary": 11}
_SEARCHED = {"repeats": 1, "width": 8, "batch": 2, "side": 32, "classes": 5}
_TRANSFORMER = {"layers": 2, "width": 8, "heads": 2, "batch": 2}
_TEXT = {"inner": 12, "vocabulary": 13, "length": 6}

TINY: dict[str, dict[str, bool | int | float | str]] = {
    "rnnlm": _RECURRENT,
    "rnnlm_fused": _RECURRENT,
    "gnmt": _RECURRENT,
    "transformer_xl": {**_TRANSFORMER, **_TEXT, "segments": 3, "length": 4},
    "wavenet": {"stacks": 2, "layers": 4, "channels": 4, "batch": 2, "length": 16},
    "inception_v3": {"batch": 2, "side": 75, "classes": 5},
    "resnet": {"batch": 2, "side": 32, "classes": 5},
    "amoebanet": _SEARCHED,
    "nasnet": _SEARCHED,
    "bert": {**_TRANSFORMER, **_TEXT},
    "gpt2": {**_TRANSFORMER, "vocabulary": 13, "length": 6},
    "llama": {**_TRANSFORMER, **_TEXT, "heads": 4, "key_heads": 2, "dtype": "fp32"},
    "mixtral": {**_TRANSFORMER, **_TEXT, "heads": 4, "key_heads": 2, "experts": 4, "dtype": "fp32"},
    "t5": {**_TRANSFORMER, **_TEXT, "head_width": 4, "target_length": 5},
    "vit": {**_TRANSFORMER, "inner": 12, "patch": 8, "side": 16, "classes": 5},
}
_NOISE = ("dropout", "drop_path")


def tiny(
    family: str, *, mode: str = "inference", noise: bool = True, **options: bool | int | float | str
) -> Spec:
    """A tiny model of a family; without noise it has no dropout."""
    spec = get(family, mode=mode, **{**TINY[family], **options})
    if noise:
        return spec
    silent = {key: 0.0 for key in spec.values if key in _NOISE}
    return get(family, mode=mode, **{**TINY[family], **options, **silent})
