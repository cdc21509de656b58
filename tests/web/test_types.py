"""Types of the pages' modules, which are written as comments: checked where the TypeScript compiler is installed."""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest

VIEW, APP = (Path(str(files("stead").joinpath(f"web/{folder}"))) for folder in ("view", "app"))
LIT = "declare module 'lit-html' { export const html: any, svg: any, nothing: any, render: any; }\n"


@pytest.mark.skipif(shutil.which("tsc") is None, reason="needs tsc: npm install -g typescript")
def test_modules_of_pages_keep_their_types(tmp_path: Path) -> None:
    (tmp_path / "lit.d.ts").write_text(LIT)
    options = {
        "noEmit": True, "allowJs": True, "checkJs": True, "strict": True, "target": "es2022", "module": "es2022",
        "moduleResolution": "bundler", "lib": ["es2023", "dom", "dom.iterable"], 
        "paths": {"stead/*": [f"{VIEW}/*.js"], "app/*": [f"{APP}/*.js"]},
    }  # fmt: skip
    config = {"compilerOptions": options, "include": [f"{VIEW}/*.js", f"{APP}/*.js", str(tmp_path / "lit.d.ts")]}
    (tmp_path / "tsconfig.json").write_text(json.dumps(config))
    done = subprocess.run(["tsc", "-p", str(tmp_path)], capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout + done.stderr == ""
