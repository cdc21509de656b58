"""HSDAG (Duan et al., NeurIPS 2024): groups learned together with their devices; read method.py."""
