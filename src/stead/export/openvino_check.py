"""A process that compiles an exported model with HETERO, runs it and writes down what happened.

    python -m stead.export.openvino_check JOB.json       # by openvino; writes answer.json beside it

OpenVINO 2026.4.1 leaves the thread that compiled for HETERO with an alternate signal stack that it frees later: the
next signal, such as Ctrl-C, then ends the process with a segmentation fault. So it runs where nothing can be lost.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from stead.errors import PlacementNotHonoured
from stead.export.check_process import answer_job
from stead.run.executor import Worker
from stead.run.openvino.hetero import compile_hetero, plugins_for, properties, read_back, set_affinities
from stead.run.openvino.ir import openvino, read_ir


def main(path: str) -> None:
    """Do a job and write its answer."""
    job = json.loads(Path(path).read_text())
    answer_job(path, _answer(Path(path).parent, job))


def _answer(folder: Path, job: dict[str, Any]) -> dict[str, Any]:
    """The largest difference of outputs, and either `wrong` or how many layers ran in how many submodels on which."""
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
    differences = (float(np.abs(a - b).max(initial=0.0)) for a, b in zip(found, wanted, strict=True))
    answer = {"difference": max(differences, default=0.0), "plugins": plugins}
    try:
        seen = read_back(compiled, request.get_profiling_info(), own, told)
    except PlacementNotHonoured as error:
        return {**answer, "wrong": str(error)}
    return {**answer, "layers": seen.layers, "submodels": seen.submodels, "ran": sorted(set(seen.devices))}


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
