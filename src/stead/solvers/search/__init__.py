"""Search: placements that become better step by step, until the budget is spent."""
