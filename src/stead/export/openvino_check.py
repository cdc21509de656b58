"""A process that compiles an exported model with HETERO, runs it and writes down what happened.

    python -m stead.export.openvino_check JOB.json       # by openvino; writes answer.json beside it

OpenVINO 2026.4.1 leaves the thread that compiled for HETERO with an alternate signal stack that it frees later: the
next signal, such as Ctrl-C, then ends the process with a segmentation fault. So it runs where nothing can be lost.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stead.errors import PlacementNotHonoured
from stead.export.check_process import answer_job
from stead.export.openvino_stages import TABLE, run_stages
from stead.run.executor import Worker
from stead.run.openvino.hetero import compile_hetero, plugins_for, properties, read_back, set_affinities
from stead.run.openvino.ir import openvino, read_ir

TOLERANCE = 1e-4  # of results
SOFTMAX, SHAPES_ONLY = "Softmax", ("Reshape", "Squeeze", "Unsqueeze", "Transpose")
Array = NDArray[Any]


def main(path: str) -> None:
    """Do a job and write its answer."""
    job = json.loads(Path(path).read_text())
    answer_job(path, _answer(Path(path).parent, job))


def _answer(folder: Path, job: dict[str, Any]) -> dict[str, Any]:
    """The largest difference of outputs, and either `wrong` or how many layers ran in how many submodels on which.

    `relative` is that of logits where rounding them decides about the outputs.
    """
    core = openvino().Core()
    placed: dict[str, str] = json.loads((folder / "affinity.json").read_text())
    used = sorted(set(placed.values()))
    workers = [Worker(name, (0,)) for name in used]
    plugins = dict(zip(used, plugins_for(core, workers), strict=True))
    told = {plugins[one.name]: properties(core, plugins[one.name], one) for one in workers}
    model = core.read_model(folder / "model.xml")
    own = {name: plugins[device] for name, device in placed.items()}
    set_affinities(model, own)
    compiled = compile_hetero(core, model, told)
    given = _inputs(model)
    request = compiled.create_infer_request()
    found = [np.array(value) for value in request.infer(given).values()]
    unplaced = read_ir(Path(job["model"]), {name: tuple(shape) for name, shape in job["shapes"].items()})
    whole = core.compile_model(unplaced, "CPU", told[plugins[used[0]]])
    wanted = [np.array(value) for value in whole.create_infer_request().infer(given).values()]
    difference, relative = compared(found, wanted), None
    if difference > TOLERANCE:
        placed_model, whole_model = core.read_model(folder / "model.xml"), unplaced.clone()
        set_affinities(placed_model, own)
        if show_logits(placed_model) and show_logits(whole_model):
            runs = (
                compile_hetero(core, placed_model, told),
                core.compile_model(whole_model, "CPU", told[plugins[used[0]]]),
            )
            logits = ([np.array(one) for one in run(given).values()] for run in runs)
            relative = compared_before_softmax(*logits)
    answer = {"difference": difference, "relative": relative, "plugins": plugins}
    if (folder / TABLE).is_file():
        count, given_by_stages = run_stages(folder, core, plugins, given)
        answer |= {"stages": count, "chained": compared(given_by_stages, wanted)}
    try:
        seen = read_back(compiled, request.get_profiling_info(), own, told)
    except PlacementNotHonoured as error:
        return {**answer, "wrong": str(error)}
    return {**answer, "layers": seen.layers, "submodels": seen.submodels, "ran": sorted(set(seen.devices))}


def compared(found: Sequence[Array], wanted: Sequence[Array]) -> float:
    """The largest difference of results."""
    differences = (float(np.abs(a - b).max(initial=0.0)) for a, b in zip(found, wanted, strict=True))
    return max(differences, default=0.0)


def show_logits(model: Any) -> bool:
    """Replace every result that is a softmax by what that reads; False where a result is none."""
    for result in model.get_results():
        maker = result.input_value(0).get_node()
        while maker.get_type_name() in SHAPES_ONLY:
            maker = maker.input_value(0).get_node()
        if maker.get_type_name() != SOFTMAX:
            return False
        result.input(0).replace_source_output(maker.input_value(0))
    model.validate_nodes_and_infer_types()
    return True


def compared_before_softmax(found: Sequence[Array], wanted: Sequence[Array]) -> float | None:
    """The largest difference of logits by their size, where rounding them alone decides about the softmax.

    That is so where neighbouring floating-point numbers of that size are further apart than the tolerance: a softmax
    of them differs as much, whoever computes it. None where logits are smaller; then the softmax itself counts.
    """
    worst = 0.0
    for a, b in zip(found, wanted, strict=True):
        size = np.abs(b).max(initial=b.dtype.type(0))
        if not np.isfinite(size) or np.spacing(size) <= TOLERANCE:
            return None
        worst = max(worst, float(np.abs(a - b).max() / size))
    return worst


def _inputs(model: Any) -> list[Any]:
    random = np.random.default_rng(0)
    made = []
    for parameter in model.get_parameters():
        dtype = parameter.get_element_type().to_dtype()
        shape = list(parameter.output(0).get_shape())
        drawn = random.standard_normal(shape) if np.issubdtype(dtype, np.floating) else random.integers(0, 2, shape)
        made.append(drawn.astype(dtype))
    return made


if __name__ == "__main__":
    main(sys.argv[1])
