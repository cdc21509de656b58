"""Seconds of operators on devices: analytic, given by a file, measured, and corrected by measurements."""

from stead.costs.costs import Costs, CostSource, Source
from stead.costs.error_bars import ErrorBar
from stead.costs.fit import Calibration, Fitted, calibrate
from stead.costs.given import Given
from stead.costs.machine_profile import (
    MachineProfile,
    is_machine_profile,
    read_machine_profile,
    write_machine_profile,
)
from stead.costs.profiles import Profile, read_profile, write_profile
from stead.costs.roofline import Roofline, precision_notes

__all__ = [
    "Calibration",
    "CostSource",
    "Costs",
    "ErrorBar",
    "Fitted",
    "Given",
    "MachineProfile",
    "Profile",
    "Roofline",
    "Source",
    "calibrate",
    "is_machine_profile",
    "precision_notes",
    "read_machine_profile",
    "read_profile",
    "write_machine_profile",
    "write_profile",
]
