"""Plans for clusters that are too large for single solvers: part by part, and lifted to the whole."""
