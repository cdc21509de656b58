"""Models for the app: read once in a child process, then known as a graph of our own format.

A reader may need seconds, gigabytes, or a file that is out to harm it: none of that happens in the server. The child is
this very file: `python -m stead.serve.models SOURCE OPTIONS FOLDER` writes `graph.npz` and `facts.json`.
"""

from __future__ import annotations

import hashlib
import json
import resource
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from stead.errors import BadInput, Infeasible, SteadError
from stead.serve.store import Row, Store

MOST_UPLOAD_BYTES = 2 * 2**30
READING_SECONDS = 120.0
SUFFIXES = (".onnx", ".json", ".npz", ".xml", ".gguf", ".pt2", ".txt", ".safetensors", ".gz")
FIT_RULES = ("even", "balanced", "fit-memory")


def path_below(root: Path, given: str) -> Path:
    """A file below a folder, with links resolved; BadInput for any other."""
    path = (root / given).resolve()
    if not path.is_relative_to(root.resolve()):
        raise BadInput(f"only files below {root} can be opened here; start `stead ui` with --root for others")
    if not path.exists():
        raise BadInput(f"{given}: no such file below {root}")
    return path


async def uploaded(store: Store, name: str, stream: AsyncIterator[bytes]) -> Path:
    """Keep what comes in under its own hash: of the name that was given only a known suffix becomes part of a path."""
    suffix = next((one for one in SUFFIXES if name.lower().endswith(one)), "")
    if not suffix:
        raise BadInput(f"files of this kind cannot be read here; known are {', '.join(SUFFIXES)}")
    digest, size = hashlib.sha256(), 0
    scratch = store.home / "models" / f".{hashlib.sha256(name.encode()).hexdigest()[:12]}.part"
    try:
        with scratch.open("wb") as file:
            async for chunk in stream:
                size += len(chunk)
                if size > MOST_UPLOAD_BYTES:
                    raise UploadTooLarge
                digest.update(chunk)
                file.write(chunk)
        folder = store.home / "models" / digest.hexdigest()[:32]
        folder.mkdir(mode=0o700, exist_ok=True)
        target = folder / ("config.json" if name == "config.json" else f"model{suffix}")
        scratch.replace(target)
        return target
    finally:
        scratch.unlink(missing_ok=True)


class UploadTooLarge(Exception):
    """More than a file may have."""


def read_in_child(store: Store, source: str, options: Mapping[str, Any], name: str, memory_bytes: int = 0) -> Row:
    """What a child says of a model, kept so that the same question is answered at once."""
    key = json.dumps([source, sorted(options.items()), _changed(source)])
    made = hashlib.sha256(key.encode()).hexdigest()[:16]
    folder = store.home / "models" / made
    known = store.model(made)
    if known is not None and (folder / "graph.npz").exists():
        return known
    folder.mkdir(mode=0o700, exist_ok=True)
    command = [sys.executable, "-m", "stead.serve.models", source, json.dumps(dict(options)), str(folder)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    if memory_bytes:
        with suppress(OSError):
            resource.prlimit(child.pid, resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    try:
        _, said = child.communicate(timeout=READING_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        raise BadInput(f"reading took more than {READING_SECONDS:g} s; make the graph smaller first") from None
    if child.returncode:
        lines = said.decode(errors="replace").strip().splitlines() or ["it cannot be read"]
        raise BadInput(lines[-1].removeprefix("stead: "))
    facts = json.loads((folder / "facts.json").read_text())
    store.add_model(made, {"name": name, "source": source, "options": dict(options), "facts": facts})
    found = store.model(made)
    assert found is not None
    return found


def _changed(source: str) -> float:
    path = Path(source)
    return path.stat().st_mtime if not source.startswith("zoo:") and path.exists() else 0.0


def fit(store: Store, model: Row, devices: str) -> list[dict[str, Any]]:
    """Memory on every device for simple rules, before anything is solved: weights, caches, activations, limit."""
    from stead.placing.loading import load
    from stead.plan import Plan
    from stead.problem import Latency
    from stead.readers.native.npz import graph_from_npz
    from stead.report import explain
    from stead.solvers import Budget, Solution, solver

    graph = graph_from_npz((store.home / "models" / model["id"] / "graph.npz").read_bytes())
    problem = load(graph, devices).problem(Latency())
    rules = [*(f"single:{name}" for name in problem.cluster.names), *FIT_RULES]
    rows = []
    for rule in rules:
        chosen = solver(rule)
        if chosen.unsupported(problem) is not None:
            continue
        try:
            found = chosen.solve(problem, Budget(evaluations=1))
            placement, fits = found.placement, True
        except Infeasible as error:
            if error.placement is None:
                continue
            from stead.problem import Placement

            placement, fits = Placement(problem, error.placement), False
        report = explain(Plan(problem, Solution(placement, 0.0)))
        rows.append({
            "rule": rule, "fits": fits,
            "devices": [
                {
                    "name": one.name, "weights": one.weight_bytes, "kv": one.kv_bytes, "peak": one.peak_bytes,
                    "limit": one.limit_bytes,
                }
                for one in report.devices
            ],
        })  # fmt: skip
    return rows


def _main(source: str, options: str, folder: str) -> int:
    from stead.placing.loading import read_model
    from stead.readers.native.npz import graph_as_npz

    try:
        found, _ = read_model(source if source.startswith("zoo:") else Path(source), json.loads(options))
    except SteadError as error:
        print(f"stead: {error}", file=sys.stderr)
        return 2
    graph = found.graph
    facts = {
        "graph": graph.name, "operators": len(graph),
        "weight_bytes": int(graph.weight_bytes.sum()) - graph.kv_cache_bytes, "kv_bytes": int(graph.kv_cache_bytes),
        "flops": float(graph.flops.sum()), "training": graph.is_training,
        "notes": list(found.notes), "assumed": {one.name: one.size for one in found.assumed},
        "brings_devices": found.cluster is not None,
    }  # fmt: skip
    (Path(folder) / "graph.npz").write_bytes(graph_as_npz(graph))
    (Path(folder) / "facts.json").write_text(json.dumps(facts))
    return 0


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:4]))
