"""GDP (Zhou et al., 2019 and NeurIPS 2020): one pass of a graph network, one policy for many graphs; read method.py."""
