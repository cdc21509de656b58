"""The rules by which llama.cpp puts layers and tensors on devices, written down once; verified against the library.

Layers are 0 .. L-1, and the output is layer L. `-ngl N` leaves the first L+1-N of them on the CPU; the others go to
devices by the running sums of `-ts`, all in single precision. `-ot` moves weights of tensors whose name a pattern is
found in, the first pattern that is found deciding. The input embedding is always on the CPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from stead.errors import BadInput

CPU = "CPU"
ALL_LAYERS = 2**31 - 1  # what `-ngl all` and 999 mean
MOST_OVERRIDES = 4096
MOST_DEVICES = 16  # of the library as it is usually built
EXPERTS = r"ffn_(up|down|gate|gate_up)_(ch|)exps\."  # llama.cpp's own, with the dot that ends the name
_RPC = re.compile(r"RPC(?P<index>\d+)\[(?P<server>[^\[\],=\s]+:\d+)\]", re.ASCII)


def layer_table(layers: int, ngl: int, split: Sequence[float], devices: int) -> list[int]:
    """The device of every layer and, last, of the output: an index, or -1 for the CPU.

    >>> layer_table(4, 4, [1, 3], 2)
    [-1, 0, 1, 1, 1]
    """
    total = layers + 1
    active = min(ngl, total) if devices else 0
    start = max(total - ngl, 0)
    sums: list[np.float32] = []
    sum_so_far = np.float32(0)
    for one in split[:devices]:
        sum_so_far = np.float32(sum_so_far + np.float32(one))
        sums.append(sum_so_far)
    borders = [np.float32(one / sum_so_far) if sum_so_far else np.float32(0) for one in sums]
    table = []
    for layer in range(total):
        if layer < start or layer - start >= active:
            table.append(-1)
            continue
        at = np.float32(np.float32(layer - start) / np.float32(active))
        found = next((i for i, border in enumerate(borders) if border > at), None)
        if found is None:
            raise BadInput(f"-ts {','.join(f'{one:g}' for one in split)} leaves layer {layer} without a device")
        table.append(found)
    return table


@dataclass(frozen=True, slots=True)
class Override:
    """Tensors whose name holds a pattern, and the buffer type that takes their weights."""

    pattern: str
    buffer: str

    def __str__(self) -> str:
        return f"{self.pattern}={self.buffer}"


def overrides_from(text: str) -> list[Override]:
    """What `-ot` means: parts between commas, each cut at its first equals sign.

    >>> overrides_from(r"^blk\\.1\\.=CPU,exps=CUDA0")
    [Override(pattern='^blk\\\\.1\\\\.', buffer='CPU'), Override(pattern='exps', buffer='CUDA0')]
    """
    found = []
    for part in text.split(","):
        pattern, equals, buffer = part.partition("=")
        if not (pattern and equals and buffer):
            raise BadInput(f"-ot needs PATTERN=BUFFER,..., got {part!r}")
        try:
            re.compile(pattern)
        except re.error as error:
            raise BadInput(f"-ot: {pattern!r} is no pattern: {error}") from None
        found.append(Override(pattern, buffer))
    return found


def buffer_of(tensor: str, overrides: Iterable[Override]) -> str | None:
    """The buffer type that overrides give a tensor; None where none of them is found in its name."""
    return next((one.buffer for one in overrides if re.search(one.pattern, tensor)), None)


def expert_override(layers: Sequence[int], buffer: str) -> Override:
    """The experts of some layers on a buffer type, in a pattern without commas and equals signs.

    >>> str(expert_override([3, 5], "CPU"))
    '^blk\\\\.(3|5)\\\\.ffn_(up|down|gate|gate_up)_(ch|)exps\\\\.=CPU'
    """
    return Override(rf"^blk\.({'|'.join(map(str, layers))})\.{EXPERTS}", buffer)


def expert_tensors(layer: int) -> list[str]:
    """Names that tensors of experts have, fused and separate."""
    parts = [f"ffn_{part}_{kind}exps" for part in ("up", "down", "gate", "gate_up") for kind in ("", "ch")]
    return [f"blk.{layer}.{part}.weight" for part in parts]


def rpc_servers(names: Iterable[str]) -> list[str]:
    """The servers of buffer types such as `RPC0[host:port]`, each once, in order."""
    return list(dict.fromkeys(found["server"] for name in names if (found := _RPC.fullmatch(name))))


def device_names(buffers: Sequence[str]) -> list[str]:
    """What `-dev` calls the devices of some buffer types: the same, but those of RPC servers are counted through.

    >>> device_names(["CUDA0", "RPC0[a:1]", "RPC0[b:1]"])
    ['CUDA0', 'RPC0', 'RPC1']
    """
    found = [_RPC.fullmatch(name) for name in buffers]
    servers = rpc_servers(buffers)
    sizes = {
        server: 1 + max(int(one["index"]) for one in found if one is not None and one["server"] == server)
        for server in servers
    }
    first = {server: sum(sizes[before] for before in servers[:n]) for n, server in enumerate(servers)}
    return [
        name if one is None else f"RPC{first[one['server']] + int(one['index'])}"
        for name, one in zip(buffers, found, strict=True)
    ]
