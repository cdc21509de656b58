"""Seconds of operators on devices: analytic, given by a file, measured, and corrected by measurements."""

from stead.costs.costs import Costs, CostSource, Source
from stead.costs.fit import Calibration, Fitted, calibrate
from stead.costs.given import Given
from stead.costs.profiles import Profile, read_profile, write_profile
from stead.costs.roofline import Roofline, precision_notes

__all__ = [
    "Calibration",
    "CostSource",
    "Costs",
    "Fitted",
    "Given",
    "Profile",
    "Roofline",
    "Source",
    "calibrate",
    "precision_notes",
    "read_profile",
    "write_profile",
]
