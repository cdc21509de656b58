"""Graphs that come with stead: synthetic families, the model of the demo."""

from stead.workloads.demo import demo_graph
from stead.workloads.synthetic import synthetic

__all__ = ["demo_graph", "synthetic"]
