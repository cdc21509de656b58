"""Where the app listens and where it keeps its things; needs no other package, so that mistakes are told first."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from stead.errors import BadInput

LOOPBACK = ("127.0.0.1", "localhost")


def default_home() -> Path:
    """Where the app keeps its things, as desktops expect it."""
    data = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(data) / "stead" / "ui"


def listening(host: str, port: int) -> socket.socket:
    """A socket of this machine alone; port 0 takes a free one."""
    if host not in LOOPBACK:
        raise BadInput(f"the app listens on 127.0.0.1 only, not on {host}; reach it from elsewhere with ssh -L")
    opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        opened.bind(("127.0.0.1", port))
    except (OSError, OverflowError) as error:
        opened.close()
        reason = str(error).rstrip(".")
        raise BadInput(f"port {port} cannot be taken: {reason}; choose another with --port, or 0 for any") from None
    opened.listen(128)
    return opened
