"""Makes the graphs of this experiment from OpenVINO IR: python experiments/hsdag/graphs.py [NAME ...]

It takes torch, openvino and transformers and half a minute per model. The graphs are part of the repository, so that
everything else runs without these packages and on the same inputs whatever their versions are.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from ir_models import IR_MODELS, save_ir

from stead.readers.native.npz import write_npz
from stead.readers.openvino.reader import OpenVino

FOLDER = Path(__file__).parent / "graphs"
FOLDS = ("nothing", "constants")  # one operator per layer; constants and what converts them folded


def main(names: list[str]) -> None:
    """Convert, read with both ways of folding, write."""
    with tempfile.TemporaryDirectory() as folder:
        for name in names or IR_MODELS:
            path = save_ir(name, Path(folder))
            for fold in FOLDS:
                graph = OpenVino(fold=fold).read(path).graph
                write_npz(FOLDER / f"{name}-{fold}.npz", graph)
                print(f"{name} {fold}: {len(graph)} operators, {len(graph.edges)} edges", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
