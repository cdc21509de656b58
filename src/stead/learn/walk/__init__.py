"""A list scheduler that learns: native walks, problems to learn from, evolution strategies, and the solver `walk`."""
