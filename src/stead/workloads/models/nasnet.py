"""NASNet-A, with the cells of the large ImageNet model: 6 @ 4032 by default, 88.8 million parameters.

Zoph et al., "Learning Transferable Architectures for Scalable Image Recognition", 2018. No auxiliary head.
"""

from __future__ import annotations

from functools import partial

from stead.workloads.models.nas_cells import Recipe, Scheme, build_network, words

SCHEME = Scheme(
    normal=Recipe(
        words("sep5 sep3  sep5 sep3  avg identity  avg avg  sep3 identity"),
        (0, 1, 1, 1, 0, 1, 1, 1, 0, 0),
        (1, 2, 3, 4, 5, 6),
    ),
    reduction=Recipe(
        words("sep5 sep7  max sep7  avg sep5  identity avg  sep3 max"),
        (0, 1, 0, 1, 0, 1, 3, 2, 2, 0),
        (3, 4, 5, 6),
    ),
    passes_reduction=True,
)

build = partial(build_network, SCHEME)
