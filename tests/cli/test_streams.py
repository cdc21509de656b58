"""Pipes that are left, devices that are full, streams that are closed, locales and names without UTF-8."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import stead.sim  # noqa: F401  (an editable install builds the core now, while streams are as they were)
from stead.cli.main import exit_code
from stead.cli.streams import Guarded
from stead.readers import write_graph
from stead.workloads.demo import demo_graph

STEAD = f"{sys.executable} -m stead.cli"
PLACE = "place demo.json -d 3090,3060 -g latency --evaluations 50"
ODD = b"m\xff\xe9"  # no UTF-8; what a folder of another century may hold


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_graph(tmp_path / "demo.json", demo_graph())
    return tmp_path


def shell(here: Path, script: str, **environment: str) -> tuple[int, bytes, bytes]:
    # An editable install would tell about its builds.
    whole = {**os.environ, "SKBUILD_EDITABLE_VERBOSE": "0", **environment}
    done = subprocess.run(["bash", "-c", script], cwd=here, capture_output=True, env=whole, timeout=120)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("command", [PLACE, "solvers --json", "--help"])
def test_a_reader_that_leaves_a_pipe_is_no_error(command: str, here: Path) -> None:
    code, out, err = shell(here, f"set -o pipefail; {STEAD} {command} | head -1")
    assert (code, err) == (0, b"")
    assert out.count(b"\n") == 1


def test_a_reader_that_is_gone_before_anything_is_printed_is_no_error(here: Path) -> None:
    code, _, err = shell(here, f"set -o pipefail; {STEAD} devices | true")
    assert (code, err) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(
    ("command", "code"), [(PLACE, 2), ("--version", 2), ("simulate demo.json -d 3090,3060 -p 3060", 3)]
)
def test_a_full_device_is_one_line(command: str, code: int, here: Path) -> None:
    ended, _, err = shell(here, f"{STEAD} {command} > /dev/full")
    assert (ended, err) == (code, b"stead: cannot write to stdout: No space left on device\n")


def test_closed_streams_are_told_where_somebody_listens(here: Path) -> None:
    assert shell(here, f"{STEAD} {PLACE} >&-") == (2, b"", b"stead: cannot write to stdout: it is closed\n")
    # No file of ours takes the number of a closed stream: the plan is whole although nobody can be told.
    assert shell(here, f"{STEAD} {PLACE} <&- >&- 2>&-") == (2, b"", b"")
    assert json.loads((here / "plan.json").read_text())["format"] == "stead.plan"
    assert shell(here, f"{STEAD} place missing -d 3090 2>&-") == (2, b"", b"")


def test_an_ascii_locale_gets_ascii(here: Path) -> None:
    (here / "größe.json").write_bytes((here / "demo.json").read_bytes())
    script = f"{STEAD} {PLACE.replace('demo', 'größe')} && {STEAD} place fehlt-ü -d 3090"
    code, out, err = shell(here, script, LC_ALL="C", PYTHONUTF8="0", PYTHONIOENCODING="ascii")
    assert code == 2
    assert out.isascii()
    assert err.isascii()
    assert err.count(b"\n") == 1
    assert b" 3090 |" in out


def run(capsys: pytest.CaptureFixture[str], arguments: Sequence[str]) -> tuple[int, str, str]:
    code = exit_code(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.skipif(sys.platform == "darwin", reason="file systems that insist on UTF-8")
def test_names_of_files_need_not_be_utf8(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd = os.fsdecode(ODD)
    Path(f"{odd}.json").write_bytes((here / "demo.json").read_bytes())
    place = ["place", f"{odd}.json", *PLACE.split()[2:], "-o", f"{odd}.plan.json"]
    code, out, _ = run(capsys, place)
    assert code == 0
    assert "wrote    m\\udcff\\udce9.plan.json" in out
    for arguments in (
        ["explain", f"{odd}.plan.json"],
        ["explain", f"{odd}.plan.json", "--json"],
        ["report", f"{odd}.plan.json", "-o", f"{odd}.html"],
        ["simulate", f"{odd}.json", "-d", "3090,3060", "-p", f"{odd}.plan.json", "--trace", f"{odd}.trace"],
        ["doctor", f"{odd}.json", "--json"],
    ):
        code, out, err = run(capsys, arguments)
        assert code == 0, err
        assert not any("\ud800" <= sign <= "\udfff" for sign in out)
    for arguments in (
        ["place", f"{odd}.missing", "-d", "3090"],
        ["place", f"{odd}.json", "-d", odd],
        ["place", "demo.json", "-d", "3090", "--profile", f"{odd}@3090"],
        ["report", f"{odd}.plan.json", "-o", f"{odd}/none/report.html"],
        ["zoo", odd],
    ):
        code, out, err = run(capsys, arguments)
        assert (code, out, err.count("\n")) == (2, "", 1), err
        assert "m\\udcff\\udce9" in err


class Breaking:
    """A stream whose device is full."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        raise OSError("no file")

    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")

    def flush(self) -> None:
        raise AssertionError("nothing is handed on after a failure")


def test_a_failure_is_kept_and_what_follows_is_dropped() -> None:
    stream = Guarded(Breaking())  # type: ignore[arg-type]
    for _ in range(3):
        stream.write("text")
        stream.flush()
    assert stream.failure is not None
    assert stream.failure.strerror == "No space left on device"


def test_a_library_that_closes_what_it_logs_to_closes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    stream = Guarded(sys.stderr)
    stream.close()
    stream.write("still here")
    assert capsys.readouterr().err == "still here"
