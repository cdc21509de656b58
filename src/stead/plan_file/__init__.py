"""Plan files: one JSON document with the question, the answer and checksums of both; docs/formats.md describes it.

`writing` makes it, `reading` checks all of it, `rows` packs long lists of numbers, `checksums` finds what was changed.
"""

from stead.plan_file.reading import Contents, is_plan, read_plan
from stead.plan_file.values import FORMAT, VERSION, Baseline
from stead.plan_file.writing import plan_document, plan_text, write_plan

__all__ = [
    "FORMAT",
    "VERSION",
    "Baseline",
    "Contents",
    "is_plan",
    "plan_document",
    "plan_text",
    "read_plan",
    "write_plan",
]
