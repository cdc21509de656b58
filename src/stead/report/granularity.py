"""Levels: whether a plan keeps blocks whole, and what the other granularity would give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from stead.cluster.quantities import format_seconds

Granularity = Literal["auto", "block", "operator"]
GRANULARITIES: tuple[str, ...] = ("auto", "block", "operator")
# The share that operators must save before blocks are split: most loaders take whole blocks only, and analytic costs
# are not true to a few percent.
WORTH_SPLITTING = 0.05


@dataclass(frozen=True, slots=True)
class Levels:
    """What was found for whole blocks and for operators; None where a level was not looked at or has no answer."""

    level: str  # that of the plan: block or operator
    compared: bool  # whether both levels were to be looked at
    block_seconds: float | None
    operator_seconds: float | None
    bound_seconds: float  # no placement of operators is below it; 0 when nothing is proved

    def as_dict(self) -> dict[str, Any]:
        """Plain data for the plan file."""
        return asdict(self)

    @staticmethod
    def from_dict(data: object) -> Levels | None:
        """The inverse of `as_dict`; None where it says nothing that can be understood."""
        if not isinstance(data, Mapping) or data.get("level") not in ("block", "operator"):
            return None
        numbers = [data.get(key) for key in ("block_seconds", "operator_seconds", "bound_seconds")]
        if not all(one is None or (isinstance(one, int | float) and one >= 0) for one in numbers):
            return None
        block, operator, bound = numbers
        return Levels(data["level"], bool(data.get("compared")), block, operator, bound or 0.0)

    @property
    def may_pay(self) -> bool:
        """Whether nothing proves that operators cannot save enough."""
        return self.block_seconds is None or self.bound_seconds < self.block_seconds * (1 - WORTH_SPLITTING)

    @property
    def pays(self) -> bool:
        """Whether operators save enough for blocks to be split."""
        block, operator = self.block_seconds, self.operator_seconds
        return block is not None and operator is not None and operator < block * (1 - WORTH_SPLITTING)

    @property
    def text(self) -> str:
        """One line for a summary.

        >>> Levels("block", True, 1.0, 0.981, 0.5).text
        'whole; operator level would be 981 ms (-1.9 %): not worth splitting blocks; --granularity operator'
        """
        block, operator = self.block_seconds, self.operator_seconds
        if self.level == "operator":
            if operator is None:
                return "split: the solver cannot keep them whole"
            if block is None:
                return "split: no placement of whole blocks was found that fits"
            more = f"{format_seconds(block)} (+{100 * (block / operator - 1):.1f} %)"
            return f"split where it pays; whole blocks would be {more}: --granularity block"
        if not self.compared or block is None:
            return "whole, as asked for"
        if operator is None:
            if not self.may_pay:
                most = 100 * max(0.0, 1 - self.bound_seconds / block)
                return f"whole; splitting them could save {most:.1f} % at most"
            return "whole; operator level was not looked at; --granularity operator"
        if operator >= block:
            return f"whole; operator level found nothing better ({format_seconds(operator)}); --granularity operator"
        less = 100 * (1 - operator / block)
        return (
            f"whole; operator level would be {format_seconds(operator)} (-{less:.1f} %): "
            "not worth splitting blocks; --granularity operator"
        )
