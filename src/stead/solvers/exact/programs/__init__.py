"""Integer programs: one description, the engines that solve it, and the parts that several programs share."""
