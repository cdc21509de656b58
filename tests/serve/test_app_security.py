"""Who may talk to the app, and what it never does."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path
from typing import Any

import pytest
from serve_asgi import PORT, TOKEN, ask
from serve_place import Place

from stead.cli.main import exit_code
from stead.cli.ui import _screen
from stead.errors import BadInput
from stead.serve import models
from stead.serve.app import index
from stead.serve.listening import listening

MARKUP = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|unsafeHTML"
WEB = Path(models.__file__).parent.parent / "web"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 400),
        ({"host": f"127.0.0.1:{PORT + 1}"}, 400),
        ({"host": None}, 400),
        ({"origin": "http://evil.example"}, 400),
        ({"origin": "null"}, 400),
        ({"origin": f"http://localhost:{PORT}"}, 200),
        ({"host": f"localhost:{PORT}"}, 200),
        ({"cookie": None}, 403),
        ({"cookie": f"stead-{PORT}=wrong"}, 403),
        ({"cookie": "stead-1=x; \x00"}, 403),
    ],
)
def test_foreign_names_origins_and_tokens_are_refused(
    place: Place, headers: dict[str, str | None], status: int
) -> None:
    assert ask(place.app, "GET", "/api/jobs", headers=headers).status == status


@pytest.mark.parametrize("path", ["/api/jobs", "/api/clusters/check", "/api/plans"])
def test_what_changes_something_needs_a_header_that_no_form_can_set(place: Place, path: str) -> None:
    assert ask(place.app, "POST", path, {"devices": "3090"}, headers={"x-stead": None}).status == 403


def test_the_token_is_exchanged_for_a_cookie_and_leaves_the_address(place: Place) -> None:
    answer = ask(place.app, "GET", f"/?token={TOKEN}", headers={"cookie": None})
    assert (answer.status, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"].lower()
    assert all(word in cookie for word in (f"stead-{PORT}=", "httponly", "samesite=strict"))
    assert ask(place.app, "GET", "/?token=wrong", headers={"cookie": None}).status == 403


def test_pages_may_load_only_what_is_ours(place: Place) -> None:
    answer = ask(place.app, "GET", "/")
    policy = answer.headers["content-security-policy"]
    digest = base64.b64encode(hashlib.sha256(index()[1].encode()).digest()).decode()
    assert f"script-src 'self' 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    "path", ["../serve/app.py", "view/../../errors.py", "%2e%2e/errors.py", "app", "/etc/passwd", "app/nothing.js"]
)
def test_only_files_of_the_pages_are_served(place: Place, path: str) -> None:
    assert ask(place.app, "GET", f"/static/{path}").status == 404


def test_files_outside_of_the_root_are_not_opened(place: Place) -> None:
    secret = place.folder / "secret.json"
    secret.write_text("{}")
    (place.root / "link.json").symlink_to(secret)
    for path in ("../secret.json", str(secret), "link.json", "/etc/passwd"):
        for route in ("/api/models", "/api/plans"):
            answer = ask(place.app, "POST", route, {"path": path})
            assert (answer.status, "only files below" in answer.json["error"]) == (400, True)


def test_a_request_that_is_too_large_is_refused(place: Place) -> None:
    answer = ask(place.app, "POST", "/api/fit", chunks=[b"x" * 2**20] * 9)
    assert answer.status == 413


def test_an_upload_that_is_too_large_is_refused_and_leaves_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "MOST_UPLOAD_BYTES", 10)
    answer = ask(place.app, "PUT", "/api/upload?name=a.onnx", chunks=[b"12345", b"123456"])
    assert answer.status == 413
    assert list((place.folder / "home" / "models").iterdir()) == []


@pytest.mark.parametrize("name", ["model.pt", "model.pkl", "../../x", "", "a.exe"])
def test_files_that_could_run_code_are_not_taken(place: Place, name: str) -> None:
    assert ask(place.app, "PUT", f"/api/upload?name={name}", chunks=[b"x"]).status == 400


def test_the_name_of_an_upload_becomes_no_path(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def reading(store: Any, source: str, options: Any, name: str, memory: int) -> dict[str, Any]:
        read.append(source)
        return {"id": "m", "name": name, "facts": {}}

    monkeypatch.setattr(models, "read_in_child", reading)
    assert ask(place.app, "PUT", "/api/upload?name=../../evil.onnx", chunks=[b"abc"]).status == 200
    digest = hashlib.sha256(b"abc").hexdigest()[:32]
    assert read == [str(place.folder / "home" / "models" / digest / "model.onnx")]


@pytest.mark.parametrize("path", ["/etc/passwd.toml", "../outside.toml", "../home/ui.sqlite/../x.json"])
def test_devices_of_a_page_name_no_file_outside_its_folder(place: Place, path: str) -> None:
    (place.root.parent / "outside.toml").write_text('[[device]]\nname = "a"\n')
    for url, body in (
        ("/api/clusters/check", {"devices": f"{path}; a.memory=1GiB"}), ("/api/clusters/toml", {"devices": path}),
        ("/api/jobs", {"verb": "train", "policy": "gdp", "graphs": [], "updates": 1, "devices": path}),
    ):  # fmt: skip
        answer = ask(place.app, "POST", url, body)
        assert (answer.status, "only files below" in answer.json["error"]) == (400, True)


def test_the_app_listens_on_this_machine_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BadInput, match="ssh -L"):
        listening("0.0.0.0", 0)
    assert exit_code(["ui", "--host", "0.0.0.0", "--no-browser", "--home", str(tmp_path / "home")]) == 2
    assert not (tmp_path / "home").exists()


def test_what_is_named_at_the_start_is_opened(place: Place) -> None:
    (place.root / "model.json").write_text("{}")
    assert _screen(place.store, "zoo:resnet-50", place.root) == "#/place/zoo%3Aresnet-50"
    assert _screen(place.store, str(place.root / "model.json"), place.root).startswith("#/place/%2F")
    plan = _screen(place.store, str(place.folder / "sample.json"), place.root)
    assert plan == f"#/plan/{place.store.plans()[0]['id']}"
    with pytest.raises(BadInput, match="--root"):
        _screen(place.store, "/etc/hosts", place.root)


def test_scripts_of_the_app_never_make_markup_of_text() -> None:
    scripts = sorted((WEB / "app").glob("*.js"))
    assert len(scripts) >= 8
    for script in scripts:
        text = script.read_text()
        assert text.startswith("// @ts-check\n"), script.name
        assert len(text.splitlines()) <= 300, script.name
        assert not re.search(MARKUP, text), script.name
