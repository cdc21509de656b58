"""What several files of these tests load."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hf_models import NAMES

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small random model of every architecture; saved at once, as the time goes into imports."""
    folder = tmp_path_factory.mktemp("models")
    command = [sys.executable, str(HERE / "hf_models.py"), str(folder), *NAMES, "half"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    return folder
