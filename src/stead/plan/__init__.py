"""Plans, and the file users keep: one JSON document with the question, the answer and checksums of both.

`plan` is the value; `writing` makes the file, `reading` checks all of it (`question`, `answer`, and `rescoring` by the
simulator), `rows` packs long lists of numbers, `checksums` finds what was changed; docs/reference/formats.md says what
the file holds.
"""

from typing import TYPE_CHECKING

from stead.lazy import first_use
from stead.plan.fields import FORMAT, VERSION, Baseline
from stead.plan.plan import Plan, provenance
from stead.plan.writing import plan_bytes, plan_document, plan_text, write_plan

if TYPE_CHECKING:
    from stead.plan.reading import Contents, is_plan, read_plan

__all__ = [
    "FORMAT",
    "VERSION",
    "Baseline",
    "Contents",
    "Plan",
    "is_plan",
    "plan_bytes",
    "plan_document",
    "plan_text",
    "provenance",
    "read_plan",
    "write_plan",
]

# Who makes a plan reads none.
__getattr__ = first_use(__name__, dict.fromkeys(("Contents", "is_plan", "read_plan"), "stead.plan.reading"))
