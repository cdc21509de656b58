"""The zoo in figures, and beside independent recordings of the same models.

    python benchmarks/zoo.py [models] [counts] [flops] [experts] [huge]

Without arguments everything is printed, which takes about two minutes of one core; counts, experts and huge need torch.
"""

from __future__ import annotations

import resource
import sys
import time
import warnings
from collections.abc import Iterator

import numpy as np

from stead import (
    Cluster,
    Device,
    Graph,
    Latency,
    Placement,
    Problem,
    Roofline,
    link_all,
    simulate,
    simulate_many,
)
from stead.solvers import Budget, solver
from stead.workloads import names, parse
from stead.workloads.graph_cache import catalogue
from stead.workloads.zoo import MODES

# Calls, and nodes of a torch.fx graph, of one training step without update; None where nobody has counted.
NODES: dict[str, tuple[int, int | None]] = {
    "rnnlm-2": (4_657, 4_979),
    "rnnlm-8": (16_651, None),
    "gnmt-2": (12_831, 13_633),
    "gnmt-4": (21_467, 22_909),
    "gnmt-8": (38_739, 41_461),
    "gnmt-8?steps=80": (77_459, 82_901),
    "transformer-xl-4": (3_783, None),
    "transformer-xl-8": (7_447, None),
    "wavenet-4x36": (1_544, None),
    "inception-v3": (1_651, 2_412),
    "resnet-152": (2_595, None),
    "bert-base": (2_497, 2_655),
    "bert-large": (4_909, None),
}
# GFLOP of products and convolutions in one step
PRODUCTS = {
    "gnmt-8?phase=train": 6_611.6,
    "inception-v3?phase=train": 1_095.7,
    "bert-base?phase=train": 2_735.9,
    "llama-7b": 29_260.0,
}
PRODUCT_KINDS = ("mm", "addmm", "bmm", "baddbmm", "linear", "matmul", "convolution", "conv2d", "attention")
# Devices, seconds on one of them, and what the expert needs as a share of that.
EXPERTS = {"rnnlm-2": (2, 0.4073, 0.627), "gnmt-4": (4, 1.1844, 0.714), "inception-v3": (2, 0.2798, 1.010)}
LARGEST = "gnmt-8?steps=80,phase=train"


def recorded(name: str) -> tuple[int, int]:
    """Calls of a training step without update, and nodes: calls and the parts of results that have several.

    `loss.backward()` copies every gradient to where its parameter keeps it, in two calls; the capture does not.
    """
    from stead.readers.torch.capture import capture

    module, inputs, loss = parse(name, phase="train").torch()
    tape = capture(module, inputs, loss, targets=(loss.targets,), update="none")
    calls = len(tape.trace.calls) + 2 * len(list(module.parameters()))
    return calls, calls + sum(len(call.writes) for call in tape.trace.calls if len(call.writes) > 1)


def product_flops(graph: Graph) -> float:
    """FLOPs of products and convolutions alone."""
    chosen = [any(word in kind for word in PRODUCT_KINDS) for kind in graph.kinds]
    return float(graph.flops[np.array(chosen)].sum())


def models() -> Iterator[str]:
    """Every model as it ships."""
    yield (
        "| model | parameters | operators, inference | operators, training | TFLOP, inference | TFLOP, training |\n"
        "|---|---:|---:|---:|---:|---:|"
    )
    for name in names():
        inference, training = (catalogue()[parse(name, phase=mode).fingerprint] for mode in MODES)
        yield (
            f"| `{name}` | {inference.parameters:,} | {inference.operators:,} | {training.operators:,} | "
            f"{inference.flops / 1e12:.3f} | {training.flops / 1e12:.3f} |"
        )


def counts() -> Iterator[str]:
    """Calls and nodes of training steps."""
    yield "| training step | calls | reference | nodes | reference |\n|---|---:|---:|---:|---:|"
    for name, (calls, nodes) in NODES.items():
        own_calls, own_nodes = recorded(name)
        wanted = f"{nodes:,}" if nodes else ""
        yield f"| `{name}` | {own_calls:,} | {calls:,} | {own_nodes:,} | {wanted} |"


def flops() -> Iterator[str]:
    """FLOPs of products and convolutions."""
    yield "| step | GFLOP of products | reference |\n|---|---:|---:|"
    for name, wanted in PRODUCTS.items():
        yield f"| `{name}` | {product_flops(parse(name).graph()) / 1e9:,.1f} | {wanted:,.1f} |"


def reference_problem(graph: Graph, devices: int) -> Problem:
    """Equal devices like a P100: 4.6 TFLOP/s, 500 GB/s, 5 us per launch; links of 12 GB/s with 20 us each way."""
    names = [f"gpu{d}" for d in range(devices)]
    one = {"flops_per_second": {"fp32": 4.6e12}, "bytes_per_second": 500e9, "launch_seconds": 5e-6}
    cluster = Cluster(
        tuple(Device(name, **one) for name in names),  # type: ignore[arg-type]
        link_all(names, bytes_per_second=12e9, latency_seconds=20e-6, gap_seconds=20e-6),
        contention="link",
    )
    return Problem(graph, cluster, Roofline().costs(graph, cluster), objective=Latency())


def expert_shares(name: str, devices: int) -> tuple[float, float, float]:
    """Seconds of a training step without update on one device; shares of that by the expert's two variants."""
    problem = reference_problem(parse(f"{name}?phase=train,update=none").graph(), devices)
    alone = simulate(problem, Placement(problem, [0] * len(problem.graph))).objective_seconds
    by_layers, by_time = (
        solver("expert", variant=variant).solve(problem, Budget()).objective_seconds / alone
        for variant in ("layers", "time")
    )
    return alone, by_layers, by_time


def experts() -> Iterator[str]:
    """What the expert makes of training steps on equal devices."""
    yield (
        "| training step | devices | one device | reference | expert / one | balanced by time | reference |\n"
        "|---|---:|---:|---:|---:|---:|---:|"
    )
    for name, (devices, seconds, share) in EXPERTS.items():
        alone, by_layers, by_time = expert_shares(name, devices)
        yield (
            f"| `{name}` | {devices} | {alone:.4f} s | {seconds:.4f} s | {by_layers:.3f} | {by_time:.3f} | "
            f"{share:.3f} |"
        )


def huge() -> Iterator[str]:
    """From nothing to a thousand simulated placements of the largest model."""
    yield f"| `{LARGEST}` | CPU seconds |\n|---|---:|"
    begin = time.process_time()
    graph = parse(LARGEST).capture()
    captured = time.process_time()
    yield f"| capture and fold: {len(graph):,} operators | {captured - begin:.1f} |"
    problem = reference_problem(graph, 4)
    units = parse(LARGEST).units(graph)
    numbers = {unit: n for n, unit in enumerate(dict.fromkeys(units))}
    unit_of = np.array([numbers[unit] for unit in units])
    yield f"| grouping by {len(numbers):,} units | {time.process_time() - captured:.1f} |"
    placements = np.random.default_rng(0).integers(4, size=(1000, len(numbers)), dtype=np.uint8)[:, unit_of]
    grouped = time.process_time()
    simulate_many(problem, placements, threads=1)
    yield f"| 1,000 placements simulated | {time.process_time() - grouped:.1f} |"
    yield f"| all, with the import of torch | {time.process_time():.1f} |"
    yield f"\npeak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB"


def main() -> None:
    """Print the tables that are asked for."""
    warnings.simplefilter("ignore")
    tables = {"models": models, "counts": counts, "flops": flops, "experts": experts, "huge": huge}
    for name in sys.argv[1:] or tables:
        for line in tables[name]():
            print(line, flush=True)
        print()


if __name__ == "__main__":
    main()
