"""Makes what ships with stead: the graphs of the zoo and their catalogue.

    python -m stead.workloads.shipping src/stead/workloads/shipped

It takes torch and a few minutes; do it again whenever a model or the capture changes.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

from stead.files import write_text
from stead.readers.native.npz import write_npz
from stead.workloads.graph_cache import CATALOGUE, Entry, torch_version
from stead.workloads.zoo import MODES, Spec, names, parse


def main(folder: Path) -> None:
    """Capture every named model in both modes, write the graphs and then the catalogue."""
    entries = []
    for name in names():
        for mode in MODES:
            entries.append(made(parse(name, phase=mode), folder))
            print(entries[-1], flush=True)
    document = {"torch": torch_version(), "graphs": [asdict(entry) for entry in entries]}
    write_text(folder / CATALOGUE.name, json.dumps(document, indent=1) + "\n")
    files = {entry.file for entry in entries}
    for old in folder.glob("*.npz"):
        if old.name not in files:
            old.unlink()


def made(spec: Spec, folder: Path) -> Entry:
    """The entry of one model, captured anew and written."""
    module, _, _ = spec.torch()
    graph = spec.capture()
    file = f"{spec.name}-{spec.mode}.npz"
    write_npz(folder / file, graph)
    return Entry(
        name=str(spec).removeprefix("zoo:"),
        fingerprint=spec.fingerprint,
        operators=len(graph),
        tensors=graph.tensor_count,
        parameters=sum(parameter.numel() for parameter in module.parameters()),
        flops=float(graph.flops.sum()),
        graph=graph.fingerprint,
        file=file,
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
