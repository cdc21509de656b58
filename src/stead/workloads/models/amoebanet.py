"""AmoebaNet-A: N = 6 and F = 190 by default, the model that its paper gives 86.7 million parameters.

Real et al., "Regularized Evolution for Image Classifier Architecture Search", 2019. No auxiliary head.
"""

from __future__ import annotations

from functools import partial

from stead.workloads.models.nas_cells import Recipe, Scheme, build_network, words

SCHEME = Scheme(
    normal=Recipe(
        words("avg max  sep3 identity  identity avg  sep3 sep5  avg sep3"),
        (0, 0, 1, 1, 0, 1, 0, 2, 5, 0),
        (1, 3, 4, 6),
    ),
    reduction=Recipe(
        words("sep3 avg  max sep7  max max  sep3 1x7_7x1  avg sep7"),
        (1, 0, 0, 2, 1, 0, 4, 0, 1, 0),
        (2, 3, 4, 5, 6),
    ),
    passes_reduction=False,
)

build = partial(build_network, SCHEME)
