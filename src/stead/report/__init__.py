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
        NamedReport,
        OperatorReport,
        Report,
        RuleFacts,
        explain,
        explain_named,
        explain_operators,
        operator_columns,
    )
    from stead.report.layers import LayerRow, layer_rows
    from stead.report.notebook_card import card
    from stead.report.offline_page import Frame, page
    from stead.report.operator_tables import named_text, operator_text
    from stead.report.plan_view import view
    from stead.report.shared_weights import RefreshFacts, TiedFacts
    from stead.report.text import summary

_HOME = {
    "columns": ("View",),
    "facts": (
        "Alternative", "DeviceFacts", "NamedReport", "OperatorReport", "Report", "RuleFacts", "explain",
        "explain_named", "explain_operators", "operator_columns",
    ),
    "layers": ("LayerRow", "layer_rows"),
    "notebook_card": ("card",),
    "offline_page": ("Frame", "page"),
    "operator_tables": ("named_text", "operator_text"),
    "plan_view": ("view",),
    "shared_weights": ("RefreshFacts", "TiedFacts"),
    "text": ("summary",),
}  # fmt: skip
__getattr__ = first_use(__name__, {name: f"{__name__}.{home}" for home, names in _HOME.items() for name in names})

__all__ = [
    "Alternative", "DeviceFacts", "Frame", "LayerRow", "NamedReport", "OperatorReport", "RefreshFacts", "Report",
    "RuleFacts", "TiedFacts", "View", "card", "explain", "explain_named", "explain_operators", "layer_rows",
    "named_text", "operator_columns", "operator_text", "page", "summary", "view",
]  # fmt: skip
