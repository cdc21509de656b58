"""HETERO of OpenVINO, in a process of its own.

After these cases a signal to the same pytest process ends it with a segmentation fault (OpenVINO 2026.4.1), so that
later tests that send signals would die. It was not seen in a process without pytest; the cause is not known.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("openvino")


def test_hetero_does_as_planned() -> None:
    cases = Path(__file__).parent / "hetero_cases.py"
    command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-p", "no:cacheprovider", str(cases)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-2000:]
    assert "passed" in ended.stdout or "100%" in ended.stdout
