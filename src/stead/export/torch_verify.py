"""Whether the stages of a pipeline give what the whole program gives: torch runs them, one process each."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stead.export.base import Answer, Bundle, Verdict, did_not_run
from stead.export.check_process import write_files
from stead.plan import Plan
from stead.printing.wording import one_line
from stead.readers.torch.exported import torch_package

if TYPE_CHECKING:
    from stead.export.torch_pipeline import TorchPipeline

LIMIT_SECONDS = 300.0
TOLERANCE = 1e-5
START = (
    "import datetime, os, sys, torch.distributed as d; "
    "d.init_process_group('gloo', init_method='file://' + sys.argv[1], rank=int(os.environ['RANK']), "
    "world_size=int(os.environ['WORLD_SIZE']), timeout=datetime.timedelta(seconds=240)); "
    "sys.path.insert(0, sys.argv[2]); import torch; torch.set_num_threads(1); import run; "
    "run.main(sys.argv[3], sys.argv[4]); d.barrier(); d.destroy_process_group()"
)


def verified(target: TorchPipeline, plan: Plan, bundle: Bundle) -> Verdict:
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
    return Verdict(_same(torch, target, found, wanted), _placed(target, plan, torch, count), _memory())


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
    """Start a process for each stage and wait; empty, or what went wrong. No process is left behind."""
    common = {**os.environ, "WORLD_SIZE": str(count), "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    arguments = [str(folder / "store"), str(folder), str(folder / "inputs.pt"), str(folder / "outputs.pt")]
    running: list[subprocess.Popen[str]] = []
    logs = [folder / f"log.{k}" for k in range(count)]
    try:
        for k in range(count):
            with logs[k].open("w") as log:
                running.append(
                    subprocess.Popen(
                        [sys.executable, "-W", "ignore", "-c", START, *arguments], stdout=log, stderr=log, text=True,
                        env={**common, "RANK": str(k), "LOCAL_RANK": str(k)},
                    )
                )
        end = time.monotonic() + LIMIT_SECONDS
        while any(one.poll() is None for one in running):
            if any(one.poll() not in (None, 0) for one in running):
                break
            if time.monotonic() > end:
                return f"the pipeline took more than {LIMIT_SECONDS:g} s"
            time.sleep(0.05)
        bad = next((k for k, one in enumerate(running) if one.poll() not in (None, 0)), None)
        if bad is None:
            return ""
        lines = [line for line in logs[bad].read_text().splitlines() if line.strip() and "Error" in line]
        return f"stage {bad}: {one_line(lines[-1] if lines else 'it ended without a word', 300)}"
    finally:
        for one in running:
            if one.poll() is None:
                one.kill()
            one.wait()


def _whole(torch: Any, target: TorchPipeline, program: Any, given: dict[str, Any]) -> dict[str, Any]:
    """What the whole program gives for the same micro-batches, one after another."""
    module = program.module()
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(target.train and bool(name))
    outputs = []
    for n in range(target.microbatches):
        parts = [one.chunk(target.microbatches)[n] for one in given["inputs"]]
        with torch.enable_grad() if target.train else torch.no_grad():
            result = torch.utils._pytree.tree_leaves(_call(torch, module, program, parts))[0]
            if target.train:
                loss = torch.nn.functional.mse_loss(result, given["target"].chunk(target.microbatches)[n])
                (loss / target.microbatches).backward()
        outputs.append(result.detach())
    gradients = {name: one.grad for name, one in module.named_parameters() if one.grad is not None}
    return {"outputs": torch.cat(outputs), "gradients": gradients}


def _same(torch: Any, target: TorchPipeline, found: list[dict[str, Any]], wanted: dict[str, Any]) -> Answer:
    result = torch.utils._pytree.tree_leaves(found[-1]["outputs"])[0]
    difference = float((result.detach() - wanted["outputs"]).abs().max())
    run = f"{len(found)} processes, {target.schedule}, {target.microbatches} micro-batches"
    text = f"{run}: outputs differ by {difference:.1e} at most"
    good = difference <= TOLERANCE
    if target.train:
        missing = sorted(name for name in wanted["gradients"] if not any(name in one["gradients"] for one in found))
        if missing:
            return Answer("failed", f"{text}; {missing[0]} has no gradient")
        pairs = [(stage["gradients"][name], one) for stage in found for name, one in wanted["gradients"].items()
                 if name in stage["gradients"]]  # fmt: skip
        worst = max((float((mine - one).abs().max()) for mine, one in pairs), default=0.0)
        text += f", gradients of {len(wanted['gradients'])} parameters by {worst:.1e}"
        good = good and worst <= TOLERANCE
    return Answer("passed" if good else "failed", text)


def _placed(target: TorchPipeline, plan: Plan, torch: Any, count: int) -> Answer:
    """Every call of the program is in the stage of its device, by construction of what was run; say how many."""
    _, made = target.cut(plan, torch)
    held = ", ".join(f"stage {stage.number} on {stage.device} {len(stage.calls)} calls" for stage in made.stages)
    return Answer("passed" if len(made.stages) == count else "failed", held)
