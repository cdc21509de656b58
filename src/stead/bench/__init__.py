"""`stead bench`: every solver on the same instances with the same budgets, and what came out."""

from stead.bench.instances import SUITES, Instance, Suite, suite_named
from stead.bench.results import Bench, Cell, Standing
from stead.bench.runner import Job, jobs_of, run_jobs

__all__ = [
    "SUITES",
    "Bench",
    "Cell",
    "Instance",
    "Job",
    "Standing",
    "Suite",
    "jobs_of",
    "run_jobs",
    "suite_named",
]
