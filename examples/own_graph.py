"""A graph file of one's own, with measured seconds, on devices of one's own.

python examples/own_graph.py
"""

import json
import tempfile
from pathlib import Path

import stead

graph = {
    "format": "stead.graph",
    "version": 1,
    "name": "two-branches",
    "operators": [
        {"name": "input", "outputs": [{"bytes": 600_000}], "seconds": {"gpu": 0.0, "cpu": 0.0}},
        {
            "name": "detect",
            "reads": ["input"],
            "outputs": [{"bytes": 4_000}],
            "seconds": {"gpu": 0.004, "cpu": 0.030},
        },
        {
            "name": "track",
            "reads": ["input"],
            "outputs": [{"bytes": 4_000}],
            "seconds": {"gpu": 0.006, "cpu": 0.007},
        },
        {"name": "sort", "reads": ["detect", "track"], "seconds": {"gpu": None, "cpu": 0.001}},
    ],
}
devices = """
[[device]]
name = "gpu"
kind = "gpu"
memory = "8GiB"

[[device]]
name = "cpu"
kind = "cpu"
memory = "16GiB"

[[link]]
between = ["gpu", "cpu"]
bandwidth = "12GB/s"
latency = "10us"
"""

with tempfile.TemporaryDirectory() as folder:
    model, cluster = Path(folder, "two-branches.json"), Path(folder, "box.toml")
    model.write_text(json.dumps(graph))
    cluster.write_text(devices)
    plan = stead.place(model, cluster, objective="latency")
    print(stead.summary(stead.explain(plan)))
