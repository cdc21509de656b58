"""What a plan means: facts, and their rendering as text and as a page."""

from stead.report.card import card
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
from stead.report.offline_page import Frame, page
from stead.report.plan_view import view
from stead.report.refreshes import RefreshFacts
from stead.report.text import operator_text, summary
from stead.report.tied import TiedFacts

__all__ = [
    "Alternative",
    "DeviceFacts",
    "Frame",
    "LayerRow",
    "OperatorReport",
    "RefreshFacts",
    "Report",
    "RuleFacts",
    "TiedFacts",
    "View",
    "card",
    "explain",
    "explain_operators",
    "layer_rows",
    "operator_columns",
    "operator_text",
    "page",
    "summary",
    "view",
]
