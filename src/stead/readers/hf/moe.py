"""Mixtures of experts: a router, the experts, and the sum of what they give.

Which experts a token wakes is not known beforehand. Counted is what to expect if all are equally likely: with E experts
of which a token uses k, an expert works for T k / E of T tokens, and is read and launched with probability
1 - (1 - k / E)^T. For a single token that adds up to the bytes and the launches of k experts. Memory is that of all.

The experts of a layer are one operator, so that a plan can say where they are in one rule per layer. They can also
fall into equal groups, down to one expert each; arithmetic and launches stay the same, and so does traffic but for the
sums that groups of several experts hand on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from stead.errors import BadInput
from stead.graph.kernels import Kernel
from stead.readers.common.op_costs import SOFTMAX_FLOPS, matmul
from stead.readers.hf.module_costs import Act, Sketch, function_flops


@dataclass(frozen=True, slots=True)
class Experts:
    """The experts of a layer, with names as transformers gives them."""

    count: int
    used: int  # by each token
    inner: int  # width inside of one expert
    function: str
    bias: bool = False
    router: str = "gate"
    router_bias: bool = False
    shared_inner: int = 0  # of an expert that every token uses; 0: there is none
    shared: str = "shared_expert"
    shared_act: str = "act_fn"
    shared_gate: str = "shared_expert_gate"  # how much it counts; empty: always the same


@dataclass(frozen=True, slots=True)
class _Load:
    """What some of the experts of a layer can expect."""

    experts: int
    rows: float  # tokens that they work for, each as often as it uses one of them
    touched: float  # tokens that use at least one of them
    awake: float  # probability that one of them is used at all


def experts(sketch: Sketch, path: str, x: Act, own: Experts) -> Act:
    """Router, experts and their sum; `path` is the module that holds them."""
    groups = sketch.step.expert_groups
    if own.count % groups:
        raise BadInput(
            f"{sketch.where}: {own.count} experts do not fall into {groups} equal groups; "
            f"take expert_groups {_divisors(own.count)}"
        )
    sketch.check_room(groups)
    routes = _router(sketch, f"{path}.{own.router}", x, own)
    load = _load(x.elements // x.width, own, own.count // groups)
    results = [_group(sketch, f"{path}.experts", x, routes, own, number, load) for number in range(groups)]
    summed = groups * load.touched
    if own.shared_inner:
        results.append(_shared_expert(sketch, path, x, own))
        summed += x.elements // x.width
    if len(results) == 1:
        return results[0]
    return sketch.operator(
        f"{path}.combine", "Add", results, x.shape, module=path, flops=summed * x.width, forgets=True
    )


def _load(tokens: int, own: Experts, experts: int) -> _Load:
    """By chance: choices of a token are different experts, tokens choose for themselves.

    >>> load = _load(1, Experts(128, 8, 768, "silu"), 128)
    >>> load.rows, load.touched, round(load.awake * load.experts, 9)
    (8.0, 1.0, 8.0)
    """
    missed = math.prod(max(0, own.count - experts - i) / (own.count - i) for i in range(own.used))
    awake = 1.0 - (1.0 - own.used / own.count) ** tokens
    return _Load(experts, tokens * own.used * experts / own.count, tokens * (1.0 - missed), awake)


def _group(sketch: Sketch, path: str, x: Act, routes: Act, own: Experts, number: int, load: _Load) -> Act:
    """Some experts as one operator: what they make of their tokens, added up for each token."""
    first, last = number * load.experts, (number + 1) * load.experts - 1
    alone, all_of_them = load.experts == 1, load.experts == own.count
    name = path if all_of_them else f"{path}.{first}" if alone else f"{path}.{first}-{last}"
    shapes: dict[str, tuple[int, ...]] = {
        "gate_up_proj": (2 * own.inner, x.width),
        "down_proj": (x.width, own.inner),
    }
    if own.bias:
        shapes |= {"gate_up_proj_bias": (2 * own.inner,), "down_proj_bias": (x.width,)}
    where = "" if all_of_them else f"[{first}]" if alone else f"[{first}:{last + 1}]"
    weights = [
        sketch.parameter(
            f"{path}.{matrix}{where}", load.experts, *shape,
            pieces=(f"{path}.{matrix}[{expert}]" for expert in range(first, last + 1)),
        )
        for matrix, shape in shapes.items()
    ]  # fmt: skip
    row_bytes = x.width * sketch.step.types.compute_bytes
    each = 6.0 * x.width * own.inner + (function_flops(own.function) + 1) * own.inner
    each += (2.0 * own.inner + x.width) if own.bias else 0.0
    # Where a sum over groups or with a shared expert follows, that is the launch that counts.
    is_last = all_of_them and not own.shared_inner
    added = Kernel(load.rows * x.width, (load.rows + load.touched) * row_bytes, float(is_last))
    return sketch.operator(
        name,
        "Expert" if alone else "Experts",
        (x, routes),
        x.shape if all_of_them else (max(1, math.ceil(load.touched)), x.width),
        module=path,
        flops=load.rows * each,
        parameters=weights,
        share=load.awake,
        launches=load.experts * load.awake,
        activation_bytes=2.0 * load.rows * row_bytes,
        then=None if alone else added,
        size_bytes=round(load.touched * row_bytes),
    )


def _router(sketch: Sketch, path: str, x: Act, own: Experts) -> Act:
    """For every token the experts it uses and how much each one counts."""
    weights = [sketch.parameter(f"{path}.weight", own.count, x.width)]
    if own.router_bias:
        weights.append(sketch.parameter(f"{path}.bias", own.count))
    tokens = x.elements // x.width
    flops = matmul((tokens, own.count), x.width) + (SOFTMAX_FLOPS + own.router_bias) * tokens * own.count
    return sketch.operator(
        path, "Router", (x,), (*x.shape[:-1], 2 * own.used), flops=flops, parameters=weights,
        size_bytes=tokens * own.used * (8 + sketch.step.types.compute_bytes),
    )  # fmt: skip


def _shared_expert(sketch: Sketch, path: str, x: Act, own: Experts) -> Act:
    inside = f"{path}.{own.shared}"
    gate = sketch.linear(f"{inside}.gate_proj", x, own.shared_inner, bias=False)
    up = sketch.linear(f"{inside}.up_proj", x, own.shared_inner, bias=False)
    wide = sketch.activation(f"{inside}.{own.shared_act}", own.function, up, gate=gate)
    down = sketch.linear(f"{inside}.down_proj", wide, x.width, bias=False)
    if not own.shared_gate:
        return down
    amount = sketch.linear(f"{path}.{own.shared_gate}", x, 1, bias=False)
    return sketch.function(f"{path}.shared_expert_scale", "sigmoid", (amount, down), x.shape, module=path)


def _divisors(count: int) -> str:
    """Into how many groups that many experts can fall.

    >>> _divisors(8)
    '1, 2, 4 or 8'
    """
    found = [str(number) for number in range(1, min(count, 4096) + 1) if count % number == 0]
    return " or ".join([", ".join(found[:-1]), found[-1]]) if len(found) > 1 else found[0]
