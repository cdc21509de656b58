"""Which solvers `auto` asks about which problem, and the numbers by which it deals out its budget."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from stead.errors import BadInput
from stead.problem import Latency, PlacetoDispatch, Problem, Throughput
from stead.solvers.build.list_scheduling import are_alike
from stead.solvers.exact.mincut import runs_in_turn
from stead.solvers.exact.reduction import not_steady, reduce
from stead.solvers.exact.series_reach import series_in_vain
from stead.solvers.registry import solver
from stead.solvers.solution import Solver

REDUCIBLE = 50_000  # units times devices that are reduced to find out how large a program is


@dataclass(frozen=True, slots=True)
class Tuning:
    """Shares, sizes and paces by which `auto` deals out its budget, with the reason for each."""

    # When time is short, what pays soonest comes first.
    hurry: float = 2e-4  # seconds per operator below which first answers and coarser graphs come before rules
    rule_share: float = 0.1  # for rules then: those that walk through trees of modules take long
    partitioning: float = 6e-5  # seconds per operator that a partitioner takes; it cannot be stopped
    series_seconds: float = 2e-3  # per operator that must be left for proofs on chains of blocks: search pays sooner
    quick_series: int = 300  # operators up to which they take next to no time, so that they are tried in any case
    little_seconds: float = 4.0  # that a step may need however few evaluations are counted
    moves_per_second: int = 4_000_000  # of annealing, to begin no round that could not end
    thrifty: int = 6000  # operators beyond which a second HEFT minds which device an operator makes best use of ...
    thrift: float = 10.0  # ... with this weight, where devices differ in that
    # Sizes beyond which a method would not come to an end.
    large: int = 20_000  # operators beyond which only what takes about linear time is tried
    huge: int = 200_000  # operators beyond which even constructions are but three
    tiny_program: int = 300  # units times devices that an integer program proves without a clock to stop it
    program_size: int = 6000  # and with one
    proof_units: int = 3000  # beyond which stages of full pipelines are neither enumerated nor ordered often
    # Shares of the time that is left, so that no phase starves those after it.
    start_share: float = 0.3  # for the solver that one asks to begin with: search is to go on from it
    construction_share: float = 0.35  # for all constructions: some take long on some graphs
    series_share: float = 0.1  # for proofs on chains of blocks: what is none keeps them busy to the end
    counted_series_share: float = 0.3  # the same of evaluations, of which they need few
    strip_share: float = 0.15  # for search on layers cut along time
    coarse_share: float = 0.5  # for search on coarser graphs, as finer ones profit from it
    ample_coarse_share: float = 0.15  # the same where `ample` evaluations are left, and on graphs searched window by
    # window unless time is short: there single moves get as far
    ample: int = 100_000
    first_share: float = 0.75  # for annealing before anything is to be proved: most proofs need a good incumbent
    program_share: float = 0.6  # for an integer program after a first round of annealing, which gives it its cutoff
    quick_program: int = 1300  # units times devices up to which a program proves in seconds what annealing has found
    dividing_share: float = 0.4  # for dividing anew before larger ones, where annealing gained nothing
    early_program: int = 2600  # units times devices beyond which it does not come to a bound in time
    program_seconds: float = 20.0  # for an integer program: what it has not proved by then it seldom does
    least_redividing: float = 4.0  # seconds for dividing anew, whatever the round before it took: less settles nothing
    # How search begins, goes on and ends.
    pool: int = 10  # placements that search begins with; a good end may begin at a poor one
    least_effort: int = 8  # evaluations per operator for each
    one_start: int = 40  # evaluations per operator below which there is one, as one that cools slowly gets further
    large_least_effort: int = 5000  # evaluations for each on graphs searched window by window: there starts decide
    one_round: float = 12.0  # efforts of a round: where less is left it is one, as slow cooling beats new starts
    attempt_effort: int = 200  # evaluations per operator of an attempt: beyond it other starts gain more than cooling
    least_attempts: float = 2.5  # attempts for which evaluations must be left; else there is one long round
    attempts: int = 6  # rounds until the effort of one is doubled; the last of them goes on from the best of the others
    last_attempt: float = 1.2  # of an attempt, below which what is left goes on from the best
    crossing_effort: int = 60  # evaluations per operator of a search from crossings of the best ...
    crossings: int = 6  # ... of which so many are drawn
    transfer_tries: int = 200  # evaluations for the order of transfers where the first round of search gains nothing
    stalled: float = 1e-3  # improvement of a round, relative, below which it was in vain
    vain_rounds: int = 3  # in a row, after which rounds end: each has twice the effort of the one before
    vain_restarts: int = 4  # new starts in a row, and ...
    vain_work: float = 2.0  # ... times the evaluations before the last gain, after which search ends before its budget
    kicks: int = 8  # times that climbing leaves the incumbent, as one new start
    kick_tries: int = 512  # placements without improvement before it leaves again
    call_tries: int = 20_000  # placements without improvement that end a new start on calls
    close: float = 1e-4  # gap that is not worth more rounds

    def __post_init__(self) -> None:
        if any(getattr(self, name) < 0 for name in self.__slots__):
            raise BadInput("auto: shares, sizes and paces are not negative")


def _never(problem: Problem, bound_seconds: float) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Step:
    """One solver of a phase and the share of the remaining budget that it may take."""

    name: str
    share: float = 1.0
    options: tuple[tuple[str, object], ...] = ()
    least_seconds: float = 0.0  # that must be left for one that cannot be stopped
    counted_share: float = 0.0  # where evaluations count and not seconds; 0: the same
    in_vain: Callable[[Problem, float], str] = field(default=_never, compare=False, repr=False)  # why, by the bound

    def solver(self) -> Solver:
        """The solver itself."""
        return solver(self.name, **dict(self.options))


def first_answers(problem: Problem) -> tuple[Step, ...]:
    """What takes next to no time and uses every device, for orders that are searched."""
    if not searches_orders(problem):
        return ()
    return Step("cut", 0.3), Step("heft", 0.3, (("bias", 1.0), ("average", "mean"), ("tied", False)))


def rules(problem: Problem, tuning: Tuning) -> tuple[Step, ...]:
    """What people do by hand."""
    quick = Step("single"), Step("even"), Step("balanced"), Step("greedy-support"), Step("fit-memory")
    return quick if len(problem.graph) > tuning.large else (*quick, Step("split"), Step("hf-sequential"))


def constructions(problem: Problem, tuning: Tuning) -> tuple[Step, ...]:
    """Quick ways to build a placement from nothing, the best one first where time may be short."""
    if isinstance(problem.objective, Latency) and problem.objective.execution != "dataflow":
        return ()
    if len(problem.graph) > tuning.huge:
        return Step("cut", 0.3), Step("chunks", 0.3), Step("dfs-sticky", 0.3), Step("heft")
    if searches_orders(problem):
        others = "m-etf", "peft", "dfs-sticky", "m-sct", "chunks", "cut"
        thrifts = len(problem.graph) > tuning.thrifty and not are_alike(problem)
        thrifty = (Step("heft", 0.5, (("thrift", tuning.thrift),)),) if thrifts else ()
        return Step("heft"), *thrifty, *(Step(name, 0.5) for name in others)
    built = (*(Step(name, 0.2) for name in ("chunks", "dfs-sticky", "heft")), Step("multilevel"))
    if isinstance(problem.objective, Throughput):
        return Step("mtkahypar", least_seconds=tuning.partitioning * len(problem.graph)), *built
    return built


def provers(problem: Problem, tuning: Tuning) -> tuple[Step, ...]:
    """Solvers that prove what they find, where the problem is small enough for them."""
    objective = problem.objective
    if isinstance(objective, Latency) and objective.execution == "sequential":
        return (Step("mincut"),)
    if len(problem.graph) > tuning.large:
        return ()
    if isinstance(objective, Throughput):
        if objective.microbatches is not None:
            return ()
        return (Step("linear-dp", 0.2, (("orders", 16 if problem.unit_count <= tuning.proof_units else 2),)),)
    if objective.execution == "offload":
        if problem.unit_count > 150:
            return (Step("offload-linear"),)  # its own local search is better than the climbing that comes last
        return Step("offload-linear", 0.6), Step("latency-mip", 0.6)
    if runs_in_turn(problem):
        return (Step("mincut", 0.5),)
    small = problem.unit_count <= 16 and len(problem.graph) <= 64 and len(problem.cluster) <= 8
    series = Step(
        "series", tuning.series_share, least_seconds=tuning.series_seconds * len(problem.graph),
        counted_share=tuning.counted_series_share,
        in_vain=series_in_vain if len(problem.graph) > tuning.quick_series else _never,
    )  # fmt: skip
    return (series, *((Step("latency-cp", 0.5),) if small else ()))


def late_provers(problem: Problem, tuning: Tuning) -> tuple[Step, ...]:
    """Solvers for full pipelines that take long to prove what search has often found before."""
    if not is_full_pipeline(problem) or problem.unit_count > tuning.proof_units:
        return ()
    return (Step("ideals", 0.3, (("max_pairs", 100_000_000), ("orders", 16))),)


def is_full_pipeline(problem: Problem) -> bool:
    """Whether the load of the busiest device is the objective."""
    return isinstance(problem.objective, Throughput) and problem.objective.microbatches is None


def searches_orders(problem: Problem) -> bool:
    """Whether search moves operators in an order, too."""
    objective = problem.objective
    return (
        isinstance(objective, Latency)
        and objective.execution == "dataflow"
        and not isinstance(objective.policy, PlacetoDispatch)
    )


def has_program_of(problem: Problem, choices: int) -> bool:
    """Whether an integer program has at most so many choices: units times devices, or what its reduction leaves."""
    most = problem.unit_count * len(problem.cluster)
    if most <= choices or most > REDUCIBLE or not_steady(problem):
        return most <= choices
    return reduce(problem, notion="any").count * len(problem.cluster) <= choices
