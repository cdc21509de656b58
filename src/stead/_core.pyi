"""Native core of stead: simulation and search."""

from collections.abc import Sequence
from typing import Annotated

import numpy
from numpy.typing import NDArray


class Problem:
    """Checked, immutable arrays of one placement problem."""

    def __init__(self, *, seconds: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], workspace_bytes: Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C', device='cpu', writable=False)], tensor_first: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], tensor_bytes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], tensor_kept: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], consumer_first: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], consumer: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], weight_bytes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], weight_user_first: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], weight_user: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], latency_seconds: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], bytes_per_second: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], gap_seconds: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], channel: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu', writable=False)], memory_bytes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], tensor_seconds: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], hops: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu', writable=False)], phase: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], host: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], routing: int, host_latency_seconds: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], host_bytes_per_second: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], column: Annotated[NDArray[numpy.uint16], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None) -> None: ...

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

    @property
    def carries(self) -> bool:
        """Some devices carry tensors to others themselves."""

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
        """[transfer]; -1 = none, -2 = carried by the sender"""

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
        [transfer]; -1 for its producer, or the transfer before it on its channel or by its sender
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

def simulate(problem: Problem, placement: Annotated[NDArray, dict(shape=(None,), order='C', device='cpu', writable=False)], *, policy: str = 'fifo', order: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, transfer_order: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, sends: bool = False, memory: str = 'peak') -> Schedule:
    """Simulates one placement and keeps the whole run."""

class Scores:
    """Scores of a batch, one per row."""

    @property
    def ticks(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu')]:
        """[row]; -1 unless it was simulated to its end"""

    @property
    def status(self) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')]:
        """[row]; as in Schedule, 4 cut, 5 calls wait for each other"""

    @property
    def peak_bytes(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C', device='cpu')]:
        """[row, device]; -1 where it was not determined"""

    @property
    def over_bytes(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C', device='cpu')]:
        """[row, device]; at least so many are missing"""

class LoadScores(Scores):
    """Loads per sample, [row, device, forward | backward]; -1 without a run."""

    @property
    def compute_ticks(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None, None, None), order='C', device='cpu')]: ...

    @property
    def received_ticks(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None, None, None), order='C', device='cpu')]: ...

    @property
    def sent_ticks(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None, None, None), order='C', device='cpu')]: ...

def simulate_many(problem: Problem, placements: Annotated[NDArray, dict(shape=(None, None), order='C', device='cpu', writable=False)], *, policy: str = 'fifo', order: Annotated[NDArray[numpy.int32], dict(order='C', device='cpu', writable=False)] | None = None, transfer_order: Annotated[NDArray[numpy.int32], dict(order='C', device='cpu', writable=False)] | None = None, sends: bool = False, memory: str = 'check', cutoff_ticks: int = 9223372036854775807, threads: int = 0) -> Scores:
    """Simulates many placements; orders are one for all rows or one per row."""

def sequential_many(problem: Problem, placements: Annotated[NDArray, dict(shape=(None, None), order='C', device='cpu', writable=False)], *, memory: str = 'check', threads: int = 0) -> Scores:
    """Scores when the whole cluster does one thing at a time."""

def offload_many(problem: Problem, placements: Annotated[NDArray, dict(shape=(None, None), order='C', device='cpu', writable=False)], *, published: bool = False, memory: str = 'check', threads: int = 0) -> Scores:
    """Scores when accelerators are called like functions."""

def loads_many(problem: Problem, placements: Annotated[NDArray, dict(shape=(None, None), order='C', device='cpu', writable=False)], *, memory: str = 'check', threads: int = 0) -> LoadScores:
    """Steady-state loads of many placements; their ticks stay -1."""

def screen_many(problem: Problem, placements: Annotated[NDArray, dict(shape=(None, None), order='C', device='cpu', writable=False)], *, order: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, threads: int = 0, baseline: bool = False) -> Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu')]:
    """
    Rough seconds of policy program_order; inf where a placement cannot run. Baseline instructions are for tests.
    """

class PlacetoGraph:
    """A checked, immutable graph of Placeto's simulator."""

    def __init__(self, *, names: Sequence[str], cost_us: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], pays_gap: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], held_bytes: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], child_first: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], child: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], child_output: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], output_bytes: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

    @property
    def operators(self) -> int: ...

class PlacetoRun:
    """One simulated placement."""

    @property
    def makespan_us(self) -> float: ...

    @property
    def start_us(self) -> Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu')]:
        """[operator]"""

    @property
    def peak_bytes(self) -> Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu')]:
        """[device]"""

class PlacetoScores:
    """Many simulated placements."""

    @property
    def makespan_us(self) -> Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu')]:
        """[row]"""

    @property
    def peak_bytes(self) -> Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu')]:
        """[row, device]; -1 if not wanted"""

def simulate_placeto(graph: PlacetoGraph, placement: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], *, devices: int) -> PlacetoRun:
    """Runs one placement."""

def simulate_placeto_many(graph: PlacetoGraph, placements: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order='C', device='cpu', writable=False)], *, devices: int, peaks: bool = True, threads: int = 0) -> PlacetoScores:
    """Scores many placements."""

def area_bound(*, ticks: Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C', device='cpu', writable=False)], bytes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], capacity_bytes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], busy: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], seconds: float = float('inf')) -> int:
    """
    Ticks that the busiest device works at least; ticks are [row, device], -1 where a row may not run.
    """

def total_bound(*, ticks: Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C', device='cpu', writable=False)], bytes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], capacity_bytes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], busy: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], seconds: float = float('inf')) -> int:
    """
    Ticks that all rows take at least one after another, when bytes must fit.
    """

class WindowBounds:
    """The longest way through an operator, and the best window."""

    @property
    def path_ticks(self) -> int:
        """What lies before an operator, itself, what lies behind."""

    @property
    def window_ticks(self) -> int:
        """What must happen between two moments."""

    @property
    def head_ticks(self) -> int:
        """Before the window."""

    @property
    def tail_ticks(self) -> int:
        """Behind it."""

def window_bounds(problem: Problem, *, bytes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], repeat: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], reach: int, seconds: float = float('inf')) -> WindowBounds:
    """Bounds on the ticks of a step; bytes and repetitions are [operator]."""

def earliest_finish(problem: Problem, *, through_host: bool = False) -> Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]:
    """
    [operator]; ticks before which no placement can finish it; 2**63 - 1 where none can run it.
    """

def heaviest_path(problem: Problem, weight: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]:
    """The path of greatest sum of weight, as operators in order."""

def least_run_ticks(problem: Problem, path: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], *, through_host: bool = False) -> int:
    """
    Ticks of a path over all ways to cut it into runs on devices that hold their weights; 2**63 - 1 without one.
    """

def block_chain_bound(problem: Problem, *, path: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], units: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], known: int = 0, steps: int, most_operators: int = 64, seconds: float = float('inf')) -> int:
    """
    Ticks that the blocks of a path take at least one after another; beyond those that are known, if it can.
    """

class ListVariant:
    """How one schedule is built."""

    def __init__(self, *, rule: str, bias: float = 1.0, average: str = 'mean', insertion: bool = True, foresight: float = 0.0, thrift: float = 0.0) -> None: ...

class ListSchedule:
    """Devices and an order, built in one pass."""

    @property
    def devices(self) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')]:
        """[operator]"""

    @property
    def order(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu')]:
        """Operators, topological."""

    @property
    def ticks(self) -> int:
        """-1 if the placement cannot run, -2 where time was up before."""

def list_schedules(problem: Problem, unit_of: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], *, variants: Sequence[ListVariant], limit_bytes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], seconds: float = float('inf'), threads: int = 0) -> list[ListSchedule]:
    """List scheduling by each variant."""

class Spilled:
    """What is left where it was, and what moved."""

    @property
    def devices(self) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')]:
        """[operator]"""

    @property
    def moved_units(self) -> int: ...

def spill(problem: Problem, unit_of: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], *, devices: Annotated[NDArray, dict(shape=(None,), order='C', device='cpu', writable=False)], order: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], over_bytes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], room_bytes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> Spilled:
    """
    Lets overfull devices hand the tail of what they run to devices with room.
    """

def topological_order(problem: Problem, *, kind: str) -> Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu')]:
    """Operators by upward rank, depth first or by level."""

def refine_parts(*, first: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], neighbour: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], edge_weight: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], weight: Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C', device='cpu', writable=False)], allowed: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], part_of: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], limit: Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C', device='cpu', writable=False)], passes: int = 8) -> Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu')]:
    """
    Parts [vertex] with less weight between them, within limit [part, constraint] if possible.
    """

class WalkTables:
    """What all walks over a problem, in units, look up."""

    def __init__(self, problem: Problem, unit_of: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], forward_of: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

class WalkVariant:
    """How one walk goes, apart from the weights of its rule."""

    def __init__(self, *, rule: int = 0, bias: float = 1.0, foresight: float = 0.0, average: str = 'mean', noise: float = 0.0, seed: int = 0, retime: bool = False, opinion: int = -1, guide: int = -1, tail: float = 0.0, cling: float = 0.0) -> None: ...

class Walk:
    """Devices and an order, found by one walk."""

    @property
    def devices(self) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')]:
        """[operator]"""

    @property
    def order(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu')]:
        """Operators, topological."""

    @property
    def ticks(self) -> int:
        """-1 if the placement cannot run, -2 where time was up before."""

    @property
    def over_bytes(self) -> int:
        """What devices lack at their peaks, at least."""

    @property
    def simulations(self) -> int: ...

    @property
    def retimed(self) -> bool:
        """Whether the order is one by ranks at the chosen devices."""

class WalkShape:
    """Rows and features of the weights of a rule: of devices, of the queue."""

    @property
    def device_rows(self) -> int: ...

    @property
    def device_features(self) -> int: ...

    @property
    def queue_rows(self) -> int: ...

    @property
    def queue_features(self) -> int: ...

def walk_shape() -> WalkShape:
    """What weights a rule has."""

def walks(tables: WalkTables, weights: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], *, variants: Sequence[WalkVariant], limit_bytes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], opinions: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)] | None = None, guide_devices: Annotated[NDArray, dict(shape=(None, None), order='C', device='cpu', writable=False)] | None = None, guide_orders: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu', writable=False)] | None = None, seconds: float = float('inf'), threads: int = 0) -> list[Walk]:
    """
    A walk for each variant, by the rows of weights, of opinions [row, unit * device] and of guides [row, operator] that it names.
    """

class Stages:
    """Checked, immutable nodes, tensors between them and kinds of devices."""

    def __init__(self, *, ticks: Annotated[NDArray[numpy.int64], dict(shape=(None, None, None), order='C', device='cpu', writable=False)], order: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu', writable=False)], tensor_source: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], tensor_late: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], reader_first: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], readers: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], receive_ticks: Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C', device='cpu', writable=False)], send_ticks: Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C', device='cpu', writable=False)], weight_bytes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], user_first: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], users: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], kind_count: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], kind_memory: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

    @property
    def nodes(self) -> int: ...

    @property
    def kinds(self) -> int: ...

class IdealsRun:
    """The best split found, and what the search has proved."""

    @property
    def value_ticks(self) -> int:
        """Of the busiest device; -1 when there is no split."""

    @property
    def stage_of_node(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]:
        """[node]; empty when there is no split"""

    @property
    def kind_of_stage(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]:
        """[stage]"""

    @property
    def replicas_of_stage(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]:
        """[stage]"""

    @property
    def status(self) -> str:
        """
        optimal; cutoff: no split is below it; bytes, pairs or time: stopped early by that limit
        """

    @property
    def bound_ticks(self) -> int:
        """No split is below this."""

    @property
    def ideals(self) -> int:
        """Ideals that were stored."""

    @property
    def pairs(self) -> int:
        """Stages that were tried after some ideal."""

    @property
    def peak_bytes(self) -> int:
        """Memory for ideals."""

def ideals(stages: Stages, *, load: str = 'sum', cutoff_ticks: int = 9223372036854775807, max_bytes: int = 9223372036854775807, max_pairs: int = 9223372036854775807, seconds: float = float('inf'), threads: int = 0, replicas: int = 1, sync_ticks_per_byte: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None) -> IdealsRun:
    """
    The best split into contiguous stages below the cutoff, by dynamic programming over ideals.
    """

class StageSplit:
    """Stages in the order of the pipeline."""

    @property
    def value_ticks(self) -> int:
        """Of the busiest device; -1 when there is no split."""

    @property
    def stage_of_node(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]:
        """[node]; empty when there is no split"""

    @property
    def kind_of_stage(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]:
        """[stage]"""

    @property
    def replicas_of_stage(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]:
        """[stage]"""

def linear_dp(stages: Stages, order: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], *, load: str = 'sum', cutoff_ticks: int = 9223372036854775807, seconds: float = float('inf'), replicas: int = 1, sync_ticks_per_byte: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None) -> StageSplit:
    """
    The best split of one order into stages; none below the cutoff or in time is value -1.
    """

class TrailPoint:
    """How good the best was after so much."""

    @property
    def spent(self) -> int:
        """Work of a local search; moves of annealing."""

    @property
    def ticks(self) -> int: ...

class SearchState:
    """Devices and an order that belong together."""

    @property
    def devices(self) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')]:
        """[operator]"""

    @property
    def order(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu')]:
        """Operators, topological."""

    @property
    def sends(self) -> int:
        """
        Which tensor a channel sends first: 0 by producers, 1 by first readers.
        """

    @property
    def ticks(self) -> int: ...

class MoveTally:
    """What moves of one kind came to."""

    @property
    def name(self) -> str: ...

    @property
    def tried(self) -> int: ...

    @property
    def kept(self) -> int: ...

    @property
    def work(self) -> int:
        """Operators decoded or looked at, and moves."""

    @property
    def gain(self) -> float:
        """By what share each one shortened its schedule, all together."""

class SearchResult:
    """What a local search has found."""

    @property
    def raised(self) -> object:
        """What a signal handler raised, which ends the search; None without it."""

    @property
    def pool(self) -> list[SearchState]:
        """Distinct states, best first."""

    @property
    def moves(self) -> int:
        """Moves that were tried."""

    @property
    def work(self) -> int:
        """Operators decoded, and moves."""

    @property
    def trail(self) -> list[TrailPoint]:
        """One point per round."""

    @property
    def kinds(self) -> list[MoveTally]:
        """What moves of each kind came to."""

def search(problem: Problem, unit_of: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], *, starts: Annotated[NDArray, dict(shape=(None, None), order='C', device='cpu', writable=False)], start_orders: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu', writable=False)], start_sends: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, budget: int, seconds: float, seed: int = 0, threads: int = 0, streams: int = 2, rounds: int = 8, pool: int = 8, climbs: bool = False, warmth: float = 0.002, held_bytes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, room_bytes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None) -> SearchResult:
    """
    Local search under policy program_order. The same for any number of threads unless `seconds` run out or a signal handler raises something.
    """

def decode_moves(problem: Problem, *, placement: Annotated[NDArray, dict(shape=(None,), order='C', device='cpu', writable=False)], order: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], operators: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], targets: Annotated[NDArray, dict(shape=(None,), order='C', device='cpu', writable=False)], kept: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], by_reader: bool = False, first: int = 0, last: int = 2147483647, cutoff_ticks: int = 9223372036854775807, patience_ticks: int = 9223372036854775807) -> Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]:
    """
    [move]; ticks under policy program_order once each operator is on its target, -1 where it cannot be or the cutoff is exceeded. Moves that are not kept are taken back. Channels send in the order of producers or of first readers; operators of moves stand before position `last`, and most of what is kept from `first` on. With `patience_ticks` moves are given up, some of them in vain, that fall behind the cutoff by more than that.
    """

def list_sends(problem: Problem, *, placement: Annotated[NDArray, dict(shape=(None,), order='C', device='cpu', writable=False)], order: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]:
    """
    The order with every transfer listed before the operator that needs it first, for program_order with sends.
    """

class Balanced:
    """The best placement that annealing has met."""

    @property
    def raised(self) -> object:
        """What a signal handler raised, which ends the search; None without it."""

    @property
    def devices(self) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')]:
        """[supernode]"""

    @property
    def ticks(self) -> int:
        """The largest load; -1 if nothing it met can run."""

    @property
    def moves(self) -> int:
        """Moves that were tried."""

    @property
    def trail(self) -> list[TrailPoint]:
        """Whenever the largest load fell."""

class Descents:
    """Where descents have ended, one per start."""

    @property
    def raised(self) -> object:
        """What a signal handler raised, which ends the search; None without it."""

    @property
    def devices(self) -> Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order='C', device='cpu')]:
        """[start, supernode]"""

    @property
    def ticks(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu')]:
        """[start]; -1 if it cannot run"""

    @property
    def moves(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu')]:
        """[start]; moves that were tried"""

def balance(problem: Problem, node_of: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], *, load: str, starts: Annotated[NDArray, dict(shape=(None, None), order='C', device='cpu', writable=False)], restarts: int = 4, seed: int = 0, moves: int, seconds: float = float('inf'), room_bytes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, threads: int = 0) -> Balanced:
    """The least largest load that annealing finds within room_bytes."""

def descend(problem: Problem, node_of: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], *, load: str, starts: Annotated[NDArray, dict(shape=(None, None), order='C', device='cpu', writable=False)], targets: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], least_gain: float, moves: int, seconds: float = float('inf'), threads: int = 0) -> Descents:
    """
    Makes the best single moves to `targets` from every start, whatever fits.
    """
