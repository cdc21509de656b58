"""The script that comes with exported stages; also what `verify` runs."""

RUN_TEXT = '''"""Runs the stages of this folder as a pipeline, one process for each stage.

    torchrun --nproc-per-node N run.py inputs.pt [outputs.pt]

inputs.pt is what torch.save wrote: a tuple of tensors whose first dimension is micro-batches times that of the exported
program. Where parameters are trained, {"inputs": ..., "target": ...} gives losses and gradients, too; a weight that
several stages read is held by each of them, with the gradient of all.
"""

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

HERE = Path(__file__).parent
SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}


def loss_of(output, target):
    """Of the first result, where there are several."""
    return torch.nn.functional.mse_loss(output[0] if isinstance(output, tuple | list) else output, target)


def load(table, rank, device, trains):
    """A stage as a module on a device, in a pipeline.

    What it takes and gives is told: torch would run it on noise to find out, and noise is no index of an embedding.
    """
    program = torch.export.load(HERE / f"stage_{rank}.pt2")
    values = {node.name: node.meta["val"] for node in program.graph.nodes if "val" in node.meta}
    signature, told = program.graph_signature, table["stages"][rank]

    def empty(names, described):
        return tuple(
            torch.empty_like(values[name], device="meta", requires_grad=trains and one["grad"])
            for name, one in zip(names, described, strict=True)
        )

    takes, gives = empty(signature.user_inputs, told["inputs"]), empty(signature.user_outputs, told["outputs"])
    if device.type != "cpu":
        from torch.export.passes import move_to_device_pass

        program = move_to_device_pass(program, str(device))
    module = program.module().to(device)
    return module, PipelineStage(module, rank, table["n"], device, input_args=takes, output_args=gives)


def groups_of(table):
    """Weights that several stages hold, with the group of their processes; every process has to make all groups."""
    return [(one, dist.new_group(one["stages"])) for one in table["shared"]]


def add_up(module, groups, rank):
    """Gives every copy of a weight the gradient of all its copies, so that equal optimisers keep them equal."""
    held = dict(module.named_parameters(remove_duplicate=False))
    for one, group in groups:
        if rank in one["stages"]:
            weight = next(held[name] for name in one["names"] if name in held)
            weight.grad = torch.zeros_like(weight) if weight.grad is None else weight.grad.contiguous()
            dist.all_reduce(weight.grad, group=group)


def main(inputs, outputs=None, loss_fn=loss_of):
    table = json.loads((HERE / "stages.json").read_text())
    rank, count = int(os.environ["RANK"]), table["n"]
    own = int(os.environ.get("LOCAL_RANK", 0))
    device = torch.device("cuda", own) if torch.cuda.is_available() else torch.device("cpu")
    given = torch.load(inputs)
    given = given if isinstance(given, dict) else {"inputs": given}
    started = dist.is_initialized()
    if not started:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    assert dist.get_world_size() == count, f"{count} stages need {count} processes"
    trains = table["train"] and "target" in given
    module, stage = load(table, rank, device, trains)
    schedule = SCHEDULES[table["schedule"]](stage, table["microbatches"], loss_fn=loss_fn if trains else None)
    step = schedule.step if trains else schedule.eval
    groups = groups_of(table) if trains else []
    arguments = [one.to(device) for one in given["inputs"]] if rank == 0 else []
    named = {"target": given["target"].to(device), "losses": []} if trains and rank == count - 1 else {}
    with torch.enable_grad() if trains else torch.no_grad():
        result = step(*arguments, **named)
    found = {"outputs": result if rank == count - 1 else None}
    if trains:
        add_up(module, groups, rank)
        held = module.named_parameters(remove_duplicate=False)
        found["gradients"] = {name: one.grad for name, one in held if one.grad is not None}
        found["losses"] = named.get("losses")
    if outputs:
        torch.save(found, f"{outputs}.{rank}")
    if not started:
        dist.barrier()
        dist.destroy_process_group()
    return found


if __name__ == "__main__":
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", 1)))
    main(*sys.argv[1:])
'''
