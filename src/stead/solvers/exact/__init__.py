"""Solvers that prove what they find, and the reduced problem they share (Tarnawski et al. 2020 and beyond)."""
