"""Graphs that come with stead: the zoo of models, synthetic families, the model of the demo."""

from stead.workloads.demo import demo_graph
from stead.workloads.families import FAMILIES, Family, Option
from stead.workloads.synthetic import synthetic
from stead.workloads.zoo import Spec, get, model_from_zoo, names, parse, size_in_zoo, zoo_names

__all__ = [
    "FAMILIES",
    "Family",
    "Option",
    "Spec",
    "demo_graph",
    "get",
    "model_from_zoo",
    "names",
    "parse",
    "size_in_zoo",
    "synthetic",
    "zoo_names",
]
