"""Campaigns: many coarse tasks on the processes of this machine, of a Dask cluster or of a Ray cluster.

A task is a module-level function by name and plain arguments; with a seed among them it answers the same wherever and
however often it runs. Answers come in the order of the tasks, so that an engine and the number of its workers decide
how long a campaign takes and nothing else.

    calls.py    what passes between the coordinator and its workers, and what a worker does with it
    base.py     Fleet, what an engine has to provide, and Engine, the one coordinator above them all
    journal.py  what was answered, on disk: a coordinator that was killed goes on from it
    local.py, dask.py, ray.py  the fleets
"""

from stead.engine.base import Engine, EngineFailed, Fleet, Outcome, Progress, Task, Worker
from stead.engine.calls import Blob
from stead.engine.journal import Journal
from stead.engine.naming import opened_engine

__all__ = [
    "Blob",
    "Engine",
    "EngineFailed",
    "Fleet",
    "Journal",
    "Outcome",
    "Progress",
    "Task",
    "Worker",
    "opened_engine",
]
