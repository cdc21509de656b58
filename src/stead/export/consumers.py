"""What exporters know of the programs that they write for: versions, names of devices, what a plan was made of."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from stead.cluster import Cluster
from stead.export.base import Answer
from stead.plan import Plan

# Releases whose rules were read or run when the exporters were written.
KNOWN = {
    "deepspeed": "0.19.8", "llama.cpp": "0.5.0 (ggml 0.25.3)", "megatron-core": "0.16.1", "torchtitan": "0.3.0",
    "vllm": "0.32.0", "ai-edge-model-explorer": "0.1.34",
}  # fmt: skip
NOT_LOADED = Answer("not checkable here", "no weights were loaded")
NOT_RUN = Answer("not checkable here", "it is the same arithmetic on other devices; no weights were run")


def versions_of(*packages: str) -> dict[str, str]:
    """The release of each consumer: the one that is installed, else the one whose rules were written down."""
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            known = KNOWN.get(package)
            found[package] = f"{known} (its rules; not installed here)" if known else "not installed"
    return found


def model_of(plan: Plan) -> str:
    """What the plan was made of, as the user called it."""
    return str(plan.provenance.get("model") or plan.problem.graph.name or "MODEL")


def device_index(cluster: Cluster, name: str) -> int | None:
    """The number that tools know an accelerator by: its alias, else its place among its kind; None for others."""
    device = cluster.devices[cluster.index(name)]
    given = device.alias.get("accelerate")
    if isinstance(given, int):
        return given
    kinds = [one.name for one in cluster if one.kind == "gpu"]
    return kinds.index(name) if name in kinds else None
