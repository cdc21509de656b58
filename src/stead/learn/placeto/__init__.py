"""Placeto (Addanki et al., NeurIPS 2019): placements improved step by step; read method.py."""
