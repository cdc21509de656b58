"""The life of a worker of this machine: messages on stdin, replies on stdout, until nobody is left to ask."""

from __future__ import annotations

import os
import queue
import sys
import threading
from typing import BinaryIO

from stead.engine.calls import perform
from stead.engine.local import LENGTH


def main() -> None:
    """Reply to messages; the process ends at once when the coordinator has gone, also in the middle of a task."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a task prints is not a reply
    messages: queue.Queue[bytes] = queue.Queue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, messages), daemon=True).start()
    while True:
        reply = perform(messages.get())
        replies.write(LENGTH.pack(len(reply)))
        replies.write(reply)
        replies.flush()


def _listen(stream: BinaryIO, messages: queue.Queue[bytes]) -> None:
    while True:
        head = stream.read(LENGTH.size)
        body = stream.read(LENGTH.unpack(head)[0]) if len(head) == LENGTH.size else b""
        if not body:
            os._exit(0)
        messages.put(body)


if __name__ == "__main__":
    main()
