"""What the policy of the package is trained on: small graphs of all families, on clusters that no test uses.

A row is (family, model, cluster, room). Room is the memory of every device over what the expert's fullest device needs;
0 is ample memory. Sizes are smaller than those of the tests: fewer time steps, fewer layers, other batches.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from stead.cluster import Cluster
from stead.placing.loading import load
from stead.problem import Latency, Problem

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "gdp"))

from suite import cluster, with_room

CLUSTERS: dict[str, Cluster] = {
    "2 equal": cluster([9.3e12] * 2, [700e9] * 2, links=16e9, latency=10e-6),
    "3 equal": cluster([9.3e12] * 3, [700e9] * 3, links=16e9, latency=10e-6),
    "4 equal": cluster([9.3e12] * 4, [700e9] * 4, links=16e9, latency=10e-6),
    "8 equal": cluster([9.3e12] * 8, [700e9] * 8, links=16e9, latency=10e-6),
    "2 with slow links": cluster([6e12] * 2, [400e9] * 2, links=4e9, latency=30e-6),
    "4 with slow links": cluster([6e12] * 4, [400e9] * 4, links=4e9, latency=30e-6),
    "2 unequal": cluster([14e12, 7e12], [900e9, 450e9], links=12e9, latency=10e-6),
    "4 unequal": cluster([14e12, 14e12, 7e12, 7e12], [900e9] * 2 + [450e9] * 2, links=12e9, latency=10e-6),
}


@dataclass(frozen=True, slots=True)
class Row:
    """One graph to learn from."""

    family: str
    model: str
    cluster: str
    room: float

    @property
    def name(self) -> str:
        """As the card of the policy lists it."""
        return f"{self.model} on {self.cluster}, room {self.room or 'ample'}"

    def problem(self) -> Problem:
        """Read and costed."""
        found = load(self.model, CLUSTERS[self.cluster]).problem(Latency())
        return with_room(found, self.room) if self.room else found


ROWS = (
    Row("rnnlm", "zoo:rnnlm-2?steps=10,phase=train", "2 equal", 1.5),
    Row("rnnlm", "zoo:rnnlm-4?steps=10,phase=train", "4 with slow links", 1.5),
    Row("rnnlm", "zoo:rnnlm-2?steps=20,phase=train", "2 unequal", 0),
    Row("gnmt", "zoo:gnmt-2?steps=10,phase=train", "2 equal", 1.5),
    Row("gnmt", "zoo:gnmt-4?steps=8,phase=train", "4 equal", 1.5),
    Row("gnmt", "zoo:gnmt-8?steps=5,phase=train", "8 equal", 2),
    Row("transformer-xl", "zoo:transformer-xl-2?batch=16,phase=train", "2 with slow links", 1.5),
    Row("transformer-xl", "zoo:transformer-xl-4?batch=16,phase=train", "4 equal", 1.5),
    Row("transformer-xl", "zoo:transformer-xl-8?batch=16,phase=train", "8 equal", 1.5),
    Row("inception", "zoo:inception-v3?batch=16,phase=train", "2 equal", 1.5),
    Row("inception", "zoo:resnet-50?phase=train", "2 unequal", 0),
    Row("wavenet", "zoo:wavenet-2x18?batch=4,phase=train", "2 equal", 1.5),
    Row("wavenet", "zoo:wavenet-4x36?batch=4,phase=train", "4 unequal", 1.5),
    Row("searched cells", "zoo:nasnet-mobile?phase=train", "4 equal", 1.5),
    Row("searched cells", "zoo:nasnet-mobile", "3 equal", 0),
    Row("transformers", "zoo:bert-base?phase=train", "4 equal", 1.5),
    Row("transformers", "zoo:gpt2-small?phase=train", "2 unequal", 1.5),
    Row("transformers", "zoo:t5-small?phase=train", "4 with slow links", 1.5),
    Row("transformers", "zoo:llama-1b", "3 equal", 1.5),
)
FAMILIES = tuple(dict.fromkeys(row.family for row in ROWS))


def rows_without(family: str) -> list[Row]:
    """All rows, or those of the other families."""
    return [row for row in ROWS if row.family != family]
