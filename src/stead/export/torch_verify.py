"""Whether the stages of a pipeline give what the whole program gives: torch runs them, one process each."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import warnings
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stead.export.base import Answer, Bundle, Verification, did_not_run
from stead.export.check_process import write_files
from stead.plan import Plan
from stead.printing.wording import one_line
from stead.readers.torch.exported import torch_package

if TYPE_CHECKING:
    from stead.export.torch_pipeline import TorchPipeline

LIMIT_SECONDS = 300.0
TOLERANCE = 1e-5
# One process imports torch and becomes all stages: that takes seconds, and stages have to do it only once.
START = """
import datetime, os, sys
import torch, torch.distributed as dist, torch.export
torch.set_num_threads(1)
store, folder, inputs, outputs, count = sys.argv[1:]
sys.path.insert(0, folder)
import run
torch.export.load(folder + "/stage_0.pt2")  # what that imports is shared, too
stages = {}
for rank in range(int(count)):
    stages[os.fork()] = rank
    if 0 not in stages:
        continue
    code = 1
    try:
        log = os.open(folder + f"/log.{rank}", os.O_WRONLY | os.O_CREAT)
        os.dup2(log, 1), os.dup2(log, 2)
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
        dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=int(count),
                                timeout=datetime.timedelta(seconds=240))
        run.main(inputs, outputs)
        dist.barrier()
        dist.destroy_process_group()
        code = 0
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", flush=True)
    finally:
        os._exit(code)
while stages:
    pid, status = os.wait()
    rank = stages.pop(pid)
    if status:
        print(rank, flush=True)
        for other in stages:
            os.kill(other, 9)
        sys.exit(1)
"""


def verified(target: TorchPipeline, plan: Plan, bundle: Bundle) -> Verification:
    """The verdict on exported stages."""
    torch = torch_package("running pipeline stages")
    torch.manual_seed(0)
    count = sum(name.endswith(".pt2") for name in bundle.files)
    with tempfile.TemporaryDirectory(prefix="stead-torch-") as work, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder = Path(work)
        write_files(bundle, folder)
        program = torch.export.load(target.model)
        given = _given(torch, target, program)
        torch.save(given, folder / "inputs.pt")
        trouble = _run(folder, count)
        if trouble:
            return did_not_run(trouble)
        found = [torch.load(folder / f"outputs.pt.{k}") for k in range(count)]
        wanted = _whole(torch, target, program, given)
    return Verification(_same(torch, target, found, wanted), _placed(target, plan, torch, count), _memory())


def _memory() -> Answer:
    return Answer("not checkable here", "processes of this machine share its memory")


def _given(torch: Any, target: TorchPipeline, program: Any) -> dict[str, Any]:
    """Inputs for all micro-batches, and a target of the shape of the result."""
    arguments, named = program.example_inputs
    leaves = [one for one in torch.utils._pytree.tree_leaves((arguments, named)) if isinstance(one, torch.Tensor)]

    def drawn(like: Any) -> Any:
        shape = (target.microbatches * like.shape[0], *like.shape[1:])
        if like.is_floating_point():
            return torch.randn(shape, dtype=like.dtype)
        if like.dtype == torch.bool:
            return like.repeat(target.microbatches, *[1] * (like.dim() - 1))
        high = max(2, int(like.max()) + 1) if like.numel() else 2
        return torch.randint(0, high, shape, dtype=like.dtype)

    given: dict[str, Any] = {"inputs": tuple(drawn(one) for one in leaves)}
    if target.train:
        with torch.no_grad():
            first = [part[: leaf.shape[0]] for part, leaf in zip(given["inputs"], leaves, strict=True)]
            one = _call(torch, program.module(), program, first)
        result = torch.utils._pytree.tree_leaves(one)[0]
        given["target"] = torch.randn((target.microbatches * result.shape[0], *result.shape[1:]))
    return given


def _call(torch: Any, module: Any, program: Any, leaves: list[Any]) -> Any:
    arguments, named = program.example_inputs
    flat, spec = torch.utils._pytree.tree_flatten((arguments, named))
    rest = iter(leaves)
    full = [next(rest) if isinstance(one, torch.Tensor) else one for one in flat]
    positional, keyword = torch.utils._pytree.tree_unflatten(full, spec)
    return module(*positional, **keyword)


def _run(folder: Path, count: int) -> str:
    """Start a process that becomes all stages and wait; empty, or what went wrong. No process is left behind."""
    common = {**os.environ, "WORLD_SIZE": str(count), "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    names = [str(folder / name) for name in ("store", "", "inputs.pt", "outputs.pt")]
    with (folder / "log").open("w") as log:
        stages = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", START, *names, str(count)], stdout=log, stderr=log, env=common,
            start_new_session=True,
        )  # fmt: skip
    try:
        if stages.wait(LIMIT_SECONDS) == 0:
            return ""
        return _trouble(folder)
    except subprocess.TimeoutExpired:
        return f"the pipeline took more than {LIMIT_SECONDS:g} s"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(stages.pid, signal.SIGKILL)
        stages.wait()


def _trouble(folder: Path) -> str:
    """Which stage ended the others, and its last word."""
    told = (folder / "log").read_text().split()
    rank = told[-1] if told and told[-1].isdigit() else ""
    lines = (folder / (f"log.{rank}" if rank else "log")).read_text().splitlines()
    said = [line for line in lines if "Error" in line]
    where = f"stage {rank}" if rank else "before the stages began"
    return f"{where}: {one_line(said[-1] if said else 'it ended without a word', 300)}"


def _whole(torch: Any, target: TorchPipeline, program: Any, given: dict[str, Any]) -> dict[str, Any]:
    """What the whole program gives for the same micro-batches, one after another."""
    module = program.module()
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(target.train and bool(name))
    outputs: list[list[Any]] = []
    for n in range(target.microbatches):
        parts = [one.chunk(target.microbatches)[n] for one in given["inputs"]]
        with torch.enable_grad() if target.train else torch.no_grad():
            results = torch.utils._pytree.tree_leaves(_call(torch, module, program, parts))
            if target.train:
                loss = torch.nn.functional.mse_loss(results[0], given["target"].chunk(target.microbatches)[n])
                (loss / target.microbatches).backward()
        outputs.append([one.detach() for one in results])
    gradients = {name: one.grad for name, one in module.named_parameters() if one.grad is not None}
    return {"outputs": [torch.cat(parts) for parts in zip(*outputs, strict=True)], "gradients": gradients}


def _same(torch: Any, target: TorchPipeline, found: list[dict[str, Any]], wanted: dict[str, Any]) -> Answer:
    results = torch.utils._pytree.tree_leaves(found[-1]["outputs"])
    pairs = zip(results, wanted["outputs"], strict=True)
    difference = max(float((one.detach().double() - other.double()).abs().max()) for one, other in pairs)
    run = f"{len(found)} processes, {target.schedule}, {target.microbatches} micro-batches"
    text = f"{run}: outputs differ by {difference:.1e} at most"
    good = difference <= TOLERANCE
    if target.train:
        missing = sorted(name for name in wanted["gradients"] if not any(name in one["gradients"] for one in found))
        if missing:
            return Answer("failed", f"{text}; {missing[0]} has no gradient")
        both = [(stage["gradients"][name], one) for stage in found for name, one in wanted["gradients"].items()
                if name in stage["gradients"]]  # fmt: skip
        worst = max((float((mine - one).abs().max()) for mine, one in both), default=0.0)
        text += f", gradients of {len(wanted['gradients'])} parameters by {worst:.1e}"
        good = good and worst <= TOLERANCE
    return Answer("passed" if good else "failed", text)


def _placed(target: TorchPipeline, plan: Plan, torch: Any, count: int) -> Answer:
    """Every call of the program is in the stage of its device, by construction of what was run; say how many."""
    _, made = target.cut(plan, torch)
    held = ", ".join(f"stage {stage.number} on {stage.device} {len(stage.calls)} calls" for stage in made.stages)
    return Answer("passed" if len(made.stages) == count else "failed", held)
