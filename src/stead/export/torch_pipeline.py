"""Stages for `torch.distributed.pipelining`: one program per stage, a table of them, and a script that runs them."""

from __future__ import annotations

import io
import json
import warnings
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from stead.cluster import Cluster
from stead.errors import BadInput, did_you_mean
from stead.export.base import Answer, Bundle, Granularity, Projection, Verification
from stead.export.consumers import versions_of
from stead.export.projecting import operators_named, projected, refuse_moves
from stead.export.torch_run import RUN_TEXT
from stead.export.torch_stages import Cut, cut, loose_operators, stage_devices, stage_module, stage_numbers
from stead.graph import Graph
from stead.plan import Plan
from stead.printing.wording import shown_path
from stead.problem import Constraints, Problem
from stead.readers.torch.aten_graph import INPUT
from stead.readers.torch.exported import tape_of_exported, torch_package

SCHEDULES = ("gpipe", "1f1b")
MOST_ROUNDS = 20  # of moving, before everything goes to one device


@dataclass(frozen=True, slots=True)
class TorchPipeline:
    """The target `torch`.

    `model` is the file of `torch.export.save` that the plan was made of. Every stage holds the weights that it reads;
    with `train` they are trained, and the gradients of one that several stages read, such as a tied embedding, are
    added up over them; without it they are frozen.
    """

    model: str = ""
    schedule: str = "gpipe"
    microbatches: int = 4
    train: bool = False
    name: ClassVar[str] = "torch"
    granularity: ClassVar[Granularity] = "stage"

    def __post_init__(self) -> None:
        if self.schedule not in SCHEDULES:
            near = did_you_mean(self.schedule, SCHEDULES)
            raise BadInput(f"schedule is one of {', '.join(SCHEDULES)}, got {self.schedule!r}{near}")
        if self.microbatches < 1:
            raise BadInput(f"microbatches must be at least 1, got {self.microbatches}")

    def unsupported(self, problem: Problem) -> str | None:
        """Why no plan of a problem can be exported."""
        kinds = set(problem.graph.kinds) - {INPUT}
        strange = next((kind for kind in sorted(kinds) if "." not in kind), None)
        if strange is not None or not kinds:
            return f"its operators are not those of torch ({strange or 'none'}); read the model from a .pt2 file"
        if problem.graph.is_training:
            return "torch makes the backward pass itself; plan the inference graph of the .pt2 file"
        return None

    def constraints(self, graph: Graph, cluster: Cluster) -> Constraints:
        """None: any operator can be in any stage, as long as nothing is sent backward; `project` sees to that."""
        return Constraints()

    def charged(self, problem: Problem) -> Problem:
        """The problem as it is: stages send what the graph says, and pass on what later stages read."""
        return problem

    def project(self, plan: Plan) -> Projection:
        """Operators that would send backward go to the stage of what they read."""
        graph, row = plan.problem.graph, plan.placement.devices
        after = self._in_stages(graph, row)
        return projected(
            plan, plan.problem, after,
            group=lambda v: graph.modules[v],
            name=lambda members: operators_named(plan.problem, members),
            why=lambda v: "a stage reads from stages before it only",
        )  # fmt: skip

    def _in_stages(self, graph: Graph, row: NDArray[Any]) -> NDArray[Any]:
        """The devices of operators once nothing sends backward."""
        loose = self._loose(graph)
        for _ in range(MOST_ROUNDS):
            stage, devices = stage_numbers(graph, row, loose), stage_devices(row, loose)
            after = np.where(loose, row, np.array(devices, dtype=row.dtype)[stage]).astype(row.dtype)
            if np.array_equal(after, row):
                return after
            row = after  # what moved may change which device is needed first
        return np.where(loose, row, row[~loose][-1]).astype(row.dtype)

    def _loose(self, graph: Graph) -> NDArray[np.bool_]:
        constants = self._constants()
        return loose_operators(graph, lambda name: name in constants)

    def _constants(self) -> set[str]:
        """Names of weights that are never trained, as far as the file is at hand."""
        return set(_buffers_of(Path(self.model))) if self.model and Path(self.model).is_file() else set()

    def export(self, plan: Plan) -> Bundle:
        """Programs, their table, and a script that runs them."""
        reason = self.unsupported(plan.problem)
        if reason is not None:
            raise BadInput(f"{self.name} cannot take this plan: {reason}")
        refuse_moves(self, self.project(plan))
        torch = torch_package("exporting pipeline stages")
        program, made = self.cut(plan, torch)
        count = len(made.stages)
        if self.schedule == "1f1b" and self.microbatches < count:
            raise BadInput(f"1f1b needs as many micro-batches as stages: {count}, got {self.microbatches}")
        for word, values in (("input", made.stages[0].takes), ("result", made.stages[-1].gives)):
            flat = next((one.name for one in values if not one.shape), None)
            if flat is not None:
                raise BadInput(
                    f"{word} {flat!r} of the program has no dimension, so that it cannot be cut into micro-batches or "
                    f"put together from them; export the program without it, or with a first dimension for samples"
                )
        files = {**self._files(torch, program, made, plan.problem.cluster), "run.py": RUN_TEXT}
        return Bundle(files, f"torchrun --nproc-per-node {count} run.py inputs.pt", versions=versions_of("torch"))

    def cut(self, plan: Plan, torch: Any) -> tuple[Any, Cut]:
        """The exported program of a plan, and its stages."""
        if not self.model:
            raise BadInput("the program is not in the plan: give the file as the option model=FILE.pt2")
        if not Path(self.model).is_file():
            raise BadInput(f"{shown_path(self.model)} is no file; give the .pt2 file that the plan was made of")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.export.load(self.model)
        return program, cut(tape_of_exported(program), plan, self._loose(plan.problem.graph))

    def _files(self, torch: Any, program: Any, made: Cut, cluster: Cluster) -> dict[str, str | bytes]:
        """The stages, one after another, and their table."""
        tensors = {**program.state_dict, **program.constants}
        names = set(program.graph_signature.parameters)
        dtypes = {node.name: node.meta.get("val") for node in program.graph.nodes}
        files: dict[str, str | bytes] = {}
        learns: set[int] = set()  # values that gradients come back for
        for k, stage in enumerate(made.stages):
            module = stage_module(torch, made, k, tensors, trains=self.train, parameters=names)
            example = tuple(_example(torch, value, dtypes) for value in stage.takes)
            needs = [id(value) in learns for value in stage.takes]
            given = zip(stage.gives, _depend_on_weights(torch, module, example, needs), strict=True)
            learns |= {id(value) for value, depends in given if depends}
            files[f"stage_{k}.pt2"] = _saved(torch, module, example)
        files["stages.json"] = json.dumps(self._table(made, learns, cluster), indent=1) + "\n"
        return files

    def _table(self, made: Cut, learns: set[int], cluster: Cluster) -> dict[str, Any]:
        def described(values: list[Any]) -> list[dict[str, Any]]:
            return [
                {"name": one.name, "shape": list(one.shape), "dtype": one.dtype, "grad": id(one) in learns}
                for one in values
            ]

        return {
            "n": len(made.stages),
            "stages": [
                {"rank": rank, "device": one.device, **_host(cluster, one.device), "inputs": described(one.takes),
                 "outputs": described(one.gives), "params": one.weights}
                for rank, one in enumerate(made.stages)
            ],
            "shared": [{"names": list(one.names), "stages": list(one.stages)} for one in made.shared],
            "schedule": self.schedule, "microbatches": self.microbatches, "train": self.train,
        }  # fmt: skip

    def verify(self, plan: Plan) -> Verification:
        """Run the stages by torch's own pipeline, one process each, and compare with the whole program."""
        from stead.export.torch_verify import verified

        if not self.model:
            why = "the program is not in the plan: give it as the option model=FILE.pt2"
            unseen = Answer("not checkable here", why)
            return Verification(unseen, unseen, unseen)
        return verified(self, plan, self.export(plan))


def _host(cluster: Cluster, device: str) -> dict[str, str]:
    """The machine that a rank runs in, where the plan knows."""
    host = cluster.host_of(device)
    return {} if host is None else {"host": host.name}


def _saved(torch: Any, module: Any, example: tuple[Any, ...]) -> bytes:
    """A stage as `torch.export.save` writes it."""
    room = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.save(torch.export.export(module, example, strict=False), room)
    return room.getvalue()


def _depend_on_weights(torch: Any, module: Any, example: tuple[Any, ...], needs: list[bool]) -> list[bool]:
    """Whether gradients flow back through what a stage gives, found on tensors without contents."""
    fake = import_module("torch._subclasses.fake_tensor").FakeTensorMode(allow_non_fake_inputs=True)
    with fake, torch.enable_grad():
        given = [fake.from_tensor(one).requires_grad_(need) for one, need in zip(example, needs, strict=True)]
        return [bool(one.requires_grad) for one in torch.utils._pytree.tree_leaves(module(*given))]


def _buffers_of(path: Path) -> list[str]:
    """Names of buffers and constants in a .pt2 file, read without torch."""
    from stead.readers.torch.pt2_archive import read_archive

    specs = read_archive(path)["model"]["graph_module"]["signature"]["input_specs"]
    found = []
    for spec in specs:
        for kind, key in (("buffer", "buffer_name"), ("tensor_constant", "tensor_constant_name")):
            if kind in spec:
                found.append(spec[kind][key])
    return found


def _example(torch: Any, value: Any, held: dict[str, Any]) -> Any:
    """A tensor of the shape and type that a stage takes."""
    known = held.get(value.name)
    if isinstance(known, torch.Tensor):
        return torch.zeros(tuple(value.shape), dtype=known.dtype)
    return torch.zeros(tuple(value.shape), dtype=_dtypes(torch).get(value.dtype, torch.float32))


def _dtypes(torch: Any) -> dict[str, Any]:
    return {
        "fp32": torch.float32, "fp64": torch.float64, "fp16": torch.float16, "bf16": torch.bfloat16,
        "int64": torch.int64, "int32": torch.int32, "int8": torch.int8, "bool": torch.bool, "uint8": torch.uint8,
    }  # fmt: skip
