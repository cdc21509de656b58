"""What the app remembers, in one sqlite file: jobs, their events, plans and models."""

from __future__ import annotations

import json
import secrets
import sqlite3
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stead.errors import BadInput

VERSION = 1
_TABLES = """
CREATE TABLE IF NOT EXISTS jobs(id TEXT PRIMARY KEY, verb TEXT, state TEXT, request TEXT, command TEXT, pid INTEGER,
  start_token TEXT, created REAL, started REAL, ended REAL, exit INTEGER, message TEXT, tail INTEGER DEFAULT 0,
  fixes TEXT DEFAULT '[]');
CREATE TABLE IF NOT EXISTS events(id INTEGER PRIMARY KEY AUTOINCREMENT, job TEXT, at REAL, kind TEXT, body TEXT);
CREATE INDEX IF NOT EXISTS events_of_job ON events(job, id);
CREATE TABLE IF NOT EXISTS plans(id TEXT PRIMARY KEY, job TEXT, name TEXT, graph TEXT, devices TEXT, objective TEXT,
  seconds REAL, bound REAL, gap REAL, created REAL);
CREATE TABLE IF NOT EXISTS models(id TEXT PRIMARY KEY, name TEXT, source TEXT, options TEXT, facts TEXT);
CREATE TABLE IF NOT EXISTS settings(key TEXT PRIMARY KEY, value TEXT);
"""
Row = dict[str, Any]


class Store:
    """The tables, behind one lock: a handful of rows a second come and go."""

    def __init__(self, home: Path) -> None:
        self.home = home = home.expanduser().resolve()
        try:
            for folder in (home, home / "jobs", home / "plans", home / "models"):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._base = sqlite3.connect(home / "ui.sqlite", check_same_thread=False, isolation_level=None)
            self._base.row_factory = sqlite3.Row
            self._base.execute("PRAGMA journal_mode=WAL")
            self._base.executescript(_TABLES)
        except (OSError, sqlite3.Error) as error:
            raise BadInput(f"cannot keep jobs in {home}: {error}; choose another folder with --home") from None
        self._lock = threading.RLock()
        version = int(self.setting("version", str(VERSION)))
        if version > VERSION:
            raise BadInput(f"{home} was made by a newer stead (version {version}); choose another folder with --home")

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._base.close()

    def setting(self, key: str, default: str) -> str:
        """A setting; kept with its default if it is new."""
        with self._lock:
            self._run("INSERT OR IGNORE INTO settings VALUES(?, ?)", key, default)
            return str(self._run("SELECT value FROM settings WHERE key=?", key)[0]["value"])

    def _run(self, text: str, *values: Any) -> list[Row]:
        with self._lock:
            return [dict(row) for row in self._base.execute(text, values).fetchall()]

    # Jobs

    def add_job(self, verb: str, request: Mapping[str, Any]) -> str:
        """A job that waits for its turn."""
        name = secrets.token_hex(6)
        (self.home / "jobs" / name).mkdir(mode=0o700)  # first: a row that is there may be begun at once
        self._run(
            "INSERT INTO jobs(id, verb, state, request, created) VALUES(?, ?, 'queued', ?, ?)",
            name, verb, json.dumps(request), time.time(),
        )  # fmt: skip
        self.tell_job(name)
        return name

    def jobs(self, *states: str) -> list[Row]:
        """Jobs, the newest first; of some states only if they are given."""
        marks = ", ".join("?" * len(states))
        where = f"WHERE state IN ({marks})" if states else ""
        rows = self._run(f"SELECT * FROM jobs {where} ORDER BY created DESC, rowid DESC", *states)
        return [
            {**row, "request": json.loads(row["request"]), "fixes": json.loads(row["fixes"] or "[]")} for row in rows
        ]

    def job(self, name: str) -> Row | None:
        """One job."""
        return next((row for row in self.jobs() if row["id"] == name), None)

    def set_job(self, name: str, **values: Any) -> None:
        """Change a job; a new state is told to who watches."""
        fields = ", ".join(f"{key}=?" for key in values)
        self._run(f"UPDATE jobs SET {fields} WHERE id=?", *values.values(), name)
        if "state" in values:
            self.tell_job(name)

    def tell_job(self, name: str) -> None:
        """An event with the state of a job."""
        row = self._run("SELECT state, message FROM jobs WHERE id=?", name)
        if row:
            self.add_event(name, "job", row[0])

    def drop_job(self, name: str) -> None:
        """Forget a job and its events; plans stay."""
        self._run("DELETE FROM jobs WHERE id=?", name)
        self._run("DELETE FROM events WHERE job=?", name)

    # Events

    def add_event(self, job: str, kind: str, body: Mapping[str, Any]) -> None:
        """Keep an event."""
        self._run(
            "INSERT INTO events(job, at, kind, body) VALUES(?, ?, ?, ?)", job, time.time(), kind, json.dumps(body)
        )

    def events_after(self, number: int, job: str = "", most: int = 500) -> list[Row]:
        """Events after one, of all jobs or of one."""
        if job:
            return self._run("SELECT * FROM events WHERE id>? AND job=? ORDER BY id LIMIT ?", number, job, most)
        return self._run("SELECT * FROM events WHERE id>? ORDER BY id LIMIT ?", number, most)

    def last_event(self) -> int:
        """The number of the newest event."""
        return int(self._run("SELECT COALESCE(MAX(id), 0) AS last FROM events")[0]["last"])

    # Plans and models

    def add_plan(self, name: str, row: Mapping[str, Any]) -> None:
        """Keep what lists say of a plan."""
        self._run(
            "INSERT OR REPLACE INTO plans VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            name, row["job"], row["name"], row["graph"], row["devices"], row["objective"], row["seconds"],
            row["bound"], row["gap"], time.time(),
        )  # fmt: skip

    def plans(self) -> list[Row]:
        """All plans, the newest first."""
        return self._run("SELECT * FROM plans ORDER BY created DESC, rowid DESC")

    def plan_file(self, name: str) -> Path | None:
        """Where a plan lies; None if it is not known."""
        known = self._run("SELECT id FROM plans WHERE id=?", name)
        return self.home / "plans" / f"{known[0]['id']}.json" if known else None

    def drop_plan(self, name: str) -> None:
        """Forget a plan."""
        path = self.plan_file(name)
        if path is not None:
            path.unlink(missing_ok=True)
            self._run("DELETE FROM plans WHERE id=?", name)

    def add_model(self, name: str, row: Mapping[str, Any]) -> None:
        """Keep what is known of a model."""
        self._run(
            "INSERT OR REPLACE INTO models VALUES(?, ?, ?, ?, ?)",
            name, row["name"], row["source"], json.dumps(row["options"]), json.dumps(row["facts"]),
        )  # fmt: skip

    def model(self, name: str) -> Row | None:
        """One model."""
        rows = self._run("SELECT * FROM models WHERE id=?", name)
        if not rows:
            return None
        return {**rows[0], "options": json.loads(rows[0]["options"]), "facts": json.loads(rows[0]["facts"])}
