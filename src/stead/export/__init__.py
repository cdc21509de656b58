"""From a plan to the runtime people use: what it can express, its files, and the proof that it does as planned.

`base` is what every exporter promises and `targets` the table of all. `layer_stack` is the model as loaders of layers
see it, `cuts` finds the best stretches of layers, `stages` what frameworks for pipelines share, `projecting` says what
moves and what it costs; `placing` plans for a target, `folder` writes what is handed on. The other way round, `setups`
reads what people have and `scoring` says how good it is. Everything else is a target.
"""

from typing import TYPE_CHECKING

from stead.lazy import first_use

if TYPE_CHECKING:
    from stead.export.base import Answer, Bundle, Exporter, Move, Projection, Verification
    from stead.export.targets import TARGETS, exporter

__all__ = ["TARGETS", "Answer", "Bundle", "Exporter", "Move", "Projection", "Verification", "exporter"]

_HOME = {
    "stead.export.base": ("Answer", "Bundle", "Exporter", "Move", "Projection", "Verification"),
    "stead.export.targets": ("TARGETS", "exporter"),
}
__getattr__ = first_use(__name__, {name: module for module, names in _HOME.items() for name in names})
