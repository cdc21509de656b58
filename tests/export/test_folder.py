"""The folder of an export: complete, replaced as a whole, and never over what somebody else wrote."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from stead.cluster.devices import Host
from stead.costs import Costs
from stead.errors import BadInput
from stead.export import Bundle
from stead.export.folder import write_folder
from stead.plan import Plan
from stead.problem import Problem
from stead.testing import tiny_layers
from stead.testing.exporters import plan_of


@pytest.fixture
def plan() -> Plan:
    problem = tiny_layers()
    return plan_of(problem, [0] * len(problem.graph))


BUNDLE = Bundle({"a.txt": "one", "deep/b.bin": b"\x00"}, "load it", versions={"consumer": "1.2"})


def test_a_folder_holds_files_plan_command_and_versions(tmp_path: Path, plan: Plan) -> None:
    write_folder(tmp_path / "out", "mine", plan, BUNDLE)
    assert sorted(path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*.*")) == [
        "README.txt", "a.txt", "deep/b.bin", "plan.json", "versions.json",
    ]  # fmt: skip
    assert "load it" in (tmp_path / "out" / "README.txt").read_text()
    assert Plan.load(tmp_path / "out" / "plan.json").placement == plan.placement
    assert json.loads((tmp_path / "out" / "versions.json").read_text())["checked_with"] == {"consumer": "1.2"}


def test_an_export_of_a_plan_over_hosts_says_which_machine_has_a_device(tmp_path: Path) -> None:
    given = tiny_layers()
    names = given.cluster.names
    cluster = replace(given.cluster, hosts=tuple(Host(f"host-{name}", (name,)) for name in names))
    problem = Problem(given.graph, cluster, Costs(given.graph, cluster, given.costs.seconds))
    devices = [0] * (len(problem.graph) - 1) + [1]
    write_folder(tmp_path / "out", "mine", plan_of(problem, devices), BUNDLE)
    hosts = json.loads((tmp_path / "out" / "versions.json").read_text())["hosts"]
    assert hosts == {name: f"host-{name}" for name in names[:2]}


def test_an_export_replaces_an_earlier_one_and_leaves_nothing_of_it(tmp_path: Path, plan: Plan) -> None:
    write_folder(tmp_path, "mine", plan, BUNDLE)
    write_folder(tmp_path, "mine", plan, Bundle({"a.txt": "two"}, "load it"))
    assert (tmp_path / "a.txt").read_text() == "two"
    assert not (tmp_path / "deep" / "b.bin").exists()


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path, plan: Plan) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(BadInput, match="no export of stead; choose a new or empty folder"):
        write_folder(tmp_path, "mine", plan, BUNDLE)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("name", ["a.txt", "new.txt"])
def test_a_file_that_was_changed_or_added_is_left_alone(name: str, tmp_path: Path, plan: Plan) -> None:
    write_folder(tmp_path, "mine", plan, BUNDLE)
    (tmp_path / name).write_text("edited")
    with pytest.raises(BadInput, match=f"{name}.*(was changed after|is no file of an export)"):
        write_folder(tmp_path, "mine", plan, Bundle({"a.txt": "2", "new.txt": "2"}, "load it"))
    assert (tmp_path / name).read_text() == "edited"
    assert (tmp_path / "deep" / "b.bin").exists()


@pytest.mark.parametrize("name", ["/etc/x", "../x", "a/../../x", "versions.json", ""])
def test_no_file_leaves_the_folder(name: str, tmp_path: Path, plan: Plan) -> None:
    with pytest.raises(BadInput, match="no name of a file inside"):
        write_folder(tmp_path / "out", "mine", plan, Bundle({name: "x"}, "load it"))
    assert not (tmp_path / "out").exists()
