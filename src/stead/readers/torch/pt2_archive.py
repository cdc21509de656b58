"""The JSON inside a .pt2 archive, without unpacking anything else.

An archive is a zip file; weights are stored in it as they are and are not looked at, pickles are never opened.
"""

from __future__ import annotations

import json
import os
import struct
import zipfile
import zlib
from typing import Any, BinaryIO

from stead.errors import BadInput
from stead.files import OUT_OF_MEMORY, opened
from stead.printing.wording import one_line, quoted
from stead.readers.common.checked_values import Wrong
from stead.readers.common.strict_json import MAX_DIGITS

MAX_JSON_BYTES = 2**28  # a program of 100,000 operators has half of it
MAX_DIRECTORY_BYTES = 2**24  # about 150,000 entries
MAX_RATIO = 300  # JSON of graphs reaches 10 to 40
_FREE_BYTES = 2**24  # unpacked without a look at the ratio

_END, _END_BYTES = b"PK\x05\x06", 22
_END64_PLACE, _END64 = b"PK\x06\x07", b"PK\x06\x06"
_TOO_MUCH = 0xFFFFFFFF  # the number is in the larger record


def read_archive(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The JSON documents of an archive by name: `model`, `weights` and `constants`, where there are any."""
    try:
        with opened(path) as file:
            _check_directory(file)
            with zipfile.ZipFile(file) as archive:
                return _documents(archive)
    except BadInput:
        raise
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        NotImplementedError,
        struct.error,
        ValueError,
        OverflowError,
    ) as e:
        raise Wrong(
            f"a damaged archive ({one_line(str(e), 100) or type(e).__name__}); export it again"
        ) from None
    except RuntimeError:  # how zipfile says that an entry is encrypted
        raise Wrong("the archive is encrypted") from None


def _check_directory(file: BinaryIO) -> None:
    """Refuse an archive whose list of entries would fill the memory; zipfile reads it all at once."""
    length = file.seek(0, os.SEEK_END)
    tail_at = max(0, length - 2**16 - _END_BYTES)
    file.seek(tail_at)
    tail = file.read(length - tail_at)
    end = tail.rfind(_END)
    if end < 0 or len(tail) - end < _END_BYTES:
        raise Wrong("no zip archive, or one that was not written completely; export it again")
    size = struct.unpack_from("<I", tail, end + 12)[0]
    if size == _TOO_MUCH:
        place = tail.rfind(_END64_PLACE, 0, end)
        if place < 0:
            raise Wrong("a damaged archive (no list of entries); export it again")
        file.seek(min(struct.unpack_from("<Q", tail, place + 8)[0], length))
        record = file.read(56)
        if len(record) < 56 or not record.startswith(_END64):
            raise Wrong("a damaged archive (no list of entries); export it again")
        size = struct.unpack_from("<Q", record, 40)[0]
    if size > MAX_DIRECTORY_BYTES:
        raise Wrong(f"the list of entries of the archive has {size} bytes; no exported program has so many")
    file.seek(0)


def _documents(archive: zipfile.ZipFile) -> dict[str, Any]:
    entries = archive.infolist()
    prefix = entries[0].filename.partition("/")[0] + "/" if entries else ""
    by_name = {entry.filename.removeprefix(prefix): entry for entry in entries}
    models = [name for name in by_name if name.startswith("models/") and name.endswith(".json")]
    if not models:
        raise Wrong("no models/model.json in the archive; is it a program that torch.export.save wrote?")
    chosen = "models/model.json" if "models/model.json" in models else models[0]
    if len(models) > 1 and chosen != "models/model.json":
        raise Wrong(
            f"{len(models)} models in the archive ({', '.join(map(quoted, models[:4]))}); save one by itself"
        )
    wanted = {
        "model": chosen,
        "weights": "data/weights/model_weights_config.json",
        "constants": "data/constants/model_constants_config.json",
    }
    return {key: _document(archive, by_name[name], name) for key, name in wanted.items() if name in by_name}


def _document(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, name: str) -> Any:
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise Wrong(f"{quoted(name)} is compressed in an unusual way; export the program again")
    if entry.file_size > MAX_JSON_BYTES:
        raise Wrong(f"{quoted(name)} has {entry.file_size} bytes; at most 2^28 are read")
    if entry.file_size > _FREE_BYTES and entry.file_size > MAX_RATIO * entry.compress_size:
        raise Wrong(f"{quoted(name)} unpacks to over {MAX_RATIO} times its size: no program")
    with archive.open(entry) as packed:
        data = packed.read(entry.file_size)
    try:
        return json.loads(data.decode("utf-8"), parse_int=_integer)
    except UnicodeDecodeError:
        raise Wrong(f"{quoted(name)} is not text; export the program again") from None
    except json.JSONDecodeError as error:
        raise Wrong(
            f"{quoted(name)}: line {error.lineno}, column {error.colno}: not JSON: {error.msg}"
        ) from None
    except RecursionError:
        raise Wrong(f"{quoted(name)} is nested too deeply") from None
    except MemoryError:
        raise Wrong(f"{quoted(name)} {OUT_OF_MEMORY}") from None


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise Wrong(f"a number of {len(digits)} digits; export the program again")
    return int(digits)
