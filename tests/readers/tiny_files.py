"""Plain data of one small valid file of each format."""

from __future__ import annotations

from typing import Any

GRAPH: dict[str, Any] = {
    "format": "stead.graph",
    "version": 1,
    "name": "demo",
    "operators": [
        {"name": "conv1", "kind": "Conv", "flops": 2e9, "bytes": 5e6, "outputs": [{"bytes": 400}]},
        {"name": "conv2", "kind": "Conv", "flops": 3e9, "reads": ["conv1"], "outputs": [{"bytes": 200}]},
        {
            "name": "head",
            "reads": ["conv1", "conv2"],
            "parameters": 100,
            "seconds": {"gpu": 0.5, "cpu": None},
        },
    ],
    "weights": [{"name": "shared", "bytes": 64, "users": ["conv1", "conv2"]}],
}

INPUT: dict[str, Any] = {
    "maxSizePerFPGA": 1000.0,
    "maxFPGAs": 2,
    "maxCPUs": 1,
    "nodes": [
        {
            "id": 1, "name": "first", "supportedOnFpga": 1, "isBackwardNode": 0,
            "cpuLatency": 10, "fpgaLatency": 1.0, "colorClass": 7, "size": 100.0,
        },
        {
            "id": 2, "name": "second", "supportedOnFpga": True, "isBackwardNode": False,
            "cpuLatency": 20, "fpgaLatency": 2, "colorClass": 7, "size": 200,
        },
        {"id": 5, "supportedOnFpga": False, "isBackwardNode": 0, "cpuLatency": 30.5, "fpgaLatency": 3},
    ],
    "edges": [{"sourceId": 1, "destId": 2, "cost": 0.5}, {"sourceId": 1, "destId": 5, "cost": 0.5}],
}  # fmt: skip
