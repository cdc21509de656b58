"""What passes between a coordinator and its workers: a call and its reply, as bytes; and what a worker does with it.

Contents that many tasks share (a problem, a network) travel once to every worker, which keeps the latest of them.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import pickle
import tempfile
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from importlib import import_module
from threading import Lock
from types import MappingProxyType
from typing import Any

from stead.errors import BadInput, RunFailed

KEPT_BLOBS = 8  # that a worker keeps: a campaign shares one or two at a time
LEASE_SECONDS = 900.0  # that a task waits for its machine: another coordinator may be measuring there
POLL_SECONDS = 0.05


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        """Read-only mappings, which pickle leaves out."""
        return (_read_only, (dict(value),)) if isinstance(value, MappingProxyType) else NotImplemented


def _read_only(values: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(values)


def pickled(value: object) -> bytes:
    """A value as bytes."""
    out = io.BytesIO()
    _Pickler(out, pickle.HIGHEST_PROTOCOL).dump(value)
    return out.getvalue()


class Blob:
    """Something that many tasks share; it travels once to every worker.

    >>> Blob.of([1, 2]).value
    [1, 2]
    """

    def __init__(self, content: bytes) -> None:
        self.content = content

    @staticmethod
    def of(value: object) -> Blob:
        """The blob of a value that can be pickled."""
        return Blob(pickled(value))

    @cached_property
    def digest(self) -> str:
        """What tells it from others."""
        return hashlib.sha256(self.content).hexdigest()

    @cached_property
    def value(self) -> Any:
        """What it was made of, unpickled once."""
        return pickle.loads(self.content)


def name_of(function: Callable[..., Any]) -> str:
    """The name by which a worker finds a function.

    >>> name_of(name_of)
    'stead.engine.calls:name_of'
    """
    module, name = function.__module__, function.__qualname__
    if module == "__main__" or "." in name or "<" in name:
        raise BadInput(f"a task is a function at the top of a module that workers can import, not {module}.{name}")
    return f"{module}:{name}"


def call(function: str, arguments: Sequence[Any], blobs: Sequence[Blob], known: set[str], lease: bool) -> bytes:
    """The message that asks for a call; contents that the worker is known to have stay here."""
    contents = {blob.digest: blob.content for blob in blobs if blob.digest not in known}
    return pickled((function, tuple(arguments), [blob.digest for blob in blobs], contents, lease))


def perform(message: bytes) -> bytes:
    """What a worker replies: ("ok", value), ("error", exception) or ("missing", digests)."""
    function, arguments, digests, contents, lease = pickle.loads(message)
    blobs = _kept(digests, contents)
    missing = [digest for digest, blob in zip(digests, blobs, strict=True) if blob is None]
    if missing:
        return pickled(("missing", missing))
    try:
        module, name = function.split(":")
        with machine_lease() if lease else one_core():
            value = getattr(import_module(module), name)(*blobs, *arguments)
        return pickled(("ok", value))
    except Exception as error:
        return pickled(("error", _portable(error)))


_BLOBS: OrderedDict[str, Blob] = OrderedDict()
_LOCK = Lock()  # workers of Dask have threads


def _kept(digests: Sequence[str], contents: dict[str, bytes]) -> list[Blob | None]:
    with _LOCK:
        for digest, content in contents.items():
            _BLOBS.setdefault(digest, Blob(content))
        found = [_BLOBS.get(digest) for digest in digests]
        for digest in digests:
            if digest in _BLOBS:
                _BLOBS.move_to_end(digest)
        while len(_BLOBS) > max(KEPT_BLOBS, len(digests)):
            _BLOBS.popitem(last=False)
    return found


def _portable(error: Exception) -> Exception:
    """An exception that arrives as it is, or one that says what it was."""
    try:
        again = pickle.loads(pickled(error))
        if type(again) is type(error) and str(again) == str(error):
            return error
    except Exception:
        pass
    where = traceback.extract_tb(error.__traceback__)[-1]
    return RunFailed(f"{type(error).__name__} at {os.path.basename(where.filename)}:{where.lineno}: {error}")


@contextmanager
def machine_lease(seconds: float = LEASE_SECONDS) -> Iterator[None]:
    """The whole machine for one measurement: whoever asks for it meanwhile waits, whatever engine brought him.

    The system gives it back when the process ends, however that comes about, and those that inherit it do.
    """
    end = time.monotonic() + seconds
    descriptor = _lock_file("machine")
    os.set_inheritable(descriptor, True)  # a command that measures keeps it, should this process be killed
    try:
        while not _locked(descriptor):
            if time.monotonic() >= end:
                raise RunFailed(f"other measurements have kept this machine busy for {seconds:.0f} s; try again later")
            time.sleep(POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def one_core() -> Iterator[None]:
    """A core of its own for a task while there is one, so that tasks of one machine do not share them."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    allowed = os.sched_getaffinity(0)
    held = -1
    for core in sorted(allowed):
        held = _lock_file(f"core{core}")
        if _locked(held):
            os.sched_setaffinity(0, {core})
            break
        os.close(held)
        held = -1
    try:
        yield
    finally:
        if held >= 0:
            os.sched_setaffinity(0, allowed)
            os.close(held)


def _lock_file(name: str) -> int:
    path = os.path.join(tempfile.gettempdir(), f"stead-{os.getuid()}-{name}.lock")
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
