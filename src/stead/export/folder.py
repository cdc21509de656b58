"""The folder of an export: what the consumer loads, the plan, how to load it, and the versions it was checked with.

`versions.json` lists every file with its checksum. So an export replaces what an earlier one wrote, and never what
somebody else wrote or changed; it is refused before anything is touched.
"""

from __future__ import annotations

import hashlib
import json
import platform
from pathlib import Path, PurePosixPath
from typing import Any

from stead.errors import BadInput
from stead.export.base import Bundle
from stead.files import opened, read_text, writing
from stead.plan import Plan, plan_bytes
from stead.printing.wording import shown_path
from stead.version import __version__

MARK = "stead export"
VERSIONS, PLAN, README = "versions.json", "plan.json", "README.txt"


def write_folder(folder: Path, target: str, plan: Plan, bundle: Bundle) -> list[Path]:
    """Write an export; the files, the list of them last."""
    files = {name: _bytes(content) for name, content in bundle.files.items()}
    for name in files:
        _check_name(name)
    files[PLAN] = plan_bytes(plan.problem, plan.solution, plan.baselines, plan.provenance)
    files[README] = _bytes(_readme(target, plan, bundle))
    before = _earlier(folder)
    _refuse_foreign(folder, files, before)
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    document = {
        "written_by": MARK, "stead": __version__, "python": platform.python_version(), "target": target,
        **_hosts(plan), "checked_with": dict(bundle.versions), "files": dict(sorted(sums.items())),
    }  # fmt: skip
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in files:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"cannot make {shown_path(folder)}: {error.strerror}; choose another folder") from None
    for name in sorted(set(before) - set(files)):
        (folder / name).unlink(missing_ok=True)  # of an earlier export; no part of this one
    for name, content in files.items():
        _write(folder / name, content)
    _write(folder / VERSIONS, _bytes(json.dumps(document, indent=1) + "\n"))
    return [folder / name for name in (*files, VERSIONS)]


def _hosts(plan: Plan) -> dict[str, dict[str, str]]:
    """The host of every device that the plan uses, where it spans hosts."""
    cluster = plan.problem.cluster
    used = [cluster.names[d] for d in sorted(set(plan.placement.devices.tolist()))]
    found = {name: host.name for name in used if (host := cluster.host_of(name)) is not None}
    return {"hosts": found} if found else {}


def _earlier(folder: Path) -> dict[str, str]:
    """The files of an earlier export in a folder with their checksums; BadInput where it is somebody else's."""
    if not folder.exists():
        return {}
    if not folder.is_dir():
        raise BadInput(f"{shown_path(folder)} is no folder; choose another name for the export")
    if not any(folder.iterdir()):
        return {}
    listed: Any = None
    if (folder / VERSIONS).is_file():
        try:
            listed = json.loads(read_text(folder / VERSIONS))
        except ValueError:
            listed = None
    if not isinstance(listed, dict) or listed.get("written_by") != MARK or not isinstance(listed.get("files"), dict):
        raise BadInput(f"{shown_path(folder)} holds files that are no export of stead; choose a new or empty folder")
    for name in listed["files"]:
        _check_name(name)
    return {name: str(checksum) for name, checksum in listed["files"].items()}


def _refuse_foreign(folder: Path, files: dict[str, bytes], before: dict[str, str]) -> None:
    """Refuse to replace or remove a file that somebody else wrote or changed."""
    for name in sorted({*files, *before}):
        path = folder / name
        if not path.exists():
            continue
        if not path.is_file():
            raise BadInput(f"{shown_path(path)} is in the way; move it or choose another folder")
        ours = before.get(name)
        if ours is None:
            raise BadInput(f"{shown_path(path)} is no file of an export; move it or choose another folder")
        if _sum_of(path) != ours:
            raise BadInput(f"{shown_path(path)} was changed after it was exported; move it or choose another folder")


def _check_name(name: str) -> None:
    path = PurePosixPath(name)
    if not name or path.is_absolute() or ".." in path.parts or "\\" in name or name == VERSIONS:
        raise BadInput(f"{name!r} is no name of a file inside the folder of an export")


def _readme(target: str, plan: Plan, bundle: Bundle) -> str:
    """How to load it, for people."""
    graph = plan.problem.graph.name or "a model"
    checked = ", ".join(f"{name} {version}" for name, version in sorted(bundle.versions.items())) or "no consumer"
    held = ", ".join(f"{name} {count}" for name, count in plan.placement.counts().items() if count)
    return (
        f"{graph} for {target}, exported by stead {__version__}.\n"
        f"Operators by device: {held}. Checked with: {checked}.\n\n"
        f"To load it:\n\n{bundle.load}\n"
    )


def _write(path: Path, content: bytes) -> None:
    with writing(path) as file:
        file.write(content)


def _sum_of(path: Path) -> str:
    found = hashlib.sha256()
    with opened(path) as file:
        while chunk := file.read(2**20):
            found.update(chunk)
    return found.hexdigest()


def _bytes(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else content
