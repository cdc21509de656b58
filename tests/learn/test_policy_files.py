"""What a policy file holds, for all five papers: the network that the pages speak of, and which options are left."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from small import pair  # noqa: E402

from stead.costs import Roofline  # noqa: E402
from stead.errors import BadInput  # noqa: E402
from stead.learn.gdp.method import GDP, SHIPPED  # noqa: E402
from stead.learn.ground import tensor_file  # noqa: E402
from stead.learn.ground.ablation import varied  # noqa: E402
from stead.learn.ground.policy import read_policy  # noqa: E402
from stead.learn.ground.solver import train_policy  # noqa: E402
from stead.learn.ground.torch_state import network_arrays  # noqa: E402
from stead.learn.ground.training_loop import Loop  # noqa: E402
from stead.learn.ground.training_run import Run  # noqa: E402
from stead.problem import Latency, Problem  # noqa: E402
from stead.solvers import solver  # noqa: E402
from stead.solvers.registry import solver_class  # noqa: E402
from stead.workloads.synthetic import synthetic  # noqa: E402

DOCS = Path(__file__).parents[2] / "docs"
KEEPS = {"colocrl": True, "hdp": True, "placeto": False, "gdp": True, "hsdag": False}  # the best network, not the last
QUICK = {"gdp": {"policy": "", "samples": 8, "imitation": 0}, "placeto": {"policy": "", "episodes": 2}}


def towers() -> Problem:
    graph, cluster = synthetic("towers"), pair()
    return Problem(graph, cluster, Roofline().costs(graph, cluster), objective=Latency())


@pytest.mark.parametrize("name", KEEPS)
def test_a_policy_file_holds_the_network_that_its_page_describes(name: str, tmp_path: Path) -> None:
    method, path = solver(name, **QUICK.get(name, {})), tmp_path / "p.safetensors"
    loop = train_policy(method, [towers()], ["towers"], Run(path, 3), seed=1)
    assert isinstance(loop, Loop)  # one loop for all of them
    arrays, document = tensor_file.load(path)
    network = method.network(2, 0)
    wanted = {f"network.{name}": tuple(value.shape) for name, value in network.state_dict().items()}
    assert {name: array.shape for name, array in arrays.items()} == wanted
    meant = loop.kept if KEEPS[name] else network_arrays(loop.module)
    assert arrays.keys() == meant.keys()
    assert all(np.array_equal(arrays[one], meant[one]) for one in arrays)
    count = f"{sum(value.numel() for value in network.parameters()):,}"
    page = (DOCS / "learned/index.md").read_text().splitlines()
    rows = [line for line in page if line.startswith(f"| `{name}` | of ")]
    assert [row.endswith(f"| {count} |") for row in rows] == [True]
    assert [("were best" in row) for row in rows] == [KEEPS[name]]
    assert f"{count} parameters" in (DOCS / f"learned/{name}.md").read_text()
    again, _, devices, _ = read_policy(path, type(method))
    assert (again.network_options(), devices) == (method.network_options(), 2)
    assert document["options"] == method.network_options()


def test_the_policy_of_the_package_has_the_size_that_the_page_says() -> None:
    method, arrays, _, _ = read_policy(SHIPPED, GDP)
    assert not any((method.parts.priorities, method.parts.positions, method.parts.ordinals))
    assert f"{sum(array.size for array in arrays.values()):,}." in (DOCS / "learned/gdp.md").read_text()


@pytest.mark.parametrize("name", KEEPS)
def test_what_only_experiments_vary_is_no_option_and_says_so(name: str) -> None:
    kind = solver_class(name)
    options = {one.name for one in fields(kind)}
    assert len(options) <= 13
    assert not options & kind.FORMER.keys()
    for part in fields(kind().parts):
        with pytest.raises(BadInput, match=rf"{name}' has no option '{part.name}' any more; experiments vary it"):
            solver(name, **{part.name: "1"})


def test_parts_are_varied_beside_options() -> None:
    method = varied(GDP(policy=""), attention=False, updates=7)
    assert (method.parts.attention, method.updates, method.policy) == (False, 7, "")
    assert varied(method, samples=3).parts == method.parts
    with pytest.raises(TypeError, match="attentoin"):
        varied(GDP(), attentoin=False)


def test_a_file_of_another_format_is_refused(tmp_path: Path) -> None:
    arrays, document = tensor_file.load(SHIPPED)
    newer = tmp_path / "newer.safetensors"
    tensor_file.save(newer, arrays, {**document, "trained": {**document["trained"], "format": 2}})  # type: ignore[dict-item]
    with pytest.raises(BadInput, match="has format 2, this stead reads 1; train it again"):
        read_policy(newer, GDP)
