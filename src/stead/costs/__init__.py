"""Seconds of operators on devices: analytic, given by a file, measured."""

from stead.costs.given import Given
from stead.costs.roofline import Roofline, flop_rate
from stead.costs.table import Costs, CostSource, Source

__all__ = ["CostSource", "Costs", "Given", "Roofline", "Source", "flop_rate"]
