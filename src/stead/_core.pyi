"""Native core of stead: simulation and search."""

from collections.abc import Sequence
from typing import Annotated

import numpy
from numpy.typing import NDArray


class Problem:
    """Checked, immutable arrays of one placement problem."""

    def __init__(self, *, seconds: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], workspace_bytes: Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C', device='cpu', writable=False)], tensor_first: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], tensor_bytes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], tensor_kept: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], consumer_first: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], consumer: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], weight_bytes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], weight_user_first: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], weight_user: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], latency_seconds: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], bytes_per_second: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], gap_seconds: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], channel: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu', writable=False)], memory_bytes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], tensor_seconds: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], hops: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu', writable=False)], phase: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], host: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], routing: int, host_latency_seconds: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], host_bytes_per_second: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)]) -> None: ...

    @property
    def operators(self) -> int: ...

    @property
    def tensors(self) -> int: ...

    @property
    def devices(self) -> int: ...

    @property
    def packed_keys(self) -> bool:
        """One 64-bit key holds any (time, operator)."""

    @property
    def single_sender_channels(self) -> bool:
        """No two devices send on one channel."""

class Schedule:
    """One simulated run; times in picoseconds, arrays are copies."""

    @property
    def start(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]:
        """[operator]"""

    @property
    def finish(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]:
        """[operator]"""

    @property
    def order(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]:
        """Operators as they were processed."""

    @property
    def transfer_tensor(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]:
        """[transfer], as they were booked"""

    @property
    def transfer_source(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]:
        """[transfer]"""

    @property
    def transfer_target(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]:
        """[transfer]"""

    @property
    def transfer_channel(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]:
        """[transfer]; -1 = none"""

    @property
    def transfer_begin(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]:
        """[transfer]"""

    @property
    def transfer_arrive(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]:
        """[transfer]"""

    @property
    def operator_cause(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]:
        """
        [operator]; the tensor it waited for, -1 - u for operator u before it on its device, or -2**31 for neither
        """

    @property
    def transfer_cause(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]:
        """
        [transfer]; -1 for its producer, or the transfer before it on its channel
        """

    @property
    def makespan(self) -> int:
        """The last finish; -1 when the placement cannot run."""

    @property
    def peak_bytes(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]:
        """[device]; -1 with memory off"""

    @property
    def peak_at(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]:
        """[device]; first moment of the peak, -1 with memory off"""

    @property
    def weights_bytes(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]:
        """[device]"""

    @property
    def status(self) -> int:
        """
        0 ok, 1 memory, 2 unsupported (operator, device), 3 unreachable (source, target, tensor)
        """

    @property
    def status_operator(self) -> int:
        """-1 unless unsupported"""

    @property
    def status_device(self) -> int:
        """-1 unless unsupported"""

    @property
    def status_source(self) -> int:
        """-1 unless unreachable"""

    @property
    def status_target(self) -> int:
        """-1 unless unreachable"""

    @property
    def status_tensor(self) -> int:
        """-1 unless unreachable"""

def simulate(problem: Problem, placement: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], policy: str = 'fifo', order: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, transfer_order: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, sends: bool = False, memory: str = 'peak') -> Schedule:
    """Simulates one placement and keeps the whole run."""

def memory_curve(problem: Problem, placement: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], schedule: Schedule) -> list[tuple[Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]]]:
    """For each device (times, bytes): so many bytes from that time on."""

def simulate_many(problem: Problem, placements: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order='C', device='cpu', writable=False)], policy: str = 'fifo', order: Annotated[NDArray[numpy.int32], dict(order='C', device='cpu', writable=False)] | None = None, transfer_order: Annotated[NDArray[numpy.int32], dict(order='C', device='cpu', writable=False)] | None = None, sends: bool = False, memory: str = 'check', cutoff_ticks: int = 9223372036854775807, threads: int = 0) -> tuple[Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu')], Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')], Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C', device='cpu')], Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C', device='cpu')]]:
    """
    (ticks, status, peak, over) of many placements; orders are one for all rows or one per row.
    """

def sequential_many(problem: Problem, placements: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order='C', device='cpu', writable=False)], memory: str = 'check', threads: int = 0) -> tuple[Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu')], Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')], Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C', device='cpu')], Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C', device='cpu')]]:
    """
    (ticks, status, peak, over) when the whole cluster does one thing at a time.
    """

def offload_many(problem: Problem, placements: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order='C', device='cpu', writable=False)], published: bool = False, memory: str = 'check', threads: int = 0) -> tuple[Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu')], Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')], Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C', device='cpu')], Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C', device='cpu')]]:
    """
    (ticks, status, peak, over) when accelerators are called like functions; status 5: calls wait for each other.
    """

def loads_many(problem: Problem, placements: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order='C', device='cpu', writable=False)], memory: str = 'check', threads: int = 0) -> tuple[Annotated[NDArray[numpy.int64], dict(shape=(None, None, None), order='C', device='cpu')], Annotated[NDArray[numpy.int64], dict(shape=(None, None, None), order='C', device='cpu')], Annotated[NDArray[numpy.int64], dict(shape=(None, None, None), order='C', device='cpu')], Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')], Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C', device='cpu')], Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C', device='cpu')]]:
    """
    (compute, received, sent, status, peak, over) per sample; loads are [row, device, forward | backward].
    """

def earliest_finish(problem: Problem, through_host: bool = False) -> Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]:
    """
    [operator]; ticks before which no placement can finish it; 2**63 - 1 where none can run it.
    """

def screen_many(problem: Problem, placements: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order='C', device='cpu', writable=False)], order: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, threads: int = 0, baseline: bool = False) -> Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu')]:
    """
    Rough seconds of policy program_order; inf where a placement cannot run. Baseline instructions are for tests.
    """

class PlacetoGraph:
    """A checked, immutable graph of Placeto's simulator."""

    def __init__(self, *, names: Sequence[str], cost_us: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], pays_gap: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], held_bytes: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], child_first: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], child: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], child_output: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], output_bytes: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

    @property
    def operators(self) -> int: ...

def simulate_placeto(graph: PlacetoGraph, placement: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], devices: int) -> tuple[float, Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu')], Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu')]]:
    """(makespan, start, peak) in us and bytes."""

def simulate_placeto_many(graph: PlacetoGraph, placements: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order='C', device='cpu', writable=False)], devices: int, peaks: bool = True, threads: int = 0) -> tuple[Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu')], Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu')]]:
    """
    (makespan, peak) of many placements in us and bytes; peaks are -1 if not wanted.
    """
