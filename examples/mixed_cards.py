"""A transformer at decode on two unequal cards: plan, reasons, and what one operator would cost elsewhere.

python examples/mixed_cards.py
"""

import stead
from stead.workloads.demo import demo_graph

plan = stead.place(demo_graph(), devices="3090,3060", objective="latency")
print(stead.summary(stead.explain(plan)))

for report in stead.explain_operators(plan, "head"):
    print(stead.operator_text(report))
