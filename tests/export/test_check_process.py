"""A check in a process of its own says how that process ended."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stead.export.check_process import told_by


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("raise SystemExit(3)", "the process that ran it ended with code 3"),
        ("os.kill(os.getpid(), signal.SIGKILL)", r"the process that ran it was killed \(SIGKILL\)"),
        ("os.kill(os.getpid(), signal.SIGILL)", r"does not have \(SIGILL; ONEDNN_MAX_CPU_ISA=AVX512_CORE limits"),
    ],
)
def test_how_a_check_ended_is_said_with_what_to_do(end: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "ends.py").write_text(f"import os, signal\n{end}\n")
    told = told_by("ends", {}, str(tmp_path), {"PYTHONPATH": str(tmp_path)})
    assert re.search(said, told["error"])
