"""What a plan means: facts, and their rendering as text and as a page."""

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
from stead.report.html_page import card, page
from stead.report.layers import LayerRow, layer_rows
from stead.report.refreshes import RefreshFacts
from stead.report.text import operator_text, summary
from stead.report.tied import TiedFacts

__all__ = [
    "Alternative",
    "DeviceFacts",
    "LayerRow",
    "OperatorReport",
    "RefreshFacts",
    "Report",
    "RuleFacts",
    "TiedFacts",
    "card",
    "explain",
    "explain_operators",
    "layer_rows",
    "operator_columns",
    "operator_text",
    "page",
    "summary",
]
