"""Files are read and written whole or not at all, and never what is no regular file."""

from __future__ import annotations

import errno
import gzip
import io
import os
import resource
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from stead import files
from stead.errors import BadInput
from stead.files import appending, opened, read_bytes, read_text, write_bytes, write_text, writing

posix = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names() -> list[str]:
    return sorted(os.listdir())


def test_a_written_text_is_read_back() -> None:
    write_text("a.txt", "größer\n")
    assert read_text("a.txt") == "größer\n"
    assert names() == ["a.txt"]


def test_a_name_in_gz_is_compressed_without_a_date() -> None:
    write_bytes("a.gz", b"abc")
    first = Path("a.gz").read_bytes()
    write_bytes("a.gz", b"abc")
    assert first == Path("a.gz").read_bytes()
    assert gzip.decompress(first) == read_bytes("a.gz") == b"abc"


@posix
@pytest.mark.parametrize("path", ["pipe", "/dev/zero", "/dev/null"])
def test_only_regular_files_are_read(path: str) -> None:
    os.mkfifo("pipe")
    for read in (read_bytes, read_text):
        with pytest.raises(BadInput, match="not a regular file"):
            read(path)
    with pytest.raises(BadInput, match="not a regular file"), opened(path):
        pass


def test_a_file_that_turns_into_a_pipe_between_look_and_opening_does_not_hang(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("plain").write_text("x")
    os.mkfifo("pipe")
    plain = os.stat("plain")
    monkeypatch.setattr(files.os, "stat", lambda path: plain)
    with pytest.raises(BadInput, match="not a regular file"):
        read_bytes("pipe")


@posix
@pytest.mark.parametrize("target", ["pipe", "/dev/null", "/dev/full", "link-to-null"])
def test_devices_and_pipes_are_not_written(target: str) -> None:
    os.mkfifo("pipe")
    os.symlink("/dev/null", "link-to-null")
    for write in (lambda: write_text(target, "x"), lambda: appended(target)):
        with pytest.raises(BadInput, match=f"cannot write {target}: a device or a pipe, no regular file"):
            write()
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    assert names() == ["link-to-null", "pipe"]


def appended(target: str) -> None:
    with appending(target) as file:
        file.write(b"x\n")


@pytest.mark.parametrize("target", ["folder", "folder/", ".", "", "/"])
def test_a_folder_is_not_written(target: str) -> None:
    Path("folder").mkdir()
    with pytest.raises(BadInput, match="a folder is in the way"):
        write_text(target, "x")
    assert names() == ["folder"]


def test_a_link_is_replaced_and_what_it_points_to_is_left_alone() -> None:
    Path("secret").write_text("precious")
    os.symlink("secret", "plan.json")
    write_text("plan.json", "new")
    assert Path("secret").read_text() == "precious"
    assert not os.path.islink("plan.json")
    assert Path("plan.json").read_text() == "new"


def test_a_link_planted_under_the_name_of_the_draft_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("victim").write_text("precious")
    os.symlink("victim", ".stead-00.part")
    monkeypatch.setattr(files.secrets, "token_hex", lambda count: "00")
    with pytest.raises(BadInput, match="File exists"):
        write_text("plan.json", "new")
    assert Path("victim").read_text() == "precious"
    assert names() == [".stead-00.part", "victim"]


def test_rights_are_those_of_the_old_file_or_of_the_mask() -> None:
    before = os.umask(0o027)
    try:
        write_text("new", "x")
        write_text("old", "x")
        os.chmod("old", 0o600)
        write_text("old", "y")
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat("new").st_mode) == 0o640
    assert stat.S_IMODE(os.stat("old").st_mode) == 0o600


class FullFile(io.BytesIO):
    def __init__(self, full: Callable[..., None]) -> None:
        super().__init__()
        self.write = full  # type: ignore[method-assign, assignment]


@pytest.mark.parametrize("where", ["write", "fsync", "replace"])
def test_a_full_disk_leaves_the_old_file_and_nothing_else(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write_text("plan.json", "old")

    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    if where == "fsync":
        monkeypatch.setattr(files.os, "fsync", full)
    if where == "replace":
        monkeypatch.setattr(Path, "replace", full)
    if where == "write":
        monkeypatch.setattr(files.os, "fdopen", lambda *arguments: FullFile(full))
    with pytest.raises(BadInput, match=r"^cannot write plan\.json: No space left on device; choose another place$"):
        write_text("plan.json", "new")
    assert Path("plan.json").read_text() == "old"
    assert names() == ["plan.json"]


def test_a_limit_on_sizes_leaves_the_old_file_and_nothing_else() -> None:
    write_text("plan.json", "old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(BadInput, match=r"cannot write plan\.json: File too large"):
            write_text("plan.json", "x" * 100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert Path("plan.json").read_text() == "old"
    assert names() == ["plan.json"]


def test_an_interrupt_leaves_the_old_file_and_nothing_else() -> None:
    write_text("plan.json", "old")
    with pytest.raises(KeyboardInterrupt):
        interrupted("plan.json")
    assert Path("plan.json").read_text() == "old"
    assert names() == ["plan.json"]


def interrupted(path: str) -> None:
    with writing(path) as file:
        file.write(b"half")
        raise KeyboardInterrupt


def test_the_longest_name_can_be_written() -> None:
    write_text("n" * 255, "x")
    assert read_text("n" * 255) == "x"


def test_lines_are_added_at_the_end() -> None:
    for _ in range(2):
        appended("log")
    assert Path("log").read_text() == "x\nx\n"


def test_trouble_is_told_in_one_line() -> None:
    told = {
        "no/a.txt": "cannot write no/a.txt: there is no folder no; make it first",
        "x" * 300: f"cannot write {'x' * 300}: File name too long; choose another place",
        "a\0b": "cannot write a\\x00b: not a path: embedded null byte",
    }
    for path, message in told.items():
        with pytest.raises(BadInput) as caught:
            write_text(path, "x")
        assert str(caught.value) == message
    with pytest.raises(BadInput, match=r'half a character .* at the end of "ab'):
        write_text("a.txt", "ab\ud800")
    assert names() == []


_WRITER = """
import sys
from stead.files import write_text
for number in range(150):
    write_text("shared", str(number % 10) * 50_000 + "end")
"""


def test_readers_see_whole_files_while_several_write_them() -> None:
    write_text("shared", "0" * 50_000 + "end")
    writers = [subprocess.Popen([sys.executable, "-c", _WRITER]) for _ in range(2)]
    reads = 0
    while any(writer.poll() is None for writer in writers):
        text = read_text("shared")
        assert len(text) == 50_003
        assert set(text) == {text[0], *"end"}
        reads += 1
    assert [writer.returncode for writer in writers] == [0, 0]
    assert reads > 0
    assert names() == ["shared"]
