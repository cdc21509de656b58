"""The command line says what it said before: help, error lines with their exit codes, and the keys of its JSON.

`STEAD_REWRITE=1 pytest tests/golden` writes `surface/` anew, only ever in a commit that says why a text changes.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import shlex
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from stead import Budget, place_problem, solver_names, write_graph
from stead.cli.main import exit_code
from stead.testing import chain3
from stead.workloads import FAMILIES, demo_graph, zoo_names

SURFACE = Path(__file__).parent / "surface"
WHY = "the surface changes only in a commit that says why, with STEAD_REWRITE=1 pytest tests/golden"
VERBS = (
    "demo", "doctor", "place", "explain", "report", "what-if", "compare", "ui", "score", "export", "verify", "measure",
    "tune", "replan", "run", "profile", "simulate", "solvers", "devices", "formats", "targets", "zoo", "bench", "train",
    "serve",
)  # fmt: skip
HELP = ("stead --help", *(f"stead {verb} --help" for verb in VERBS))
PLACE = "stead place demo.json -d 3090,3060 --evaluations 50"

# What typer says; its words are those of its release.
USAGE = (
    "stead plaec",
    "stead place",
    "stead place demo.json --nonsense",
    "stead place demo.json --seed x",
    "stead place demo.json --time-limit soon",
    "stead simulate demo.json -d 3090",
    "stead explain",
    "stead bench --cores many",
)
ERRORS = (
    # models
    "stead place missing.json -d 3090",
    "stead place empty.json -d 3090",
    "stead place broken.json -d 3090",
    "stead place notes.txt -d 3090",
    "stead place beheaded.json -d 3090",
    "stead place zoo:bert-bas -d 3090",
    "stead place zoo:bert-base?batch=0 -d 3090",
    "stead place zoo:bert-base?colour=red -d 3090",
    "stead place demo.json -d 3090 --batch 3",
    "stead place demo.json -d 3090 --read nonsense=1",
    "stead doctor missing.onnx",
    "stead doctor broken.onnx",
    "stead zoo gnnt",
    # devices
    "stead place demo.json",
    "stead place demo.json -d ''",
    "stead place demo.json -d A100",
    "stead place demo.json -d 306",
    "stead place demo.json -d 3091",
    "stead place demo.json -d '3090 @ pcie9x99'",
    "stead place demo.json -d missing.toml",
    "stead place demo.json -d broken.toml",
    "stead devices 'rtx 30900'",
    "stead devices '0x 3090'",
    # objectives and limits
    f"{PLACE} -g speed",
    f"{PLACE} -g latency --dispatch lifo",
    f"{PLACE} -g latency --execution magic",
    f"{PLACE} -g latency --execution offload",
    f"{PLACE} -g throughput --microbatches 0",
    f"{PLACE} -g throughput --load most",
    f"{PLACE} -g throughput --microbatches 2 --schedule 2f2b",
    f"{PLACE} --time-limit nan",
    "stead place demo.json -d 3090,3060 --evaluations 0",
    f"{PLACE} --granularity layer",
    f"{PLACE} --profile nowhere.json@3090",
    # solvers
    f"{PLACE} --solver autoo",
    f"{PLACE} --solver annneal",
    f"{PLACE} --set patience",
    f"{PLACE} --set patiense=3",
    f"{PLACE} --set patience=many",
    f"{PLACE} -g latency --solver single:3099",
    f"{PLACE} -g latency --solver ideals",
    f"{PLACE} -g throughput --solver latency-cp",
    # constraints
    f"{PLACE} --pin x",
    f"{PLACE} --pin nothing=3090",
    f"{PLACE} --pin *=4090",
    f"{PLACE} --forbid *=4090",
    f"{PLACE} --colocate alone",
    f"{PLACE} -g latency --forbid *=3090 --forbid *=3060",
    "stead place demo.json -d 3060 -g latency --evaluations 50",
    # plans
    "stead explain demo.json",
    "stead explain missing.json",
    "stead explain plan.json nothing",
    "stead explain cut.json",
    "stead explain altered.json",
    "stead report notes.txt",
    "stead report plan.json -o nowhere/page.html",
    "stead simulate demo.json -d 3090,3060 -p demo.json",
    "stead simulate demo.json -d 3090,3060 -p 4090",
    "stead simulate demo.json -d 3090,3060 -p 3060",
    # other circumstances
    "stead what-if plan.json",
    "stead what-if missing.json --add 3090",
    "stead what-if plan.json --set bandwidth=2x",
    "stead what-if plan.json --set 3091.bandwidth=2x",
    "stead what-if plan.json --set 3090.bandwith=2x",
    "stead what-if plan.json --set 3090.bandwidth=fast",
    "stead what-if plan.json --set 3090.flops=71T",
    "stead what-if plan.json --set 3090.memory=0x",
    "stead what-if plan.json --set '3090->3070.bandwidth=2x'",
    "stead what-if plan.json --set batch=many",
    "stead what-if plan.json --set batch=3",
    "stead what-if plan.json --add 3091",
    "stead what-if plan.json --remove cpu",
    "stead what-if plan.json --remove 3090 --remove 3060",
    "stead what-if plan.json --sweep batch",
    "stead what-if plan.json --sweep batch=8..1",
    "stead what-if plan.json --sweep links.bandwidth=1x..4x -o new.json",
    "stead what-if plan.json --add 3090 --curve curve.svg",
    "stead what-if plan.json --set 3090.memory=4GiB --remove 3060 --evaluations 50",
    "stead compare plan.json",
    "stead compare plan.json plan.json",
    "stead compare plan.json p3.json",
    f"{PLACE} --start notes.txt",
    f"{PLACE} --start p3.json",
    f"{PLACE} --events nowhere/events.jsonl",
    "stead ui --host 0.0.0.0 --no-browser",
    "stead ui --root nowhere --no-browser",
    "stead ui --port 99999 --no-browser",
    # exports
    "stead export plan.json --to vlm",
    "stead export missing.json --to vllm",
    "stead export plan.json --to vllm --set modle=x",
    "stead verify demo.json --to vllm",
    "stead score demo.json -d 3090,3060 --from llma x",
    "stead score demo.json -d 3090,3060 --from llama '-ngl some'",
    "stead score demo.json -d 3090,3060 --from llama '-ngl 3'",
    "stead score demo.json -d 3090,3060 --from vllm 20,5",
    "stead score demo.json -d 3090,3060 --from megatron EtL",
    "stead score demo.json -d 3090,3060 --from hf missing.json",
    "stead score demo.json -d 3090,3060 --from stages demo.json",
    f"{PLACE} --target vlm",
    f"{PLACE} --target vllm --granularity block",
    "stead bench --suite huge",
    "stead bench --resume missing.jsonl --json new.jsonl",
    "stead train gdpp --graphs demo.json -d 3090,3060",
)
DOCUMENTS = (
    f"{PLACE} --json",
    f"{PLACE} -g throughput --microbatches 2 --json",
    f"{PLACE} -g latency --granularity operator --json",
    "stead score demo.json -d 3090,3060 --from vllm 20,4 --evaluations 50 --json",
    "stead targets --json",
    "stead place demo.json -d 3060 -g latency --evaluations 50 --json",
    "stead doctor demo.json --json",
    "stead doctor demo.json -d 3090,3060 --json",
    "stead explain plan.json --json",
    "stead explain plan.json {first} --json",
    "stead report plan.json --json",
    "stead what-if plan.json --sweep links.bandwidth=0.5x,2x --evaluations 50 --json",
    "stead compare plan.json p2.json --json",
    "stead simulate demo.json -d 3090,3060 -p plan.json --json",
    "stead simulate demo.json -d 3090,3060 -p 3060 --json",
    "stead solvers --json",
    "stead devices --json",
    "stead devices '2x 3090 + cpu' --json",
    "stead formats --json",
    "stead zoo --json",
    "stead zoo gnmt --json",
    "stead bench --only 'throughput resnet' --solvers single --evaluations 5 --seeds 1 --json runs.jsonl",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with good and bad files in it."""
    here = tmp_path_factory.mktemp("surface")
    write_graph(here / "demo.json", demo_graph())
    (here / "empty.json").write_text("")
    (here / "broken.json").write_text('{"format": "stead.graph", "operators": [')
    (here / "broken.onnx").write_bytes(b"\x08\xff")
    (here / "broken.toml").write_text("[[device]\n")
    (here / "notes.txt").write_text("buy milk\n")
    graph = json.loads((here / "demo.json").read_text())
    (here / "beheaded.json").write_text(json.dumps({**graph, "operators": graph["operators"][:1]}))
    with contextlib.chdir(here):
        assert exit_code(shlex.split(f"{PLACE} -g latency")[1:]) == 0
        assert exit_code(shlex.split(f"{PLACE} -g latency --solver balanced -o p2.json")[1:]) == 0
    place_problem(chain3(), budget=Budget(evaluations=9)).save(here / "p3.json")
    plan = (here / "plan.json").read_text()
    (here / "cut.json").write_text(plan[:40])
    (here / "altered.json").write_text(json.dumps({**json.loads(plan), "objective_seconds": 1.0}))
    return here


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """That folder, in a terminal of 80 plain columns."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")
    capsys.readouterr()
    return folder


def ran(command: str, here: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command, with this folder called `.`."""
    code = exit_code(shlex.split(command)[1:])
    said = capsys.readouterr()
    return code, *(text.replace(str(here), ".") for text in (said.out, said.err))  # type: ignore[return-value]


def key_paths(value: Any, names: frozenset[str], path: str = "") -> Iterator[str]:
    """Every path to a value of a document; names of operators, devices and solvers as keys are all alike."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from key_paths(inner, names, f"{path}.{'*' if key in names else key}")
    elif isinstance(value, list):
        for inner in value:
            yield from key_paths(inner, names, f"{path}[]")
    yield path or "."


def kept_in(path: Path) -> dict[str, str]:
    """What a file of the surface keeps, by command."""
    if not path.exists():
        return {}
    parts = path.read_text().split("\n$ ")[1:]
    return dict((part.rstrip("\n") + "\n").split("\n", 1) for part in parts)  # type: ignore[misc]


def hold(name: str, now: Mapping[str, str], release: str = "") -> None:
    """Compare with what is kept, or keep it; a change is told by its command and the lines that differ."""
    path = SURFACE / name
    if os.environ.get("STEAD_REWRITE"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{release}\n" + "".join(f"\n$ {command}\n{text}" for command, text in now.items()))
    if release and path.read_text().split("\n", 1)[0] != release:
        pytest.skip(f"these are the words of {path.read_text().split(chr(10), 1)[0]}, this is {release}")
    before = kept_in(path)
    lines = [f"{command}: is not kept" for command in now if command not in before]
    for command, text in before.items():
        new = now.get(command, "is no longer asked\n").rstrip("\n")
        for line in difflib.ndiff(text.rstrip("\n").splitlines(), new.splitlines()):
            if line[0] in "-+":
                lines.append(f"{command}: {'was' if line[0] == '-' else 'is '} {line[2:]}")
    if lines:
        pytest.fail("\n".join([*lines, WHY]), pytrace=False)


def test_help_is_as_it_was(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hold("help.txt", {one: ran(one, here, capsys)[1] for one in HELP}, f"typer {version('typer')}")


def complaint(command: str, here: Path, capsys: pytest.CaptureFixture[str]) -> str:
    code, out, err = ran(command, here, capsys)
    assert code != 0, command
    return f"{code} {err or out}"


def test_wrong_usage_is_told_as_it_was(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hold("usage.txt", {one: complaint(one, here, capsys) for one in USAGE}, f"typer {version('typer')}")


def test_errors_are_told_as_they_were(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hold("errors.txt", {one: complaint(one, here, capsys) for one in ERRORS})


def document(command: str, here: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """What a command prints as JSON, or a list of what it writes to a file of one document per line."""
    code, out, err = ran(command.format(first=demo_graph().operator_names[0]), here, capsys)
    assert code in (0, 3), f"{command}: {err}"
    if command.endswith(".jsonl"):
        return [json.loads(line) for line in (here / "runs.jsonl").read_text().splitlines()]
    return json.loads(out)


def test_documents_have_the_keys_that_they_had(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    devices = ("3090", "3060", "3090:0", "3090:1", "cpu")
    names = frozenset([*demo_graph().operator_names, *devices, *solver_names(), *zoo_names(), *FAMILIES])
    now = {}
    for command in DOCUMENTS:
        paths = sorted(set(key_paths(document(command, here, capsys), names)))
        now[command] = "".join(f"{path}\n" for path in paths)
    hold("json_keys.txt", now)
