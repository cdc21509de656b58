"""Real execution: run placements on this machine, profile, measure, correct costs and plan again."""
