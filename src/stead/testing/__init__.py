"""For tests of stead and of plug-ins: tiny problems one can draw, and in `contracts` what every solver promises."""

from stead.testing.tiny import chain3, diamond, tiny_cluster, tiny_layers, tiny_problem, two_towers

__all__ = ["chain3", "diamond", "tiny_cluster", "tiny_layers", "tiny_problem", "two_towers"]
