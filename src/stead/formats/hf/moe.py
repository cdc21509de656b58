"""Mixtures of experts: a router, experts that can be placed one by one, and the sum of what they give.

Which experts a token wakes is not known beforehand. Counted is what to expect if all are equally likely: with E experts
of which a token uses k, an expert works for T k / E of T tokens, and is read with probability 1 - (1 - k / E)^T. For a
single token that adds up to the bytes of k experts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from stead.formats.hf.sketch import Act, Sketch, function_flops
from stead.formats.op_costs import SOFTMAX_FLOPS, matmul


@dataclass(frozen=True, slots=True)
class Experts:
    """The experts of a layer."""

    count: int
    used: int  # by each token
    inner: int  # width inside of one expert
    function: str
    shared_inner: int = 0  # of an expert that every token uses; 0: there is none


def experts(sketch: Sketch, path: str, x: Act, own: Experts) -> Act:
    """Router, experts and their sum; `path` is the module that holds them."""
    sketch.check_room(own.count)
    routes = _router(sketch, f"{path}.gate", x, own)
    tokens = x.elements // x.width
    busy = tokens * own.used / own.count  # tokens that an expert can expect
    read = 1.0 - (1.0 - own.used / own.count) ** tokens
    rows = max(1, math.ceil(busy))
    size = round(busy * x.width * sketch.step.types.compute_bytes)
    flops = busy * (6.0 * x.width * own.inner + (function_flops(own.function) + 1) * own.inner)
    results = []
    for expert in range(own.count):
        weights = [
            sketch.parameter(f"{path}.experts.gate_up_proj[{expert}]", 2 * own.inner, x.width),
            sketch.parameter(f"{path}.experts.down_proj[{expert}]", x.width, own.inner),
        ]
        results.append(
            sketch.operator(
                f"{path}.experts.{expert}",
                "Expert",
                (x, routes),
                (rows, x.width),
                module=f"{path}.experts",
                flops=flops,
                parameters=weights,
                share=read,
                size_bytes=size,
            )
        )
    if own.shared_inner:
        results.append(_shared_expert(sketch, path, x, own))
    total = float(tokens * x.width * (own.used + bool(own.shared_inner)))
    return sketch.operator(f"{path}.combine", "Add", results, x.shape, module=path, flops=total, forgets=True)


def _router(sketch: Sketch, path: str, x: Act, own: Experts) -> Act:
    """For every token the experts it uses and how much each one counts."""
    weight = sketch.parameter(f"{path}.weight", own.count, x.width)
    tokens = x.elements // x.width
    flops = matmul((tokens, own.count), x.width) + SOFTMAX_FLOPS * tokens * own.count
    return sketch.operator(
        path, "Router", (x,), (*x.shape[:-1], 2 * own.used), flops=flops, parameters=(weight,),
        size_bytes=tokens * own.used * (8 + sketch.step.types.compute_bytes),
    )  # fmt: skip


def _shared_expert(sketch: Sketch, path: str, x: Act, own: Experts) -> Act:
    inside = f"{path}.shared_expert"
    gate = sketch.linear(f"{inside}.gate_proj", x, own.shared_inner, bias=False)
    up = sketch.linear(f"{inside}.up_proj", x, own.shared_inner, bias=False)
    wide = sketch.activation(f"{inside}.act_fn", own.function, up, gate=gate)
    down = sketch.linear(f"{inside}.down_proj", wide, x.width, bias=False)
    amount = sketch.linear(f"{path}.shared_expert_gate", x, 1, bias=False)
    return sketch.function(f"{path}.shared_expert_scale", "sigmoid", (amount, down), x.shape, module=path)
