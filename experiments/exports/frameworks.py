"""Asks torchtitan and DeepSpeed themselves what they make of exported plans, without installing them.

    pip download --no-deps torchtitan==0.3.0
    pip download --no-deps --no-binary :all: deepspeed==0.19.8
    python experiments/exports/frameworks.py torchtitan-0.3.0-py3-none-any.whl deepspeed-0.19.8.tar.gz

Both pull in a hundred packages or want a compiler. The functions that cut a model do not: they are taken out of the
archive as they are written there and run on random plans. Of torchtitan that is `_split_module`, of DeepSpeed the
methods of `PipelineModule` that hold the bounds of a stage, and its topology.
"""

from __future__ import annotations

import ast
import copy
import sys
import tarfile
import zipfile
from collections import namedtuple
from itertools import pairwise, product
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "export"))
from layered import drawn_counts, layered, plan_by_layers

from stead.export import exporter
from stead.plan import Plan

PLANS = 200


def source_of(archive: Path, ending: str) -> str:
    """The text of the file in a wheel or a source distribution whose path ends so."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return wheel.read(next(name for name in wheel.namelist() if name.endswith(ending))).decode()
    with tarfile.open(archive) as bundle:
        member = next(one for one in bundle.getmembers() if one.name.endswith(ending))
        found = bundle.extractfile(member)
        assert found is not None
        return found.read().decode()


def defined(source: str, names: set[str], space: dict[str, Any]) -> dict[str, Any]:
    """Functions and classes of a file, by name, in a space that has what they need."""
    body = [node for node in ast.parse(source).body if getattr(node, "name", "") in names]
    exec(compile(ast.Module(body, []), "<archive>", "exec"), space)
    return space


def drawn(random: np.random.Generator) -> tuple[Plan, int, list[list[str]]]:
    """A random plan of a pipeline, its layers, and the parts that were planned, by their names in torchtitan."""
    layers, stages = int(random.integers(4, 12)), int(random.integers(1, 5))
    counts = drawn_counts(random, layers, stages, empty=False)
    order = random.permutation(stages).tolist()
    plan = plan_by_layers(layered(layers, stages, host=False), np.repeat(order, counts).tolist(), before=order[0])
    names = iter(f"layers.{n}" for n in range(layers))
    parts = [[next(names) for _ in range(count)] for count in counts]
    parts[0].insert(0, "tok_embeddings")
    parts[-1] += ["norm", "lm_head"]
    return plan, layers, parts


def by_torchtitan(archive: Path) -> int:
    """Plans whose parts torchtitan cuts as planned."""
    space = {"copy": copy, "nn": nn, "ModuleDict": nn.ModuleDict, "ModuleList": nn.ModuleList}
    split = defined(source_of(archive, "torchtitan/distributed/pipeline_parallel.py"), {"_split_module"}, space)
    random, right = np.random.default_rng(0), 0
    for _ in range(PLANS):
        plan, layers, wanted = drawn(random)
        whole = nn.Module()
        whole.tok_embeddings, whole.norm, whole.lm_head = (nn.Linear(1, 1) for _ in range(3))
        whole.layers = nn.ModuleDict({str(n): nn.Linear(1, 1) for n in range(layers)})
        told: dict[str, Any] = {"config": SimpleNamespace(parallelism=SimpleNamespace())}
        exec(str(exporter("torchtitan").export(plan).files["parallelism.py"]), told)
        cut = [split["_split_module"](whole, names) for names in told["config"].parallelism.module_fqns_per_model_part]
        found = [sorted(name for name, one in part.named_modules() if isinstance(one, nn.Linear)) for part in cut]
        right += found == [sorted(part) for part in wanted]
    return right


def by_deepspeed(archive: Path) -> int:
    """Plans of which every process of DeepSpeed gets the layers that were planned."""
    room: dict[str, Any] = {"namedtuple": namedtuple, "cartesian_product": product}
    topology = defined(
        source_of(archive, "deepspeed/runtime/pipe/topology.py"), {"ProcessTopology", "PipeDataParallelTopology"}, room
    )["PipeDataParallelTopology"]
    kind = next(
        node for node in ast.parse(source_of(archive, "deepspeed/runtime/pipe/module.py")).body
        if isinstance(node, ast.ClassDef) and node.name == "PipelineModule"
    )  # fmt: skip
    wanted = ("_set_bounds", "stage_owner")
    kind.body = [node for node in kind.body if isinstance(node, ast.FunctionDef) and node.name in wanted]
    kind.bases, kind.decorator_list = [], []
    pipe = ModuleType("deepspeed.pipe")
    exec(compile(ast.Module([kind], []), "<archive>", "exec"), pipe.__dict__)
    sys.modules.update({"deepspeed": ModuleType("deepspeed"), "deepspeed.pipe": pipe})
    random, right = np.random.default_rng(0), 0
    for _ in range(PLANS):
        plan, layers, parts = drawn(random)
        space: dict[str, Any] = {}
        exec(str(exporter("deepspeed").export(plan).files["planned_pipeline.py"]), space)
        specs = ["tok_embeddings", *(f"layers.{n}" for n in range(layers)), "head"]
        found = []
        for rank in range(len(parts)):
            made = space["PlannedPipeline"].__new__(space["PlannedPipeline"])
            made._topo, made.global_rank, made._layer_specs = topology(num_pp=len(parts), num_dp=1), rank, specs
            made._grid = SimpleNamespace(pipe_parallel_size=len(parts))
            made._partition_layers(method="uniform")
            found.append(specs[made._local_start : made._local_stop])
        told = [[name for name in part if name not in ("norm", "lm_head")] for part in parts]
        told[-1].append("head")
        assert [len(one) for one in found] == [b - a for a, b in pairwise(space["PARTS"])]
        right += found == told
    return right


if __name__ == "__main__":
    torch.manual_seed(0)
    for path in map(Path, sys.argv[1:]):
        ask = by_torchtitan if path.name.startswith("torchtitan") else by_deepspeed
        print(f"{path.name}: {ask(path)} of {PLANS} plans cut as planned")
