"""Jobs of the app: children that finish, stop, crash, are killed, outlive the server, and are resumed."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from serve_asgi import PORT, TOKEN, ask
from serve_place import Place

from stead.errors import BadInput
from stead.serve import jobs as jobs_module
from stead.serve.app import Settings, make_app
from stead.serve.commands import command_for
from stead.serve.jobs import Jobs, keep_plan


def over(place: Place, job: str) -> Any:
    place.run(lambda: place.state(job) not in ("queued", "running", "stopping"))
    return place.store.job(job)


def test_a_job_that_finishes_leaves_its_plan_and_its_events(place: Place) -> None:
    job = over(place, place.submit("finish"))
    assert (job["state"], job["exit"]) == ("done", 0)
    assert [plan["seconds"] for plan in place.store.plans()] == [7.5]
    kinds = [row["kind"] for row in place.store.events_after(0, job["id"])]
    assert kinds == ["job", "job", "begin", "improvement", "end", "job"]  # without heartbeats and placements


def test_stopping_a_job_keeps_its_best(place: Place) -> None:
    name = place.submit("wait")
    place.run(lambda: any(row["kind"] == "improvement" for row in place.store.events_after(0, name)))
    place.jobs.stop(name)
    assert over(place, name)["state"] == "stopped"
    assert len(place.store.plans()) == 1


def test_a_child_that_does_not_stop_is_killed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_module, "KILL_SECONDS", 0.2)
    name = place.submit("stubborn")
    place.run(lambda: any(row["kind"] == "improvement" for row in place.store.events_after(0, name)))
    place.jobs.stop(name)
    job = over(place, name)
    assert (job["state"], job["exit"], job["message"]) == ("stopped", -9, "killed: it did not stop")


def test_a_child_that_takes_too_long_is_killed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_module, "GRACE_SECONDS", -4.7)
    job = over(place, place.submit("stubborn"))
    assert (job["state"], job["message"]) == ("lost", "killed: it took too long")


def test_a_failed_job_says_what_the_command_said(place: Place) -> None:
    job = over(place, place.submit("bad"))
    assert (job["state"], job["message"]) == ("failed", "no device '3099'; did you mean '3090'?")


def test_remedies_come_with_a_question_that_has_no_answer(place: Place) -> None:
    job = over(place, place.submit("infeasible"))
    assert (job["state"], job["message"], job["fixes"]) == ("failed", "nothing fits", ["--batch 1 (now 2)"])


def test_a_crashed_job_is_lost_and_goes_on_from_its_last_placement(place: Place) -> None:
    job = over(place, place.submit("crash"))
    assert job["state"] == "lost"
    again = place.store.job(place.jobs.resume(job["id"]))
    assert again is not None
    assert again["request"]["start"] == str(place.folder / "home" / "jobs" / job["id"] / "events.jsonl")
    begun = over(place, again["id"])
    events = place.store.events_after(0, begun["id"])
    assert [json.loads(row["body"])["start"] for row in events if row["kind"] == "begin"] == [True]


def test_training_that_was_cut_goes_on_from_its_checkpoint(place: Place) -> None:
    asked = {"policy": "crash", "updates": 3, "graphs": ["zoo:x"], "devices": "3090"}
    job = over(place, place.jobs.submit("train", asked))
    (place.folder / "home" / "jobs" / job["id"] / "policy.checkpoint.safetensors").write_bytes(b"kept")
    again = place.jobs.resume(job["id"])
    assert (place.folder / "home" / "jobs" / again / "policy.checkpoint.safetensors").read_bytes() == b"kept"
    assert "--resume" in over(place, again)["command"]


def test_a_benchmark_that_was_cut_goes_on_with_its_journal(place: Place) -> None:
    asked = {"suite": "smoke", "solvers": "auto,climb", "only": ["chain"], "budgets": "1"}
    job = over(place, place.jobs.submit("bench", asked))
    wanted = ["stead", "bench", "--suite", "smoke", "--solvers", "auto,climb", "--budgets", "1", "--only", "chain"]
    assert json.loads(job["command"]) == [*wanted, "--json", "bench.jsonl"]
    (place.jobs.folder(job["id"]) / "bench.jsonl").write_text("{}\n")
    again = place.jobs.resume(job["id"])
    assert (place.jobs.folder(again) / "bench.jsonl").read_text() == "{}\n"
    assert json.loads(over(place, again)["command"])[-2:] == ["--resume", "bench.jsonl"]


def test_a_verification_that_says_no_has_been_done(place: Place) -> None:
    job = over(place, place.jobs.submit("verify", {"plan_file": "disagree", "to": "hf"}))
    assert (job["state"], job["exit"]) == ("done", 4)
    assert ask(place.app, "GET", f"/api/jobs/{job['id']}/result").json["document"] == {"failed": True}
    bad = over(place, place.jobs.submit("verify", {"plan_file": "bad", "to": "hf"}))
    assert bad["state"] == "failed"


def test_an_export_is_a_job_whose_files_command_and_verdict_can_be_asked_for(place: Place) -> None:
    place.jobs = Jobs(place.store)  # the commands themselves
    place.app = make_app(Settings(place.folder / "home", place.root, PORT), store=place.store, jobs=place.jobs,
                         token=TOKEN)  # fmt: skip
    plan = keep_plan(place.store, place.folder / "sample.json")
    asked = {"plan": plan, "from": plan, "to": "dot", "legalize": False}
    job = over(place, ask(place.app, "POST", "/api/jobs", {"verb": "export", **asked}).json["job"])
    assert (job["state"], job["message"]) == ("done", "")
    shown = ask(place.app, "GET", f"/api/jobs/{job['id']}").json["command"]
    assert (shown[:2], shown[3:]) == (["stead", "export"], ["--to", "dot", "-o", "out"])
    result = ask(place.app, "GET", f"/api/jobs/{job['id']}/result").json
    assert result["document"]["load"]
    names = [file["name"] for file in result["files"]]
    assert {"plan.json", "versions.json"} < set(names)
    archive = zipfile.ZipFile(io.BytesIO(ask(place.app, "GET", f"/api/jobs/{job['id']}/files").body))
    assert sorted(archive.namelist()) == names
    checked = over(place, ask(place.app, "POST", "/api/jobs", {"verb": "verify", **asked}).json["job"])
    verdict = ask(place.app, "GET", f"/api/jobs/{checked['id']}/result").json["document"]
    assert verdict["outputs"]["result"] in ("passed", "not checkable here")
    assert ask(place.app, "GET", f"/api/jobs/{checked['id']}/files").status == 404


def test_old_jobs_are_forgotten_and_their_plans_stay(place: Place) -> None:
    old, new = over(place, place.submit("finish")), over(place, place.submit("bad"))
    place.store.set_job(old["id"], ended=old["ended"] - 31 * 24 * 3600)
    assert place.jobs.forget(30) == 1
    assert [job["id"] for job in place.store.jobs()] == [new["id"]]
    assert not place.jobs.folder(old["id"]).exists()
    assert len(place.store.plans()) == 1


@pytest.mark.parametrize(
    ("verb", "request_"),
    [
        ("bench", {"suite": "--list"}),
        ("bench", {"suite": "smoke", "only": ["--inputs=/"]}),
        ("bench", {"suite": "smoke", "seeds": -1}),
        ("export", {"plan_file": "plan.json", "to": "--legalize"}),
        ("bench", {"suite": "smoke", "solvers": "gdp policy=../x"}),
        ("export", {"to": "hf"}),
        ("verify", {"plan_file": "plan.json", "to": "hf", "set": ["-o=x"]}),
    ],
)
def test_no_request_becomes_an_option_of_further_commands(verb: str, request_: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        command_for(verb, request_, Path("job"))


def test_a_new_server_adopts_children_that_still_run(place: Place) -> None:
    name = place.submit("slow")
    place.run(lambda: place.state(name) == "running")
    gone, place.jobs = place.jobs, Jobs(place.store)  # without a word
    for job in place.store.jobs("running"):
        place.jobs._adopt(job)
    assert over(place, name)["state"] == "done"
    assert len(place.store.plans()) == 1
    assert [child.wait() for child in gone._children.values()] == [0]


def test_a_new_server_takes_over_what_ended_meanwhile_and_calls_lost_what_was_cut(place: Place) -> None:
    done, cut = place.submit("finish"), place.submit("crash")
    place.run(lambda: place.state(done) != "queued" and place.state(cut) != "queued")
    for child in place.jobs._children.values():
        child.wait()
    for name in (done, cut):
        place.store.set_job(name, state="running")  # as a killed server leaves them
    place.jobs = Jobs(place.store)
    for job in place.store.jobs("running"):
        place.jobs._adopt(job)
    assert (place.state(done), place.state(cut)) == ("done", "lost")


def test_jobs_wait_for_their_turn_and_can_be_stopped_there(tmp_path: Path) -> None:
    place = Place(tmp_path, at_once=1)
    first, second, third = place.submit("slow"), place.submit("finish"), place.submit("finish", seed=1)
    place.jobs.tick()
    assert [place.state(name) for name in (first, second, third)] == ["running", "queued", "queued"]
    place.jobs.stop(third)
    over(place, second)
    assert [place.state(name) for name in (first, second, third)] == ["done", "done", "stopped"]
    place.store.close()


def test_a_server_that_ends_asks_its_children_to_keep_their_best(place: Place) -> None:
    name = place.submit("wait")
    place.run(lambda: any(row["kind"] == "improvement" for row in place.store.events_after(0, name)))
    place.jobs.close()
    assert place.state(name) == "stopped"
    assert len(place.store.plans()) == 1


@pytest.mark.parametrize(
    "request_",
    [
        {"model": "--help", "devices": "3090"},
        {"model": "zoo:x", "devices": "3090", "pin": ["-x=3090"]},
        {"model": "zoo:x", "devices": "3090", "time_limit": float("inf")},
        {"model": "zoo:x", "devices": "3090", "evaluations": "many"},
        {"model": "zoo:x", "devices": "3090", "options": {"output": "x"}},
        {"model": "zoo:x", "devices": "3090", "set": ["policy=/etc/passwd"]},
        {"model": "zoo:x"},
    ],
)
def test_no_request_becomes_an_option_of_a_command(request_: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        command_for("place", request_, Path("job"))


def test_the_same_question_is_answered_by_the_job_that_answered_it(place: Place) -> None:
    place.store.add_model("m", {"name": "finish", "source": "finish", "options": {}, "facts": {}})
    asked = {"verb": "place", "model": "m", "devices": "3090", "time_limit": 5}
    first = ask(place.app, "POST", "/api/jobs", asked).json
    over(place, first["job"])
    assert ask(place.app, "POST", "/api/jobs", asked).json == {"job": first["job"], "known": True}
    assert ask(place.app, "POST", "/api/jobs", {**asked, "again": True}).json["known"] is False


def test_events_go_on_after_the_last_one_that_was_seen(place: Place) -> None:
    over(place, place.submit("finish"))
    rows = place.store.events_after(0)
    seen = str(rows[2]["id"])
    stream = ask(place.app, "GET", "/api/events", headers={"last-event-id": seen}, until=300).body.decode()
    numbers = [int(line[4:]) for line in stream.splitlines() if line.startswith("id: ")]
    assert numbers == [row["id"] for row in rows[3:]]


def test_a_job_is_shown_stopped_and_deleted_over_http(place: Place) -> None:
    name = place.submit("wait")
    place.run(lambda: place.state(name) == "running")
    assert ask(place.app, "DELETE", f"/api/jobs/{name}").status == 409
    assert ask(place.app, "POST", f"/api/jobs/{name}/stop").json["state"] == "stopping"
    over(place, name)
    shown = ask(place.app, "GET", f"/api/jobs/{name}").json
    wanted = ["stead", "place", "wait", "--devices", "3090", "--time-limit", "5", "--objective", "latency"]
    assert shown["command"] == [*wanted, "-o", "plan.json"]
    assert ask(place.app, "DELETE", f"/api/jobs/{name}").status == 200
    assert ask(place.app, "GET", f"/api/jobs/{name}").status == 404


def test_a_job_has_its_folder_before_anybody_can_begin_it(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    run = place.store._run

    def begun_at_once(text: str, *values: Any) -> list[dict[str, Any]]:
        found = run(text, *values)
        if text.startswith("INSERT INTO jobs"):
            place.jobs.tick()  # as the thread that watches may, in between
        return found

    monkeypatch.setattr(place.store, "_run", begun_at_once)
    job = place.submit("finish")
    place.run(lambda: place.state(job) == "done")
