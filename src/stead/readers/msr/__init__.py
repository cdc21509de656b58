"""The inputs published with Tarnawski et al. 2020, and the expert splits beside them."""
