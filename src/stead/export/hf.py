"""A `device_map` for transformers and accelerate: modules on devices, loaded by `from_pretrained`."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from stead.cluster import Cluster
from stead.errors import BadInput, did_you_mean
from stead.export.base import Bundle, Granularity, Projection, Verification
from stead.export.consumers import model_of, versions_of
from stead.export.hf_charges import charged
from stead.export.hf_modules import Modules, place_in_map
from stead.export.hf_verify import verified
from stead.export.projecting import operators_named, part_of, projected, refuse_moves, share_of_time
from stead.graph import Graph
from stead.plan import Plan
from stead.problem import Constraints, Problem

COMPUTE, OFFLOAD = MEANINGS = ("compute", "offload")
CONSUMERS = ("transformers", "accelerate", "torch")
PLAIN, OURS, LOADER = "device_map.json", "device_map.stead.json", "load.py"
SEQUENTIAL = "HF_DEACTIVATE_ASYNC_LOAD"  # of transformers: tensors are loaded one by one
IN_ORDER = 8  # below this Python's sets hold integers in their order


@dataclass(frozen=True, slots=True)
class HuggingFaceMap:
    """The target `hf`.

    What is planned on a CPU computes there (`cpu_means` "compute"), or its weights wait there and are copied to the
    first accelerator at every call ("offload"). `model` is the folder of the model, which `verify` needs.
    """

    model: str = ""
    cpu_means: str = COMPUTE
    name: ClassVar[str] = "hf"
    granularity: ClassVar[Granularity] = "module"

    def __post_init__(self) -> None:
        if self.cpu_means not in MEANINGS:
            near = did_you_mean(self.cpu_means, MEANINGS)
            raise BadInput(f"cpu_means is one of {', '.join(MEANINGS)}, got {self.cpu_means!r}{near}")

    def unsupported(self, problem: Problem) -> str | None:
        """Why no plan of a problem can be exported."""
        if not any(Modules(problem.graph).keys):
            return "the graph says nothing about modules; read the model from its folder or config.json"
        if problem.graph.is_training:
            return "a device_map is for inference; plan with --phase infer, prefill or decode"
        hosts = [device.name for device in problem.cluster if device.is_host]
        if len(hosts) > 1:
            return f"a device_map knows one CPU, and here are {', '.join(hosts)}"
        return None

    def constraints(self, graph: Graph, cluster: Cluster) -> Constraints:
        """Blocks whole, users of a weight together, what runs between modules with what it reads."""
        modules = Modules(graph)
        members: dict[int, list[int]] = {}
        for v, group in enumerate(modules.groups.tolist()):
            members.setdefault(group, []).append(v)
        colocate = []
        for group in members.values():
            keys = dict.fromkeys(modules.keys[v] or graph.operator_names[v] for v in group)
            if len(group) > 1:
                colocate.append(tuple(_literally(key) for key in keys))
        return Constraints(colocate=tuple(colocate))

    def charged(self, problem: Problem) -> Problem:
        """With copies of masks, tables and results, and with weights streamed from the CPU where they wait there."""
        return charged(
            problem, self.name, main=main_device(problem.cluster), streams=self.cpu_means == OFFLOAD
        )

    def project(self, plan: Plan) -> Projection:
        """Every module where it spends most of its time."""
        problem = self.charged(plan.problem)
        modules = Modules(problem.graph)
        groups = modules.groups
        count = int(groups.max()) + 1
        chosen = share_of_time(problem, plan.placement.devices, groups, count)
        row = chosen[groups].astype(plan.placement.devices.dtype)
        sizes = Counter(modules.keys)

        def why(v: int) -> str:
            key = modules.keys[v]
            if not key:
                return "it runs where its inputs are"
            split = len(set(plan.placement.devices[[u for u, one in enumerate(modules.keys) if one == key]].tolist()))
            return f"{key} is loaded as one" if split > 1 else f"{key} shares weights or sums"

        def name(members: list[int]) -> str:
            key = modules.keys[members[0]]
            return part_of(problem, members, key, sizes[key]) if key else operators_named(problem, members)

        return projected(
            plan, problem, row,
            group=lambda v: modules.keys[v] or problem.graph.operator_names[v],
            name=name,
            why=why,
        )  # fmt: skip

    def export(self, plan: Plan) -> Bundle:
        """The map and a program that loads it."""
        reason = self.unsupported(plan.problem)
        if reason is not None:
            raise BadInput(f"{self.name} cannot take this plan: {reason}")
        refuse_moves(self, self.project(plan))
        device_map = self.device_map(plan)
        main = accelerate_name(plan.problem.cluster, main_device(plan.problem.cluster))
        file = PLAIN if self._loads_by_itself(device_map, main) else OURS
        loader = LOADER_TEXT.format(
            file=file, main=json.dumps(main), named=file == OURS, computes=self.cpu_means == COMPUTE
        )
        folder = self._folder(plan)
        lines = [
            f"python {LOADER} {shlex.quote(folder)}", "# or in Python:", "from load import load",
            f"model = load({json.dumps(folder)})",
        ]  # fmt: skip
        if file == PLAIN:
            given = f'device_map=json.load(open("{PLAIN}"))'
            lines += [
                f"# or without load.py, with the class of the model; with {SEQUENTIAL}=1 in the environment it",
                "# takes no more memory while it is loaded than planned:",
                f"model = AutoModelForCausalLM.from_pretrained({json.dumps(folder)}, {given})",
            ]
        text = json.dumps(device_map, indent=1) + "\n"
        return Bundle({file: text, LOADER: loader}, "\n".join(lines), versions=versions_of(*CONSUMERS))

    def _folder(self, plan: Plan) -> str:
        """The folder of the model, or a word for it where it is not known."""
        folder = Path(self.model or model_of(plan))
        return str(folder.resolve()) if folder.is_dir() else "MODEL_FOLDER"

    def verify(self, plan: Plan) -> Verification:
        """Load the model by the exported files onto virtual devices, run it, generate with it, and look."""
        bundle = self.export(plan)
        return verified(self, plan, bundle)

    def device_map(self, plan: Plan) -> dict[str, int | str]:
        """Module to device, as the file holds it."""
        problem = plan.problem
        modules = Modules(problem.graph)
        names = [accelerate_name(problem.cluster, d) for d in range(len(problem.cluster))]
        made = {key: names[int(plan.placement.devices[v])] for key, v in modules.named.items()}
        for weight, v in zip(modules.parameters, modules.first_users, strict=True):
            wanted, found = names[int(plan.placement.devices[v])], place_in_map(made, weight)
            if found != wanted:
                raise BadInput(f"{weight} is planned on {wanted}, and transformers would put it on {found} by this map")
        return made

    def _loads_by_itself(self, device_map: dict[str, int | str], main: int | str) -> bool:
        """Whether `from_pretrained(device_map=...)` alone gives the plan.

        "cpu" beside accelerators streams, to the first of a set of their numbers; alone it computes.
        """
        values = set(device_map.values())
        if "cpu" not in values:
            return True
        if self.cpu_means == COMPUTE or main == "cpu":
            return values == {"cpu"}
        numbers = [one for one in values if isinstance(one, int)]
        return main == min(numbers, default=None) and max(numbers) < IN_ORDER


def main_device(cluster: Cluster) -> int:
    """The device that inputs go to first: the first accelerator, or the CPU where there is none."""
    return next((d for d, device in enumerate(cluster) if not device.is_host), 0)


def accelerate_name(cluster: Cluster, d: int) -> int | str:
    """What accelerate calls a device: a number that the device file gives, or its place among accelerators."""
    device = cluster.devices[d]
    if device.is_host:
        return "cpu"
    given = device.alias.get("accelerate")
    return given if isinstance(given, int) else sum(not one.is_host for one in cluster.devices[:d])


def _literally(name: str) -> str:
    """A pattern that means a name."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


LOADER_TEXT = '''"""Loads a model, its modules where they are planned: `python load.py FOLDER`, or `load(FOLDER)`."""

import json
import os
import sys
from pathlib import Path

import torch
import transformers

FILE, MAIN, NAME_MAIN, CPU_COMPUTES = "{file}", {main}, {named}, {computes}
os.environ.setdefault("HF_DEACTIVATE_ASYNC_LOAD", "1")  # threads that load ahead take more memory than planned


def device_map():
    """Module to device, as accelerate takes it."""
    return json.loads(Path(__file__).with_name(FILE).read_text())


def computing(planned):
    """The same map; what is on the CPU computes there, which accelerate only does for torch.device("cpu")."""
    return {{name: torch.device("cpu") if at == "cpu" else at for name, at in planned.items()}}


def load(folder, **options):
    """The model, ready to run; inputs may be anywhere, results come back to where they were."""
    config = transformers.AutoConfig.from_pretrained(folder)
    kind = getattr(transformers, config.architectures[0])
    planned = device_map()
    if not NAME_MAIN:
        return kind.from_pretrained(folder, device_map=planned, **options).eval()
    from accelerate import dispatch_model
    from accelerate.hooks import remove_hook_from_submodules

    model = kind.from_pretrained(folder, device_map=computing(planned), **options)
    remove_hook_from_submodules(model)  # accelerate took any device for the main one
    placed = computing(planned) if CPU_COMPUTES else planned
    skipped = model._skip_keys_device_placement
    dispatch_model(model, placed, main_device=MAIN, skip_keys=skipped, force_hooks=True)
    return model.eval()


if __name__ == "__main__":
    for name, device in load(sys.argv[1]).hf_device_map.items():
        print(f"{{name}}  {{device}}")
'''
