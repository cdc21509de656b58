"""What a plan means: facts, and their rendering as text and as a page.

Names are imported when they are first used: who prints a plan does not load its page.
"""

from typing import TYPE_CHECKING

from stead.lazy import first_use

if TYPE_CHECKING:
    from stead.report.columns import View
    from stead.report.facts import (
        Alternative,
        DeviceFacts,
        OperatorReport,
        Report,
        RuleFacts,
        explain,
        explain_operators,
        operator_columns,
    )
    from stead.report.layers import LayerRow, layer_rows
    from stead.report.notebook_card import card
    from stead.report.offline_page import Frame, page
    from stead.report.plan_view import view
    from stead.report.shared_weights import RefreshFacts, TiedFacts
    from stead.report.text import operator_text, summary

_HOME = {
    "columns": ("View",),
    "facts": (
        "Alternative", "DeviceFacts", "OperatorReport", "Report", "RuleFacts", "explain", "explain_operators",
        "operator_columns",
    ),
    "layers": ("LayerRow", "layer_rows"),
    "notebook_card": ("card",),
    "offline_page": ("Frame", "page"),
    "plan_view": ("view",),
    "shared_weights": ("RefreshFacts", "TiedFacts"),
    "text": ("operator_text", "summary"),
}  # fmt: skip
__getattr__ = first_use(__name__, {name: f"{__name__}.{home}" for home, names in _HOME.items() for name in names})

__all__ = [
    "Alternative", "DeviceFacts", "Frame", "LayerRow", "OperatorReport", "RefreshFacts", "Report", "RuleFacts",
    "TiedFacts", "View", "card", "explain", "explain_operators", "layer_rows", "operator_columns", "operator_text",
    "page", "summary", "view",
]  # fmt: skip
