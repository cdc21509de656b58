"""TorchExecutor: any operator-level placement of a torch graph, inference or training, on workers of this machine.

    with TorchExecutor.of_zoo("zoo:resnet-50") as executor:
        burst = executor.burst(placement, runs=5)
        verdict = executor.check(placement)

Placements are of any graph whose operators have the names of `executor.graph`; names that nothing runs under are left
out. Results are the same, bit for bit, as those of one worker, as long as workers compute alike.

Workers may name other devices than "cpu" ("cuda:0", "mps", "xpu:0"): tensors then live there and cross through host
memory. This road is written against the same contract and was *not run on hardware*.
"""

from __future__ import annotations

import itertools
import math
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from stead.errors import BadInput, RunFailed, did_you_mean
from stead.graph import Graph
from stead.printing.wording import one_line
from stead.problem import Latency, Placement
from stead.readers import read
from stead.readers.torch.tape import Update
from stead.run.comparing import compare, tensor_from
from stead.run.composing import composed_seconds
from stead.run.cores import check_workers, default_workers
from stead.run.crew import GRACE_SECONDS, Answer, Crew, Workforce
from stead.run.executor import Burst, Contention, Numerics, TimingMode, Worker
from stead.run.instructions import (
    Alike,
    Crossing,
    Dependencies,
    Program,
    compile_program,
    receivers_of,
    stages,
    topological,
)
from stead.run.messages import Begin, Done, Go, Load, Ready
from stead.run.subject import FromPt2, FromZoo, Prepared, Subject, captured, ship
from stead.run.timing import BURST_SECONDS, PAUSE_SECONDS, by_plain_clock, was_busy
from stead.run.transport import layout_of, pages, store_order_is_kept
from stead.sim import simulate

KEPT_PROGRAMS, KEPT_WEIGHT_BYTES = 20, 2 * 2**30  # that stay bound: of training each keeps its own gradients
LEAST_KEPT = 4  # beside every worker alone
WARMUPS = 2
RINGS, NETWORK_RINGS = 2, 3  # parts of a slot in a pipeline; over a network one of them is on its way
DEADLINE_FACTOR, LEAST_DEADLINE_SECONDS = 10.0, 10.0
MOST_DEADLINE_SECONDS = 1e6  # systems wait for no more than some weeks
UNLIKE_TOLERANCE, BF16_TOLERANCE = 1e-4, 2e-2
UNLIKE_INPUTS = 3  # on which a placement must be wrong
LEAST_FLAGS = 2048
SLOWEST_NETWORK_BYTES_PER_SECOND = 1e6
Timing = Literal["auto", "normal"]


@dataclass(frozen=True, slots=True)
class _Loaded:
    number: int
    key: Any  # the same whenever the same program is loaded again
    program: Program
    rings: int


class TorchExecutor:
    """Runs placements of one torch model on pinned worker processes.

    `timing` "normal" never asks for real-time scheduling; `deadline_seconds` is for a whole burst, by default ten times
    what one worker would need. `crew` are workers that were started elsewhere, such as on several hosts; they are
    closed with the executor.
    """

    name = "torch"

    def __init__(
        self,
        subject: Subject | Prepared,
        workers: Sequence[Worker] = (),
        *,
        name: str = "",
        timing: Timing = "auto",
        deadline_seconds: float | None = None,
        oversubscribe: bool = False,
        piped: bool = False,
        crew: Workforce | None = None,
    ) -> None:
        if crew is None:
            self._workers = tuple(workers) or default_workers()
            check_workers(self._workers, oversubscribe=oversubscribe)
        else:
            self._workers = crew.workers
        self._subject = subject
        self.timing: Timing = timing
        self.deadline_seconds = deadline_seconds
        self.piped = piped or not store_order_is_kept()
        self._next = 1  # number of the next run
        self._flags = LEAST_FLAGS  # crossings that there is room for
        self._programs: dict[Any, _Loaded] = {}
        self._numbers = itertools.count(1)
        self._seconds: dict[Any, float] = {}  # by the key of a program, roughly; known also when it is loaded again
        self._checks = itertools.count(1)
        folder = Path(tempfile.mkdtemp(prefix="stead-run-"))
        self._crew: Workforce = crew or Crew(())
        try:
            given = ship(subject, name or subject.tape.trace.name, folder) if isinstance(subject, Prepared) else subject
            self.model_name = name or given.name
            if crew is None:
                self._crew = Crew(self._workers)
            self.not_independent, self.transport = self._crew.not_independent, self._crew.transport
            graph_path = folder / "graph.npz"
            ready = self._tell(
                {
                    w: Begin(given, worker, w, len(self._workers), str(graph_path) if w == 0 else "")
                    for w, worker in enumerate(self._workers)
                }
            )
            self._learn([ready[w].value for w in range(len(self._workers))], graph_path)
        except BaseException:
            self.close()
            raise
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @classmethod
    def of_module(
        cls,
        module: Any,
        inputs: Any,
        workers: Sequence[Worker] = (),
        *,
        loss_fn: Callable[..., Any] | None = None,
        targets: Sequence[Any] = (),
        update: Update = "adam",
        export: bool = False,
        name: str = "",
        **options: Any,
    ) -> TorchExecutor:
        """A live module: the forward pass, or with `loss_fn` a training step, as `from_capture` records it.

        `export` takes the operators of `from_torch` instead. The module stays as it is; the rest is for the executor.
        """
        found = captured(module, inputs, loss_fn, targets=targets, update=update, name=name, export=export)
        return cls(found, workers, name=name or found.tape.trace.name, **options)

    @classmethod
    def of_zoo(
        cls, text: str, workers: Sequence[Worker] = (), *, reading: Mapping[str, Any] | None = None, seed: int = 0,
        **options: Any,
    ) -> TorchExecutor:  # fmt: skip
        """A model of the zoo with random weights from a seed; `reading` are its options."""
        return cls(FromZoo(text, dict(reading or {}), seed), workers, **options)

    @classmethod
    def of_file(cls, path: str | Path, workers: Sequence[Worker] = (), **options: Any) -> TorchExecutor:
        """A `.pt2` file, with its weights and at the sizes of its example."""
        if not Path(path).is_file():
            raise BadInput(f"no file {path}")
        return cls(FromPt2(os.path.abspath(path)), workers, **options)

    def _learn(self, ready: Sequence[Ready], graph_path: Path) -> None:
        """Take note of what workers have become; all must have recorded the same."""
        first = ready[0]
        for worker, one in zip(self._workers, ready, strict=True):
            if one.sheet.fingerprint != first.sheet.fingerprint:
                raise RunFailed(f"worker {worker.name} recorded other operators than {self._workers[0].name}")
        self._sheet = first.sheet
        self._known = Dependencies(first.sheet)
        self._layouts = [one.layouts for one in ready]
        keys = [
            f"{worker.device}/{worker.dtype}/{hash(one.layouts)}"
            for worker, one in zip(self._workers, ready, strict=True)
        ]
        # Other devices than the processor cannot look into shared memory.
        self._alike = Alike(
            tuple(
                key if worker.device.startswith("cpu") else f"{key}/{w}"
                for w, (worker, key) in enumerate(zip(self._workers, keys, strict=True))
            )
        )
        self.readback: tuple[dict[str, Any], ...] = tuple(one.readback for one in ready)
        self._whole_seconds = max(one.seconds for one in ready)
        self._graph = read(graph_path).graph
        weights = int(self._graph.parameter_bytes.sum())
        self._most = max(LEAST_KEPT + len(self._workers), min(KEPT_PROGRAMS, KEPT_WEIGHT_BYTES // max(weights, 1)))
        self._position = {name: v for v, name in enumerate(first.sheet.operators)}
        for worker, found in zip(self._workers, self.readback, strict=True):
            if found["cores"] and tuple(found["cores"]) != worker.cores:
                raise RunFailed(f"worker {worker.name} runs on cores {found['cores']}, not on {list(worker.cores)}")

    # The contract

    @property
    def crew(self) -> Workforce:
        """The processes that run it."""
        return self._crew

    @property
    def graph(self) -> Graph:
        """What is placed."""
        return self._graph

    @property
    def workers(self) -> tuple[Worker, ...]:
        """In the order of the devices of a placement."""
        return self._workers

    @property
    def may_run_in_real_time(self) -> bool:
        """Whether bursts are in real time."""
        allowed = self.timing == "auto" and not self._crew.over_network and not self.not_independent
        return allowed and all(one["real_time"] for one in self.readback)

    def profile(self, worker: int, *, repeats: int) -> NDArray[np.float64]:  # [repeat, operator]
        """Seconds of every operator in place, in whole runs on one worker; 0 for what runs nothing."""
        loaded = self._load_one(worker)
        seconds = np.zeros((repeats, len(self._graph)))
        column = {name: v for v, name in enumerate(self._graph.operator_names)}
        columns = np.array([column.get(name, -1) for name in self._sheet.operators])
        operators = np.array(loaded.program.workers[worker].operators)
        own = operators >= 0
        at, lost = 0, 0
        while at < repeats:
            runs = min(repeats - at, self._runs_at_once(loaded))
            real_time = self._fits_real_time(loaded)
            done, burst = self._steps(loaded, runs=runs, each="wall" if real_time else "cpu")
            if burst.lost and lost < 3 * repeats:
                lost += 1
                continue
            if not done:
                raise RunFailed(f"profiling on {self._workers[worker].name}: {burst.lost}; try when it is less busy")
            for taken in done[worker].each:
                sums = np.bincount(operators[own], np.array(taken)[own], minlength=len(columns)) / 1e9
                known = columns >= 0
                seconds[at, columns[known]] = sums[known]
                at += 1
        return seconds

    def burst(self, placement: Placement, *, runs: int) -> Burst:
        """Warm up, then run the placed model `runs` times: seconds from the first begin to the last end of each.

        More runs than fit into one real-time burst are run in several, with a pause between them.
        """
        if runs < 1:
            raise BadInput(f"a burst has at least one run, got {runs}")
        return self._measured(self._load(placement), runs)

    def pipeline(self, placement: Placement, *, samples: int) -> Burst:
        """Send samples through the stages of a convex placement: seconds from one result to the next."""
        if samples < 2:
            raise BadInput(f"a pipeline needs at least two samples, got {samples}")
        loaded = self._load(placement, rings=NETWORK_RINGS if self._crew.over_network else RINGS)
        stages(loaded.program, [worker.name for worker in self._workers])
        parts: list[Burst] = []
        left = samples - 1  # from one result to the next
        while left > 0:
            count = min(1 + left, max(2, self._runs_at_once(loaded)))
            parts.append(self._pipelined(loaded, count))
            if parts[-1].lost:
                break
            left -= count - 1
        return _joined(parts)

    def _pipelined(self, loaded: _Loaded, samples: int) -> Burst:
        done, burst = self._steps(loaded, runs=samples, pipeline=True)
        if not done:
            return burst
        last = stages(loaded.program, [worker.name for worker in self._workers])[-1]
        ends = np.array(done[last].ends) / 1e9
        begin = min(one.begins[0] for one in done.values()) / 1e9
        timed = replace(burst, seconds=tuple(np.diff(ends).tolist()), first_seconds=float(ends[0] - begin))
        return by_plain_clock(timed)

    def check(self, placement: Placement, *, steps: int = 2) -> Numerics:
        """Run a fresh input placed and on one worker alone, and compare every result.

        A training step is run twice, so that a weight that did not come back would show. On unlike workers a placement
        is wrong where it is wrong on three inputs: rounding may turn a maximum or a ReLU the other way on one of them.
        """
        for _ in range(UNLIKE_INPUTS):
            verdict = self._compared(placement, steps)
            if verdict.passed or not verdict.tolerance:
                break
        return verdict

    def _compared(self, placement: Placement, steps: int) -> Numerics:
        """The same on one input.

        Where results on unlike workers are further apart than is allowed, each kind of worker runs alone, too: a step
        may make much of rounding (gradients that are zero but for it, batch normalisation of few values), and no
        placement is to blame.
        """
        seed = next(self._checks)
        count = steps if self._sheet.is_training else 1
        placed = self._results(self._load(placement), count, seed)
        reference = self._results(self._load_one(self.reference_worker), count, seed)
        tolerance = self._tolerance(placement)
        verdict = compare(placed, reference, tolerance)
        if verdict.passed or not tolerance:
            return verdict
        first_of_kind = {self._kernels(w): w for w in reversed(self._used(placement))}
        others = sorted(set(first_of_kind.values()) - {self.reference_worker})
        alone = [self._results(self._load_one(w), count, seed) for w in others]
        return compare(placed, reference, tolerance, alone)

    def close(self) -> None:
        """Give back workers, shared memory and scheduling class; more than once does no harm."""
        self._crew.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # Beside the contract

    @property
    def reference_worker(self) -> int:
        """The worker that others are compared with: the first in full precision without a limit on its kernels."""
        return min(
            range(len(self._workers)),
            key=lambda w: (self._workers[w].dtype != "fp32", bool(self._workers[w].isa), w),
        )

    def results(self, placement: Placement, *, steps: int = 1, input_seed: int = 0) -> dict[str, NDArray[Any]]:
        """What some steps of a placement give: outputs, loss, gradients and changed state, by name."""
        found = self._results(self._load(placement), steps, input_seed)
        return {label: tensor_from(*found[number]) for number, (label, _) in enumerate(self._sheet.results)}

    def train_losses(self, placement: Placement | None, *, steps: int = 5) -> tuple[float, ...]:
        """The loss of each step of training, from the first on; without a placement, on one worker alone."""
        number = next((n for n, (label, _) in enumerate(self._sheet.results) if label == "loss"), -1)
        if number < 0:
            raise BadInput(f"{self.model_name} has no loss; capture a training step")
        loaded = self._load_one(self.reference_worker) if placement is None else self._load(placement)
        done = self._finished(self._go(loaded, runs=steps, warmups=0, every_result=number))
        for one in done.values():
            if one.trail and one.trail[0] is not None:
                return tuple(float(tensor_from(*found).reshape(-1)[0]) for found in one.trail)
        raise RunFailed("no worker has the loss")

    def replicas(self, *, runs: int) -> Burst:
        """Every worker runs the whole model at the same time: seconds per sample of all of them together."""
        programs = {w: self._load_one(w) for w in range(len(self._workers))}
        parts: list[Burst] = []
        left = runs
        while left > 0:
            count = min(left, *(self._runs_at_once(loaded) for loaded in programs.values()))
            parts.append(self._replicated(programs, count))
            if parts[-1].lost:
                break
            left -= count
        return _joined(parts)

    def _replicated(self, programs: Mapping[int, _Loaded], runs: int) -> Burst:
        done, burst = self._steps_of(programs, runs=runs)
        if not done:
            return burst
        ends = np.array([one.ends for one in done.values()])
        begins = np.array([one.begins for one in done.values()])
        spans = (ends.max(axis=0) - begins.min(axis=0)) / 1e9 / len(self._workers)
        return by_plain_clock(replace(burst, seconds=tuple(spans.tolist())))

    def alone(self, worker: int, *, runs: int) -> Burst:
        """The whole model on one worker."""
        return self._measured(self._load_one(worker), runs)

    def threads(self, *, runs: int) -> Burst:
        """The whole model in one process with a thread for every core of all workers."""
        if self._crew.over_network:
            raise BadInput("one process cannot have the cores of several hosts")
        cores = tuple(sorted({core for worker in self._workers for core in worker.cores}))
        like = replace(self._workers[self.reference_worker], name=f"{len(cores)} threads", cores=cores)
        with TorchExecutor(
            self._subject, (like,), name=self.model_name, timing=self.timing, deadline_seconds=self.deadline_seconds
        ) as whole:
            return whole.alone(0, runs=runs)

    # Programs

    def devices_of(self, placement: Placement) -> list[int]:
        """The worker of every operator that is run, by name; nothing is guessed where the placement has none."""
        graph = placement.problem.graph
        count = len(placement.problem.cluster)
        if count > len(self._workers):
            raise BadInput(f"the placement has {count} devices, there are {len(self._workers)} workers; add some")
        devices = [-1] * len(self._sheet.operators)
        for name, d in zip(graph.operator_names, placement.devices.tolist(), strict=True):
            v = self._position.get(name)
            if v is not None:
                devices[v] = d
        missing = [name for name, d in zip(self._sheet.operators, devices, strict=True) if d < 0]
        if missing:
            near = did_you_mean(missing[0], graph.operator_names)
            raise BadInput(
                f"the placement does not place {len(missing)} of {len(devices)} operators of {self.model_name}, first "
                f"{one_line(missing[0], 60)!r}{near}; place the model that is run"
            )
        return devices

    def order_of(self, placement: Placement) -> tuple[int, ...]:
        """Operators by when each begins on the simulated time line; ties by number."""
        problem = placement.problem
        if not isinstance(problem.objective, Latency):
            problem = problem.with_objective(Latency())
            placement = Placement(problem, placement.devices)
        trace = simulate(problem, placement)
        timed = trace.timeline is not None
        starts: list[float] = trace.start_ticks.tolist() if timed else list(range(len(problem.graph)))
        priority = [0.0] * len(self._sheet.operators)
        for name, start in zip(problem.graph.operator_names, starts, strict=True):
            v = self._position.get(name)
            if v is not None:
                priority[v] = start
        return topological(self._known, priority)

    def _load(self, placement: Placement, rings: int = 1) -> _Loaded:
        devices = self.devices_of(placement)
        order = self.order_of(placement)
        return self._bound(("placed", tuple(devices), order, rings), devices, order, rings)

    def _load_one(self, worker: int) -> _Loaded:
        devices = [worker] * len(self._sheet.operators)
        order = topological(self._known, list(range(len(devices))))
        return self._bound(("one", worker), devices, order, 1)

    def _bound(self, key: Any, devices: Sequence[int], order: Sequence[int], rings: int) -> _Loaded:
        found = self._programs.get(key)
        if found is not None:
            return found
        program = compile_program(self._known, devices, order, self._layouts, self._alike)
        offsets = self._slots(program.crossings, rings)
        while len(self._programs) >= self._most:
            del self._programs[next(iter(self._programs))]
        loaded = self._programs[key] = _Loaded(next(self._numbers), key, program, rings)
        sent = {
            one.number: self._layouts[one.source][self._sheet.whole[one.storage]] for one in program.crossings
        }
        receivers = receivers_of(program, self._crew.host_of)
        self._tell(
            {
                w: Load(
                    loaded.number, program.workers[w], program.crossings, sent, offsets[self._crew.host_of[w]], rings,
                    self.piped, self._most, receivers,
                )
                for w in program.active
            }
        )  # fmt: skip
        return loaded

    def _slots(self, crossings: Sequence[Crossing], rings: int) -> dict[int, tuple[int, ...]]:
        """Offsets of slots by host, in larger segments if need be; a crossing has slots where it is made and read."""
        flags, hosts = self._flags, self._crew.host_of
        if len(crossings) > flags:
            flags = 2 * len(crossings)
        met = [{hosts[w] for w in (one.source, *one.readers)} for one in crossings]
        offsets, most = {}, 0
        for h in sorted(set(hosts)):
            sizes = [one.size_bytes if h in at else -1 for one, at in zip(crossings, met, strict=True)]
            found, size = layout_of(len(self._workers), sizes, rings, flags)
            offsets[h], most = tuple(found), max(most, size)
        if self._crew.segment_bytes < most or flags > self._flags:
            self._programs.clear()
            self._crew.new_segment(pages(5 * most // 4))
            self._flags = flags
        return offsets

    # Running

    def _tell(self, commands: Mapping[int, Any], seconds: float = 600.0) -> dict[int, Answer]:
        if not self._crew.is_open:
            raise RunFailed("the executor is closed")
        return self._crew.tell(commands, seconds=seconds)

    def _deadline(self, runs: int, workers: int) -> float:
        if self.deadline_seconds is not None:
            return self.deadline_seconds
        return max(LEAST_DEADLINE_SECONDS, DEADLINE_FACTOR * self._whole_seconds * runs * max(1, workers))

    def _sending_seconds(self, programs: Mapping[int, _Loaded]) -> float:
        """What a step may spend on crossings between hosts, over the slowest network that is worth using."""
        hosts = self._crew.host_of
        sent = 0
        for program in {loaded.number: loaded.program for loaded in programs.values()}.values():
            for one in program.crossings:
                sent += one.size_bytes * len({hosts[w] for w in one.readers} - {hosts[one.source]})
        return sent / SLOWEST_NETWORK_BYTES_PER_SECOND

    def _go(self, loaded: _Loaded, *, runs: int, warmups: int, **more: Any) -> dict[int, Answer]:
        return self._go_all(dict.fromkeys(loaded.program.active, loaded), runs=runs, warmups=warmups, **more)

    def _go_all(self, programs: Mapping[int, _Loaded], *, runs: int, warmups: int, **more: Any) -> dict[int, Answer]:
        first = self._next + (-self._next % 2)  # rings begin at the same part
        self._next = first + runs + warmups + 1
        active = tuple(programs)
        sending = (runs + warmups) * self._sending_seconds(programs)
        deadline = min(MOST_DEADLINE_SECONDS, self._deadline(runs + warmups, len(active)) + sending)
        commands = {
            w: Go(
                loaded.number, active, first, warmups, runs, deadline, more.get("real_time", False),
                **{key: value for key, value in more.items() if key != "real_time"},
            )
            for w, loaded in programs.items()
        }  # fmt: skip
        return self._tell(commands, seconds=deadline + GRACE_SECONDS)

    def _finished(self, answers: Mapping[int, Answer]) -> dict[int, Done]:
        """What workers did, all of them to the end."""
        late = [self._workers[w].name for w, answer in answers.items() if answer.kind != "done"]
        if late:
            raise RunFailed(f"{', '.join(late)}: not done before the deadline; try when the machine is less busy")
        return {w: answer.value for w, answer in answers.items()}

    def _steps(self, loaded: _Loaded, **more: Any) -> tuple[dict[int, Done], Burst]:
        return self._steps_of(dict.fromkeys(loaded.program.active, loaded), **more)

    def _steps_of(
        self, programs: Mapping[int, _Loaded], *, runs: int, pipeline: bool = False, each: str = ""
    ) -> tuple[dict[int, Done], Burst]:
        """Some steps in one go, and what there is to say about them; no steps where they are lost."""
        real_time = all(self._fits_real_time(loaded) for loaded in programs.values())
        warmups = min(self._warmups(loaded) for loaded in programs.values())
        mode: TimingMode = "fifo" if real_time else "quiet"
        before = self._crew.surroundings()
        answers = self._go_all(
            programs, runs=runs, warmups=warmups, real_time=real_time, pipeline=pipeline, each=each
        )
        if real_time:
            time.sleep(PAUSE_SECONDS)
        done = {w: answer.value for w, answer in answers.items() if answer.kind == "done"}
        contention = before.until(self._crew.surroundings(), sum(one.switches for one in done.values()))
        if len(done) < len(answers):
            late = [self._workers[w].name for w, answer in answers.items() if answer.kind == "late"]
            names = ", ".join(late or [self._workers[w].name for w in answers])
            return {}, Burst((), mode if not real_time else "fifo", contention, f"{names}: deadline passed")
        if real_time and not all(one.real_time for one in done.values()):
            real_time, mode = False, "quiet"
        return self._judged(done, mode, contention, each)

    def _judged(
        self, done: dict[int, Done], mode: TimingMode, contention: Contention, each: str
    ) -> tuple[dict[int, Done], Burst]:
        lost = ""
        if mode == "fifo":
            if any(one.overran for one in done.values()):
                lost = f"longer than a real-time burst of {BURST_SECONDS} s"
                for key in self._seconds:
                    self._seconds[key] *= 1.5
            elif contention.involuntary_switches:
                lost = f"interrupted {contention.involuntary_switches} times"
        elif each == "cpu":
            mode = "cputime"
        return ({} if lost else done), Burst((), mode, contention, lost)

    def _estimate(self, loaded: _Loaded) -> float:
        """Seconds of one step, from its processor time: others on the machine do not count."""
        if loaded.key not in self._seconds:
            done = self._finished(self._go(loaded, runs=1, warmups=1))
            self._seconds[loaded.key] = max(one.cpu[0] for one in done.values()) / 1e9
        return max(self._seconds[loaded.key], 1e-6)

    def _fits_real_time(self, loaded: _Loaded) -> bool:
        """Whether at least one step with a warm-up can be run in real time."""
        return self.may_run_in_real_time and 2 * self._estimate(loaded) <= BURST_SECONDS

    def _warmups(self, loaded: _Loaded) -> int:
        """Two, or one for steps of which a burst has no room for more."""
        return WARMUPS if (1 + WARMUPS) * self._estimate(loaded) <= BURST_SECONDS else 1

    def _runs_at_once(self, loaded: _Loaded) -> int:
        """How many steps fit into one burst."""
        if not self._fits_real_time(loaded):
            return 1_000_000
        return max(1, math.floor(0.95 * BURST_SECONDS / self._estimate(loaded)) - self._warmups(loaded))

    def _measured(self, loaded: _Loaded, runs: int) -> Burst:
        parts: list[Burst] = []
        left = runs
        while left > 0:
            count = min(left, self._runs_at_once(loaded))
            parts.append(self._measured_part(loaded, count))
            if parts[-1].lost:
                break
            left -= count
        return _joined(parts)

    def _measured_part(self, loaded: _Loaded, runs: int) -> Burst:
        done, burst = self._steps(loaded, runs=runs)
        if not done:
            return burst
        ends = np.array([one.ends for one in done.values()])
        begins = np.array([one.begins for one in done.values()])
        spans = (ends.max(axis=0) - begins.min(axis=0)) / 1e9
        timed = replace(burst, seconds=tuple(spans.tolist()))
        if self._crew.over_network:
            return by_plain_clock(timed)  # what goes over a network takes time that no processor spends
        if burst.timing_mode == "quiet" and was_busy(burst.contention, float(spans.sum())):
            return self._composed(loaded, runs)
        return timed

    def _composed(self, loaded: _Loaded, runs: int) -> Burst:
        """On a busy machine: processor time of every instruction, put together as if nobody else were there."""
        done, burst = self._steps(loaded, runs=runs, each="cpu")
        if not done:
            return burst
        seconds = [
            composed_seconds(loaded.program, {w: one.each[run] for w, one in done.items()}) for run in range(runs)
        ]
        return replace(burst, seconds=tuple(seconds), timing_mode="cputime")

    def _results(self, loaded: _Loaded, steps: int, seed: int) -> dict[int, Any]:
        done = self._finished(self._go(loaded, runs=steps, warmups=0, input_seed=seed, results=True))
        return {number: found for one in done.values() for number, found in one.results.items()}

    def _used(self, placement: Placement) -> list[int]:
        """The workers of a placement, and the one that it is compared with."""
        return sorted({*self.devices_of(placement), self.reference_worker})

    def _kernels(self, w: int) -> tuple[object, ...]:
        """What decides how a worker rounds."""
        worker = self._workers[w]
        environment = tuple(sorted(worker.environment.items()))
        return worker.dtype, worker.isa, worker.device.partition(":")[0], len(worker.cores), environment

    def _tolerance(self, placement: Placement) -> float:
        used = self._used(placement)
        if any(self._workers[w].dtype == "bf16" for w in used):
            return BF16_TOLERANCE
        return 0.0 if len({self._kernels(w) for w in used}) == 1 else UNLIKE_TOLERANCE


def _joined(parts: Sequence[Burst]) -> Burst:
    """Bursts of one placement as one; lost where one of them is."""
    if len(parts) == 1:
        return parts[0]
    lost = next((part.lost for part in parts if part.lost), "")
    contention = Contention(
        max(part.contention.load_average for part in parts),
        sum(part.contention.steal_ticks for part in parts),
        sum(part.contention.involuntary_switches for part in parts),
    )
    modes = {part.timing_mode for part in parts}
    mode: TimingMode = parts[0].timing_mode
    if len(modes) > 1:
        lost = lost or "the way of timing changed in between"
    seconds = () if lost else tuple(one for part in parts for one in part.seconds)
    return Burst(seconds, mode, contention, lost, parts[0].first_seconds)
