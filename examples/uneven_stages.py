"""Forty layers on five unlike machines: the latency optimum is one of them, the throughput optimum all five.

python examples/uneven_stages.py
"""

import math

import stead

MACHINES = {  # memory in GiB, bandwidth in GB/s
    "m4-max": (36, 264.4),
    "m3-ultra-a": (96, 344.0),
    "m1-ultra": (64, 308.7),
    "m3-ultra-b": (96, 351.2),
    "m3-max": (36, 177.6),
}

build = stead.GraphBuilder("forty-layers")
tensor = None
for number in range(40):
    layer = build.operator(f"layer{number}", moved_bytes=1e9, reads=[] if tensor is None else [tensor])
    tensor = build.tensor(layer, size_bytes=0)
    build.weight(f"weights{number}", size_bytes=10**9, users=[layer])
graph = build.build()

fleet = stead.Cluster(
    tuple(
        stead.Device(name, memory_bytes=size * 2**30, bytes_per_second=rate * 1e9)
        for name, (size, rate) in MACHINES.items()
    ),
    stead.link_all(list(MACHINES), bytes_per_second=math.inf),
)

for objective in ("latency", "throughput"):
    plan = stead.place(graph, fleet, objective=objective)
    layers = list(plan.placement.counts().values())
    milliseconds = 1e3 * plan.solution.objective_seconds
    print(
        f"{objective:<10} {milliseconds:8.3f} ms   layers per machine {layers}   gap {plan.solution.gap:.1%}"
    )
    for rule in plan.baselines:
        if rule.name in ("capacity", "bandwidth") and rule.objective_seconds is not None:
            print(
                f"  {rule.name:<10} {1e3 * rule.objective_seconds:6.3f} ms   {list(rule.placement.counts().values())}"
            )
