"""Memory of GPUs that is kept free: for the context, the libraries and fragmentation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stead.cluster.devices import UNLIMITED_BYTES, Device
from stead.cluster.quantities import format_bytes
from stead.errors import BadCluster

RESERVE_SHARE = 0.08
RESERVE_BYTES = 2**29
LEAST_BYTES = 4 * 2**30  # smaller memories are examples and tests, meant to the byte


@dataclass(frozen=True, slots=True)
class Reserve:
    """What every GPU of at least 4 GiB keeps free unless its row in a file says `reserve`."""

    share: float = RESERVE_SHARE
    size_bytes: int = RESERVE_BYTES

    def __post_init__(self) -> None:
        if not 0 <= self.share < 1 or self.size_bytes < 0:
            raise BadCluster(
                f"a reserve is a share of at least 0 and below 1 and a size of at least 0, "
                f"got {self.share} and {self.size_bytes}"
            )

    def of(self, kind: str, memory_bytes: int) -> int:
        """Bytes to keep free.

        >>> Reserve().of("gpu", 24 * 2**30), Reserve().of("gpu", 9000), Reserve().of("cpu", 2**36)
        (2598455214, 0, 0)
        """
        if kind != "gpu" or not LEAST_BYTES <= memory_bytes < UNLIMITED_BYTES:
            return 0
        return int(self.share * memory_bytes) + self.size_bytes

    def lines(self, devices: Sequence[Device]) -> tuple[str, ...]:
        """The line to show about devices that keep something free."""
        kept = [device for device in devices if device.reserve_bytes]
        if not kept:
            return ()
        usable = list(
            dict.fromkeys(
                f"{format_bytes(device.usable_bytes)} of {format_bytes(device.memory_bytes)}"
                for device in kept
            )
        )
        usual = all(one.reserve_bytes == self.of(one.kind, one.memory_bytes) for one in kept)
        rule = f"{100 * self.share:g} % + {self.size_bytes / 2**30:g} GiB of every GPU stays free"
        own = "" if usual else ", or what its `reserve` says"
        return (f"reserve: {rule}{own}; usable are {', '.join(usable)}",)
