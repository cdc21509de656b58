"""Reading and writing files: only what is a regular file, as a whole or not at all, one sentence if it fails.

Reading never waits for a pipe, never follows a device to its end that does not come, and knows a limit. Writing goes to
a new file of its own beside the target, which takes the target's place in one step when all of it is on the disk: who
reads meanwhile sees the old file or the new one, and a full disk leaves the old one alone. A target that is a link is
itself replaced by the file; what it points to is left as it is. Devices, pipes and folders are refused.
"""

from __future__ import annotations

import gc
import gzip
import itertools
import math
import os
import secrets
import stat
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from stead.errors import BadInput
from stead.printing.wording import one_line, shown_path, suggestion

MAX_FILE_BYTES = 2**30
MAX_GZIP_RATIO = 300  # JSON of graphs reaches 10 to 30
OUT_OF_MEMORY = "needs more memory than there is; coarsen the graph first"

AnyPath = str | os.PathLike[str]

_GZIP_MAGIC = b"\x1f\x8b"
_CHUNK_BYTES = 2**20
_FREE_BYTES = 2**26  # unpacked without a look at the ratio
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
_READ = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)


# Reading


@contextmanager
def opened(path: AnyPath) -> Iterator[BinaryIO]:
    """A regular file, open for reading; BadInput with the reason for anything else, also while it is read."""
    with _told(path):
        _check_regular(os.stat(path), path)
        descriptor = os.open(path, _READ)  # without O_NONBLOCK a pipe nobody writes to would hang here
        file = os.fdopen(descriptor, "rb")
    with file:
        _check_regular(os.fstat(descriptor), path)  # the name may mean something else by now
        try:
            yield file
        except OSError as error:
            problem = error.strerror or "cannot be read"
            raise BadInput(f"{shown_path(path)}: {problem}; check the file") from None


def _check_regular(found: os.stat_result, path: AnyPath) -> None:
    """Refuse what would block or never end: pipes, sockets, devices."""
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError
    if not stat.S_ISREG(found.st_mode):
        raise BadInput(f"{shown_path(path)}: not a regular file; save its contents to a file first")


def read_bytes(
    path: AnyPath,
    *,
    most: int | None = None,
    limit: int | None = None,
    too_large: str = "coarsen the graph first",
) -> bytes:
    """Contents of a regular file, decompressed if it is gzip; with `most` only that many first bytes.

    A file of more than `limit` bytes (1 GiB) is refused, and `too_large` says what to do then.
    """
    limit = MAX_FILE_BYTES if limit is None else limit
    wanted = limit + 1 if most is None else most
    with opened(path) as file, _told(path):
        size = os.fstat(file.fileno()).st_size
        packed = file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
        file.seek(0)
        if packed:
            with gzip.GzipFile(fileobj=file) as unpacked:
                data = _unpack(unpacked, file, shown_path(path), wanted)
                size = len(data)
        else:
            data = file.read(min(wanted, size))
    if most is None and size > limit:  # the head of a larger file may belong to another format
        raise BadInput(f"{shown_path(path)}: larger than {_size(limit)}; {too_large}")
    return data


def read_text(
    path: AnyPath, *, limit: int | None = None, too_large: str = "coarsen the graph first"
) -> str:
    """The text in a regular file, which must be UTF-8; limits as in `read_bytes`."""
    data = read_bytes(path, limit=limit, too_large=too_large)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        place = f"byte 0x{data[error.start]:02x} at offset {error.start}"
        raise BadInput(
            f"{shown_path(path)}: not text ({place} is not UTF-8); is it another kind of file?"
        ) from None


def _unpack(unpacked: gzip.GzipFile, packed: BinaryIO, where: str, limit: int) -> bytes:
    """Up to `limit` bytes, and far fewer of a small file that is made to unpack to terabytes."""
    data = bytearray()
    while len(data) < limit and (chunk := unpacked.read(min(_CHUNK_BYTES, limit - len(data)))):
        data += chunk
        if len(data) > _FREE_BYTES and len(data) > MAX_GZIP_RATIO * packed.tell():
            raise BadInput(f"{where}: unpacks to over {MAX_GZIP_RATIO} times its size: no graph")
    return bytes(data)


@contextmanager
def _told(path: AnyPath) -> Iterator[None]:
    """What the operating system and gzip complain about, as one sentence."""
    try:
        yield
    except BadInput:
        raise
    except FileNotFoundError:
        problem = f"no such file{_similar_file(path)}"
    except IsADirectoryError:
        problem = "is a directory; name a file in it"
    except PermissionError:
        problem = "permission denied; check the rights of the file"
    except (EOFError, gzip.BadGzipFile, zlib.error):
        problem = "damaged gzip data; compress the file again"
    except OSError as error:
        problem = f"{error.strerror or 'cannot be accessed'}; check the path"
    except UnicodeError:
        problem = "not a path that this system's encoding can express; rename the file"
    except ValueError as error:  # a null byte in the path
        if "null" not in str(error):
            raise
        problem = f"not a path: {error}"
    except MemoryError:
        problem = OUT_OF_MEMORY
    else:
        return
    raise BadInput(f"{shown_path(path)}: {problem}")


def _similar_file(path: AnyPath) -> str:
    try:
        neighbours = [entry.name for entry in itertools.islice(Path(path).parent.iterdir(), 1000)]
    except (OSError, ValueError):
        return "; check the path"
    return suggestion(Path(path).name, neighbours) or "; check the path"


def _size(size: int) -> str:
    return f"{size / 2**30:.3g} GiB" if size >= 2**30 else f"{size / 2**20:.3g} MiB"


@contextmanager
def collector_paused() -> Iterator[None]:
    """No garbage collection meanwhile: a graph being read holds no garbage, and looking costs a third."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


# Writing


def write_bytes(path: AnyPath, data: bytes) -> None:
    """Write a file as a whole, compressed if its name ends in .gz; equal data give equal files."""
    with writing(path) as file:
        file.write(gzip.compress(data, mtime=0) if os.fspath(path).endswith(".gz") else data)


def write_text(path: AnyPath, text: str) -> None:
    """Write a text as UTF-8, as a whole or not at all."""
    with writing(path) as file:
        file.write(text.encode())


@contextmanager
def writing(path: AnyPath) -> Iterator[BinaryIO]:
    """A new file that takes the place of `path` when the block ends, and leaves no trace if it fails."""
    with _told_writing(path):
        target = Path(path)
        mode = _mode_of_old(target)
        scratch = target.with_name(f".stead-{secrets.token_hex(8)}.part")
        descriptor = os.open(scratch, _NEW, 0o666)
        try:
            with os.fdopen(descriptor, "wb") as file:
                yield file
                file.flush()
                if mode is not None:
                    os.fchmod(file.fileno(), mode)
                os.fsync(file.fileno())
            scratch.replace(target)
        except BaseException:
            with suppress(OSError):
                scratch.unlink()
            raise
        _keep_entry(target.parent)


@contextmanager
def appending(path: AnyPath) -> Iterator[BinaryIO]:
    """A regular file, open for lines at its end, made if there is none; what was written is on the disk at the end."""
    with _told_writing(path):
        _mode_of_old(Path(path))
        descriptor = os.open(path, _APPEND, 0o666)
        with os.fdopen(descriptor, "ab") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise BadInput(f"cannot write {shown_path(path)}: not a regular file; choose another name")
            yield file
            file.flush()
            os.fsync(file.fileno())


def _mode_of_old(target: Path) -> int | None:
    """Rights of the file that will be replaced, None if there is none; BadInput if it must not be replaced."""
    if not target.name:
        raise IsADirectoryError
    try:
        old = target.stat()  # of what a link points to: /dev/stdout is one
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(old.st_mode):
        raise IsADirectoryError
    if not stat.S_ISREG(old.st_mode):
        raise BadInput(
            f"cannot write {shown_path(target)}: a device or a pipe, no regular file; choose another name"
        )
    if target.is_symlink():
        return None
    if not os.access(target, os.W_OK):
        raise PermissionError
    return stat.S_IMODE(old.st_mode)


def _keep_entry(folder: Path) -> None:
    """Make the new name last; file systems that cannot do it keep it anyway or cannot be helped."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def _told_writing(path: AnyPath) -> Iterator[None]:
    """What the operating system complains about while a file is written, as one sentence."""
    try:
        yield
    except BadInput:
        raise
    except FileNotFoundError:
        problem = f"there is no folder {shown_path(Path(path).parent)}; make it first"
    except (IsADirectoryError, NotADirectoryError):
        problem = "a folder is in the way; choose another name"
    except PermissionError:
        problem = "permission denied; choose another folder or name"
    except OSError as error:
        problem = f"{error.strerror or 'it cannot be accessed'}; choose another place"
    except UnicodeEncodeError as error:
        near = one_line(error.object[max(0, error.start - 20) : error.start + 1])
        problem = f'half a character (a lone surrogate) at the end of "{near}"; rename it'
    except ValueError as error:  # a null byte in the path
        if "null" not in str(error):
            raise
        problem = f"not a path: {error}"
    else:
        return
    raise BadInput(f"cannot write {shown_path(path)}: {problem}")


def plain(value: Any) -> Any:
    """Values as JSON can hold them: null for numbers it has no word for, lists for tuples, no numbers of numpy."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
