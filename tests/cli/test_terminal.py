"""What reaches a terminal and what reaches a pipe: widths, colours, and names that would like to steer it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from terminals import OURS, Said, in_pipe, on_terminal

from stead.graph import GraphBuilder
from stead.readers import write_graph
from stead.workloads.demo import demo_graph

# A window title, a cleared screen, an eight-bit colour, a mark of direction, a line separator, a backspace, half a
# character, a line break and a tab, characters without width.
EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202egpj\u2066\u2028\x08\x7f\r\t\u200b\ufeff\u061c[bold]"
SHOWN_BYTES = frozenset(b"\n") | frozenset(range(32, 127)) | frozenset(range(128, 256))
HIDDEN = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("NO_COLOR", "COLUMNS", "LINES", "STEAD_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    write_graph(tmp_path / "demo.json", demo_graph())
    return tmp_path


DEMO = ("place", "demo.json", "-d", "3090,3060", "-g", "latency", "--evaluations", "200")
TABLES = [
    DEMO,
    ("place", "demo.json", "-d", "8x 3090 + 8x 3060", "-g", "throughput", "--evaluations", "50"),
    ("explain", "plan.json"),
    ("explain", "plan.json", "layers.7"),
    ("doctor", "demo.json", "-d", "2x A100-80GB + cpu"),
    ("simulate", "demo.json", "-d", "3090,3060", "-p", "3060"),
    ("devices", "8x A100-80GB + cpu"),
    ("devices",),
    ("solvers",),
    ("formats",),
    ("zoo",),
    ("zoo", "gnmt-8"),
]


@pytest.mark.parametrize("columns", [80, 120])
def test_every_table_fits_the_terminal(columns: int, here: Path) -> None:
    for arguments in TABLES:
        said = on_terminal(*arguments, columns=columns)
        assert said.code in (0, 3), said.lines
        assert [line for line in said.lines if len(line) > columns] == [], arguments


def test_pipes_get_the_same_whatever_the_terminal(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert in_pipe(*DEMO).code == 0
    for arguments in TABLES[2:]:
        plain = in_pipe(*arguments).out
        assert b"\x1b" not in plain
        monkeypatch.setenv("COLUMNS", "47")
        assert in_pipe(*arguments).out == plain
        monkeypatch.delenv("COLUMNS")


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_without_colours_a_terminal_gets_what_a_pipe_gets(
    name: str, value: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert in_pipe(*DEMO).code == 0
    for arguments in (*TABLES[2:6], ("solvers", "--json"), ("place", "missing.json", "-d", "3090")):
        monkeypatch.setenv(name, value)
        plain = on_terminal(*arguments, columns=120).out.replace(b"\r\n", b"\n")
        assert plain.split() == in_pipe(*arguments).out.split(), arguments  # long lines are broken at words
        assert b"\x1b" not in plain


def test_a_terminal_gets_colours_and_json_never_does(here: Path) -> None:
    said = on_terminal(*DEMO)
    assert b"\x1b[36m3090\x1b[0m" in said.out
    assert b"x slower\x1b[0m" in said.out
    assert b"\x1b[31mstead:\x1b[0m" in on_terminal("place", "missing.json", "-d", "3090").out
    assert b"\x1b" not in on_terminal("explain", "plan.json", "--json").out
    assert OURS.sub(b"", said.out).isascii() is False  # bars of block characters


def evil_files(here: Path) -> None:
    """A model and devices whose every name is hostile."""
    build = GraphBuilder(f"graph{EVIL}")
    tensors = []
    for v in range(4):
        operator = build.operator(
            f"op{v}{EVIL}", reads=tensors[-1:], flops=1e9, kind=f"kind{v}{EVIL}", module=f"module{v}{EVIL}"
        )
        tensors.append(build.tensor(operator, name=f"tensor{v}{EVIL}", size_bytes=1000))
        build.weight(f"weight{v}{EVIL}", size_bytes=2**20, users=[operator])
    write_graph(here / "evil.json", build.build())
    for file, name in (("evil.toml", r"dev\u202e\u007f\u009b31m"), ("two.toml", "dev[bold]")):
        devices = "".join(
            f'[[device]]\nname = "{name}{d}"\nkind = "gpu"\nmemory = "{size}"\nbandwidth = "900GB/s"\n'
            f'flops = {{ fp32 = "10T" }}\n\n'
            for d, size in enumerate(("8GiB", "3MiB"))
        )
        links = f'[[link]]\nbetween = ["{name}0", "{name}1"]\nbandwidth = "10GB/s"\n'
        (here / file).write_text(devices + links)
    write_onnx(here / "evil.onnx")


def write_onnx(path: Path) -> None:
    """The same as ONNX, where its package is installed."""
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    ends = [helper.make_tensor_value_info(name, kind, [1, 8]) for name in (f"in{EVIL}", f"out{EVIL}")]
    nodes = [
        helper.make_node("Relu", [f"in{EVIL}"], [f"mid{EVIL}"], name=f"relu{EVIL}"),
        helper.make_node(f"Own{EVIL}", [f"mid{EVIL}"], [f"out{EVIL}"], name=f"own{EVIL}", domain=f"d{EVIL}"),
    ]
    graph = helper.make_graph(nodes, f"graph{EVIL}", ends[:1], ends[1:])
    path.write_bytes(helper.make_model(graph).SerializeToString())


EVIL_RUNS = [
    ("place", "evil.json", "-d", "two.toml", "--evaluations", "50"),
    ("place", "evil.json", "-d", "two.toml", "-g", "latency", "--pin", f"op0{EVIL}=dev"),
    ("place", "evil.json", "-d", "two.toml", "-g", "latency", "--pin", f"x{EVIL}=dev{EVIL}"),
    ("place", f"missing{EVIL}.json", "-d", "3090"),
    ("place", "evil.json", "-d", f"3090{EVIL}"),
    ("place", "evil.json", "-d", "two.toml", "--solver", f"auto{EVIL}"),
    ("place", "evil.json", "-d", "two.toml", "--set", f"x{EVIL}=1"),
    ("place", "evil.json", "-d", "two.toml", "--read", f"x{EVIL}=1"),
    ("place", "evil.json", "-d", "two.toml", "-g", EVIL),
    ("place", "evil.json", "-d", "two.toml", "-g", "latency", "-o", f"no{EVIL[5:]}/plan.json"),
    ("place", "evil.json", "-d", "two.toml", f"--nonsense{EVIL}"),
    ("place", "evil.json", "--batch", EVIL),
    (f"plaec{EVIL}",),
    ("explain", "plan.json"),
    ("explain", "plan.json", "op*"),
    ("explain", "plan.json", f"no{EVIL}"),
    ("report", "plan.json"),
    ("doctor", "evil.json"),
    ("doctor", "evil.json", "-d", "two.toml"),
    ("devices", "two.toml"),
    ("devices", "evil.toml"),
    ("devices", EVIL),
    ("doctor", "evil.onnx", "-d", "two.toml"),
    ("place", "evil.onnx", "-d", "two.toml", "-g", "latency", "-o", "onnx.json"),
    ("explain", "onnx.json", "*"),
    ("zoo", EVIL),
    ("bench", "--only", EVIL),
    ("bench", "--suite", EVIL),
    ("bench", "--list", "--solvers", EVIL),
    ("train", f"x{EVIL}", "--graphs", "evil.json"),
    ("simulate", "evil.json", "-d", "two.toml", "-p", "dev[bold]1"),
    ("simulate", "evil.json", "-d", "two.toml", "-p", EVIL),
    ("place", "evil.json", "-d", "two.toml", "-g", "latency", "--json"),
]


@pytest.mark.parametrize("screen", [on_terminal, in_pipe])
def test_no_name_reaches_a_screen_raw(screen: Callable[..., Said], here: Path) -> None:
    evil_files(here)
    assert in_pipe("place", "evil.json", "-d", "two.toml", "-g", "latency", "--evaluations", "50").code == 0
    for arguments in EVIL_RUNS:
        said = screen(*arguments)
        assert said.code in (0, 2, 3), (arguments, said.lines)
        text = OURS.sub(b"", said.out).decode()
        assert HIDDEN.findall(text) == [], arguments
        assert "internal error" not in text, arguments


def test_a_name_cannot_bring_colours_of_its_own(here: Path) -> None:
    build = GraphBuilder("\x1b[32mgraph\x1b[0m")
    build.operator("\x1b[32mop\x1b[0m", flops=1e9)
    write_graph(here / "green.json", build.build())
    assert in_pipe("place", "green.json", "-d", "3090,3060", "-g", "latency").code == 0
    green = [("explain", "plan.json", "*"), ("doctor", "green.json"), ("place", "\x1b[32mgreen", "-d", "3090")]
    for arguments in green:
        assert b"\\x1b[32m" in on_terminal(*arguments).out
        assert b"\x1b[32m" not in on_terminal(*arguments).out
