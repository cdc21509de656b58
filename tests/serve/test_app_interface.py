"""The app's interface: models, devices, what fits, plans that are moved, scored, saved and taken along."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from serve_asgi import ask
from serve_place import Place

from stead.cli.main import exit_code
from stead.placing.place import place as find
from stead.plan import Plan
from stead.report.columns import View
from stead.serve.http_answers import VIEW_TYPE
from stead.serve.jobs import keep_plan
from stead.workloads.demo import demo_graph


@pytest.fixture
def plan(place: Place) -> str:
    """two_towers on two devices: 7.5 s."""
    return keep_plan(place.store, place.folder / "sample.json")


def box_of(place: Place, plan: str, name: str) -> int:
    boxes = View.from_bytes(ask(place.app, "GET", f"/api/plans/{plan}/view").body)["boxes"]
    return list(boxes).index(name)


def test_info_tells_what_there_is_to_choose_from(place: Place) -> None:
    info = ask(place.app, "GET", "/api/info").json
    assert "inception-v3" in info["zoo"]
    assert "auto" in info["solvers"]
    assert any("3090" in one["name"] for one in info["catalogue"])
    assert "updates" in info["options"]["gdp"]
    assert ".onnx" in next(one["suffixes"] for one in info["formats"] if one["name"] == "onnx")
    assert "smoke" in info["suites"]


def test_devices_are_checked_and_mistakes_come_with_candidates(place: Place) -> None:
    found = ask(place.app, "POST", "/api/clusters/check", {"devices": "2x 3090 + cpu 64GB"}).json
    assert [one["name"] for one in found["devices"]] == ["3090:0", "3090:1", "cpu"]
    assert len(found["links"]) == 6
    wrong = ask(place.app, "POST", "/api/clusters/check", {"devices": "3091"})
    assert (wrong.status, wrong.json["code"]) == (400, 2)
    assert "GeForce RTX 3090" in wrong.json["hint"]


def test_a_description_is_taken_along_as_a_file_and_comes_back(place: Place) -> None:
    text = "3090 + 3060; 3090->3060.bandwidth=8GB/s"
    toml = ask(place.app, "POST", "/api/clusters/toml", {"devices": text}).body.decode()
    kept = ask(place.app, "POST", "/api/clusters", {"toml": toml}).json["devices"]
    found = ask(place.app, "POST", "/api/clusters/check", {"devices": f"{kept}; 3060.reserve=2GiB"}).json
    assert next(one["bytes_per_second"] for one in found["links"]) == 8e9
    assert (found["file"], found["devices"][1]["reserve_bytes"]) == (True, 2 * 2**30)
    wrong = ask(place.app, "POST", "/api/clusters", {"toml": "[[device]]\nname = 3"})
    assert wrong.status == 400


def test_devices_may_come_as_the_object_of_a_device_file(place: Place) -> None:
    given = {"device": [{"name": "a", "model": "GeForce RTX 3090"}, {"name": "b", "model": "GeForce RTX 3060 12 GB"}]}
    found = ask(place.app, "POST", "/api/clusters/check", {"devices": given}).json
    assert [one["name"] for one in found["devices"]] == ["a", "b"]
    assert ask(place.app, "POST", "/api/clusters/check", {"devices": {"device": 3}}).status == 400


def test_links_say_which_kind_they_are_and_which_they_could_be(place: Place) -> None:
    text = "2x 3090 + 3060; 3090:0<->3090:1.kind=nvlink; 3090:0->3060.bandwidth=9GB/s"
    found = ask(place.app, "POST", "/api/clusters/check", {"devices": text}).json
    kinds = {f"{one['source']}->{one['target']}": (one["kind"], one["fabric"]) for one in found["links"]}
    assert kinds["3090:0->3090:1"] == ("nvlink", "nvlink")
    assert (kinds["3090:0->3060"], kinds["3060->3090:0"]) == (("", ""), ("pcie4x16", ""))
    assert {"pcie3x8", "ethernet10"} <= set(found["kinds"])


def test_changes_of_devices_that_are_gone_are_left_out_where_that_is_asked(place: Place) -> None:
    text = "2x 3090; 3090.reserve=1GiB; 3090:0->3090:1.latency=5us"
    strict = ask(place.app, "POST", "/api/clusters/check", {"devices": text})
    assert (strict.status, "no device '3090'" in strict.json["error"]) == (400, True)
    found = ask(place.app, "POST", "/api/clusters/check", {"devices": text, "repair": True}).json
    assert found["text"] == "2x 3090; 3090:0->3090:1.latency=5us"


def test_a_model_is_read_in_a_child_and_what_fits_is_known_before_solving(place: Place) -> None:
    model = ask(place.app, "POST", "/api/models", {"zoo": "lstm-grid?layers=2,steps=3,phase=train"}).json
    assert model["facts"]["operators"] > 10
    rules = ask(place.app, "POST", "/api/fit", {"model": model["model"], "devices": "3090,3060"}).json["rules"]
    assert [rule["rule"] for rule in rules][:2] == ["single:3090", "single:3060"]
    first = rules[0]["devices"]
    assert first[0]["peak"] >= first[0]["weights"] > 0 == first[1]["peak"]


def test_a_file_below_the_root_that_is_no_model_is_one_sentence(place: Place) -> None:
    (place.root / "notes.json").write_text("{}")
    answer = ask(place.app, "POST", "/api/models", {"path": "notes.json"})
    assert answer.status == 400
    assert "notes.json" in answer.json["error"]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/api/models", {}),
        ("POST", "/api/models", {"zoo": "x", "options": {"output": 1}}),
        ("POST", "/api/fit", {"model": 3}),
        ("POST", "/api/jobs", {"verb": "rm"}),
        ("POST", "/api/jobs", []),
    ],
)
def test_bad_requests_are_answered_with_a_sentence(place: Place, method: str, path: str, body: Any) -> None:
    answer = ask(place.app, method, path, body)
    assert (answer.status, bool(answer.json["error"])) == (400, True)


@pytest.mark.parametrize("path", ["/api/plans/nothing", "/api/plans/..%2f..%2fx/view", "/api/jobs/nothing"])
def test_what_is_not_known_is_not_there(place: Place, path: str) -> None:
    assert ask(place.app, "GET", path).status == 404


def test_a_move_is_scored_by_the_simulator(place: Place, plan: str) -> None:
    box = box_of(place, plan, "head")
    on = Plan.load(place.folder / "sample.json").placement.devices
    scored = ask(place.app, "POST", f"/api/plans/{plan}/score", {"moves": [[box, int(1 - on[4])]]}).json
    assert (scored["feasible"], scored["seconds"], scored["change"]) == (True, 7.5, 0.0)  # by symmetry
    everything = ask(place.app, "POST", f"/api/plans/{plan}/score", {"moves": [[0, 0]]}).json
    assert (everything["seconds"], everything["change"]) == (9.0, 1.5)


def test_a_move_may_name_operators_from_one_to_another(place: Place, plan: str) -> None:
    everything = ask(place.app, "POST", f"/api/plans/{plan}/score", {"moves": [[[0, 4], 0]]}).json
    assert (everything["seconds"], everything["change"]) == (9.0, 1.5)


def test_moves_that_make_no_sense_are_refused(place: Place, plan: str) -> None:
    boxes: list[Any] = [None, [[0]], [[0, 9]], [[99999, 0]], [["0", 0]], [[0, 0.5]], [[0, True]]]
    ranges = [[[[0, 99], 0]], [[[3, 2], 0]], [[[0, True], 0]], [[[0], 0]]]
    for moves in boxes + ranges:
        assert ask(place.app, "POST", f"/api/plans/{plan}/score", {"moves": moves}).status == 400


def test_a_moved_plan_can_be_looked_at_and_saved(place: Place, plan: str) -> None:
    shown = View.from_bytes(ask(place.app, "POST", f"/api/plans/{plan}/trace", {"moves": [[0, 0]]}).body)
    assert shown.header["value"] == 9.0
    saved = ask(place.app, "POST", f"/api/plans/{plan}/save", {"moves": [[0, 0]], "name": "all on one"}).json["plan"]
    data = ask(place.app, "GET", f"/api/plans/{saved}/file").body
    (place.folder / "again.json").write_bytes(data)
    again = Plan.load(place.folder / "again.json")
    assert (again.solution.objective_seconds, again.solution.found_by) == (9.0, "by hand")
    assert again.solution.bound_seconds <= 7.5
    assert ask(place.app, "GET", "/api/plans").json["plans"][0]["name"] == "all on one"


def test_a_move_to_where_there_is_no_room_says_what_is_short(place: Place) -> None:
    made = find(demo_graph(), "3090,3060", evaluations=200)
    made.save(place.root / "demo.json")
    plan = ask(place.app, "POST", "/api/plans", {"path": "demo.json"}).json["plan"]
    scored = ask(place.app, "POST", f"/api/plans/{plan}/score", {"moves": [[0, 1]]}).json
    assert scored["feasible"] is False
    assert scored["short"]["3060"] > 2**30


def test_sliders_are_what_if(place: Place, plan: str) -> None:
    found = ask(place.app, "POST", f"/api/plans/{plan}/what-if", {"set": ["links.bandwidth=2x"]}).json
    assert found == {"seconds": 6.5, "change": -1.0, "trouble": None}
    assert ask(place.app, "POST", f"/api/plans/{plan}/what-if", {"set": ["links.colour=2x"]}).status == 400
    alone = {"set": ["links.bandwidth=2x"], "moves": [[0, 0]]}
    assert ask(place.app, "POST", f"/api/plans/{plan}/what-if", alone).json["seconds"] == 9.0  # nothing crosses


def test_the_next_level_of_a_box_is_there_on_demand(place: Place, plan: str) -> None:
    whole = ask(place.app, "GET", f"/api/plans/{plan}/boxes").json
    assert (whole["under"], sum(row["operators"] for row in whole["boxes"])) == (0, 5)
    box = box_of(place, plan, "head")
    (row,) = ask(place.app, "GET", f"/api/plans/{plan}/boxes?under={box}").json["boxes"]
    assert (row["name"], row["operators"]) == ("head", 1)
    assert ask(place.app, "GET", f"/api/plans/{plan}/boxes?under=999").status == 400


def test_an_operator_is_explained_as_the_command_explains_it(
    place: Place, plan: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = ask(place.app, "POST", f"/api/plans/{plan}/explain", {"name": "head"}).json["operators"]
    assert exit_code(["explain", str(place.folder / "sample.json"), "head", "--json"]) == 0
    assert said == json.loads(capsys.readouterr().out)
    assert ask(place.app, "POST", f"/api/plans/{plan}/explain", {"name": "nobody"}).status == 400


def test_what_a_plan_can_be_exported_to_comes_with_why_not(place: Place, plan: str) -> None:
    targets = {one["name"]: one for one in ask(place.app, "GET", f"/api/plans/{plan}/targets").json["targets"]}
    assert targets["dot"]["refusal"] is None
    assert targets["llama"]["refusal"]


def test_the_time_line_is_taken_along_for_perfetto(place: Place, plan: str) -> None:
    packed = ask(place.app, "GET", f"/api/plans/{plan}/trace.json")
    assert packed.headers["content-disposition"] == 'attachment; filename="trace.json.gz"'
    assert json.loads(gzip.decompress(packed.body))["traceEvents"]


def test_a_plan_is_taken_along_as_page_and_for_a_runtime(
    place: Place, plan: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = ask(place.app, "GET", f"/api/plans/{plan}/report.html")
    assert page.headers["content-disposition"] == 'attachment; filename="report.html"'
    assert b"<html" in page.body
    packed = ask(place.app, "GET", f"/api/plans/{plan}/export?to=trace")
    assert packed.status == 200, packed.body
    assert len(zipfile.ZipFile(io.BytesIO(packed.body)).namelist()) >= 2
    refused = ask(place.app, "GET", f"/api/plans/{plan}/export?to=vlm")
    assert (refused.status, "vllm" in json.dumps(refused.json)) == (400, True)


def test_a_deleted_plan_is_gone(place: Place, plan: str) -> None:
    assert ask(place.app, "DELETE", f"/api/plans/{plan}").status == 200
    assert ask(place.app, "GET", f"/api/plans/{plan}").status == 404
    assert not (place.folder / "home" / "plans" / f"{plan}.json").exists()


def test_hovering_over_a_large_plan_takes_little_time(place: Place) -> None:
    """CPU time of a score at 5,000 operators, the median of some: far below what a hand would notice."""
    import time

    from stead.serve.sessions import Session

    made = find("zoo:lstm-grid?operators=5000,phase=train", "2x 3090", solver="balanced", baselines=False)
    session = Session(made)
    session.score([(1, 1)])
    spent = []
    for device in (0, 1) * 5:
        began = time.process_time()
        session.score([(1, device)])
        spent.append(time.process_time() - began)
    assert float(np.median(spent)) < 0.05


def test_names_out_of_files_come_as_data(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    evil = "<img src=x onerror=alert(1)>"
    keep_plan(place.store, place.folder / "sample.json", name=evil)
    answer = ask(place.app, "GET", "/api/plans")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json["plans"][0]["name"] == evil
    assert VIEW_TYPE.startswith("application/")


def test_home_of_a_newer_stead_is_refused(tmp_path: Path) -> None:
    from stead.errors import BadInput
    from stead.serve.store import Store

    store = Store(tmp_path)
    store._run("UPDATE settings SET value='99' WHERE key='version'")
    store.close()
    with pytest.raises(BadInput, match="newer stead"):
        Store(tmp_path)
