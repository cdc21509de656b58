"""Records: what was predicted of a placement beside what was measured, and everything that one needs to believe it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stead.costs import ErrorBar
from stead.errors import BadInput
from stead.printing.look import Look
from stead.printing.table import Cell, Column, in_seconds, table
from stead.problem import Placement
from stead.run.executor import TIMING_MODES, Burst, Contention, Numerics, TimingMode, Worker
from stead.run.predict import Predicted

LEAST_BURSTS = 5
DRIFT = 0.05  # of the reference from round to round: more is said
IDEAL_MARGIN = 0.02  # a speed-up may exceed the predicted one by this much, or by the noise


@dataclass(frozen=True, slots=True)
class Measured:
    """What clocks said of a placement. Never a prediction: those are `Predicted`."""

    seconds: ErrorBar | None  # of single runs in the bursts that count; None if none does
    bursts: int  # that count
    lost: int  # bursts that were disturbed or lost
    timing_mode: TimingMode
    contention: Contention = field(default_factory=Contention)  # the sum over all bursts, the largest load average
    reasons: tuple[str, ...] = ()  # why bursts were lost

    @staticmethod
    def of(bursts: Sequence[Burst]) -> Measured:
        """What bursts of one placement say."""
        valid = [burst for burst in bursts if not burst.lost]
        seconds = [one for burst in valid for one in burst.seconds]
        modes = {burst.timing_mode for burst in valid or bursts}
        mode = max(modes, key=TIMING_MODES.index) if modes else "quiet"
        all_of = [burst.contention for burst in bursts]
        contention = Contention(
            max((one.load_average for one in all_of), default=0.0),
            sum(one.steal_ticks for one in all_of),
            sum(one.involuntary_switches for one in all_of),
        )
        reasons = tuple(dict.fromkeys(burst.lost for burst in bursts if burst.lost))
        bar = ErrorBar.of(seconds) if seconds else None
        return Measured(bar, len(valid) if seconds else 0, len(bursts) - len(valid), mode, contention, reasons)

    @property
    def insufficient(self) -> bool:
        """Whether there are too few bursts to say anything."""
        return self.seconds is None or self.bursts < LEAST_BURSTS


@dataclass(frozen=True, slots=True)
class Gain:
    """How many times faster than something else, round by round, so that a drift of the machine cancels out."""

    low: float  # a tenth of the rounds is below
    middle: float
    high: float  # a tenth of the rounds is above
    noise: float = 1.0  # factor that one and the same placement differs by from itself in the same rounds

    @property
    def within_noise(self) -> bool:
        """Whether the rounds do not agree on faster or slower, or do no more than the same placement run twice."""
        return self.low <= 1.0 <= self.high or 1.0 / self.noise <= self.middle <= self.noise

    @property
    def word(self) -> str:
        """The factor, or that it means nothing."""
        return "in noise" if self.within_noise else f"{self.middle:.2f}x"


@dataclass(frozen=True, slots=True)
class Alternatives:
    """What is simpler than a placement, measured in the same rounds."""

    single: tuple[tuple[str, Measured], ...] = ()  # by worker
    replicas: Measured | None = None  # seconds per result of all of them together
    threads: Measured | None = None  # one process with all cores
    left_out: Mapping[str, str] = field(default_factory=dict)  # why something is missing


@dataclass(frozen=True, slots=True)
class Record:
    """One placement: what was predicted and what was measured, with the circumstances of both."""

    name: str
    placement: Placement
    workers: tuple[Worker, ...]
    objective: str
    predicted: Predicted  # with the best costs there are
    measured: Measured
    numerics: Numerics
    also_predicted: Mapping[str, Predicted] = field(default_factory=dict)
    gain: Gain | None = None  # over the fastest single device; None where nothing may be said
    ideal: float | None = None  # the gain that was predicted
    drift: float = 0.0  # of the reference: its slowest round by its fastest, less 1
    alternatives: Alternatives = Alternatives()
    transport: str = "shm"
    readback: tuple[Mapping[str, Any], ...] = ()  # by worker
    versions: Mapping[str, str] = field(default_factory=dict)
    emulated: bool = False
    not_independent: bool = False
    first_seconds: float | None = None  # of a pipeline: until its first result
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.predicted, Predicted) or not isinstance(self.measured, Measured):
            raise BadInput("a record needs what was predicted and what was measured, each in its own place")
        if self.gain is not None and (not self.numerics.passed or self.measured.insufficient):
            raise BadInput("no speed-up is told of a placement whose results are wrong or that ran too rarely")

    @property
    def ratio(self) -> float | None:
        """Fastest measured run by prediction: above 1 where it took longer than was thought."""
        bar = self.measured.seconds
        return None if bar is None else bar.minimum_seconds / self.predicted.seconds

    @property
    def ratio_of_median(self) -> float | None:
        """The same of the median."""
        bar = self.measured.seconds
        return None if bar is None else bar.median_seconds / self.predicted.seconds

    @property
    def verdict(self) -> str:
        """Whether the numbers mean anything, in a word or two."""
        if not self.numerics.passed:
            return "WRONG RESULTS"
        if self.measured.insufficient:
            return "insufficient"
        return "bit-identical" if self.numerics.relative == 0 else f"differs {self.numerics.relative:.0e}"

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader should know before believing it."""
        said = list(self.notes)
        if not self.numerics.passed:
            said.append(f"{self.name}: {self.numerics.fault}: its time means nothing")
        elif self.measured.insufficient:
            why = f" ({'; '.join(self.measured.reasons)})" if self.measured.reasons else ""
            said.append(
                f"{self.name}: insufficient: {self.measured.bursts} of {self.measured.bursts + self.measured.lost} "
                f"bursts count, {LEAST_BURSTS} are needed{why}"
            )
        elif self.measured.timing_mode == "disturbed":
            said.append(f"{self.name}: timed by the plain clock while others were at work: no gain is told from it")
        if self.drift > DRIFT:
            said.append(f"the reference drifted by {self.drift:.0%} between rounds: compare within rounds only")
        if self.gain is not None and self.ideal is not None:
            noise = max(IDEAL_MARGIN, self.gain.noise - 1.0)
            if self.gain.middle > self.ideal + noise:
                said.append(
                    f"{self.name}: {self.gain.middle:.2f}x is more than the {self.ideal:.2f}x that were predicted: "
                    "the baseline drifted, or its prediction is off; no reason to celebrate"
                )
        if self.not_independent:
            said.append(f"{self.name}: not_independent: the workers slow each other down")
        return tuple(said)

    def as_dict(self) -> dict[str, Any]:
        """The record as JSON holds it."""
        return {
            "name": self.name,
            "placement_hash": placement_hash(self.placement),
            "model_hash": self.placement.problem.graph.fingerprint,
            "devices": [self._device(d) for d in range(len(self.workers))],
            "transport": self.transport,
            "charge": self.predicted.charge,
            "objective": self.objective,
            "predicted": _predicted(self.predicted),
            "also_predicted": {name: _predicted(one) for name, one in self.also_predicted.items()},
            "measured": measured_data(self.measured),
            "ratio": self.ratio,
            "ratio_of_median": self.ratio_of_median,
            "gain": None if self.gain is None else self._gain(self.gain),
            "drift": self.drift,
            "timing_mode": self.measured.timing_mode,
            "composed": self.measured.timing_mode == "cputime" and len(set(self.placement.devices.tolist())) > 1,
            "contention": {
                "load_average": self.measured.contention.load_average,
                "steal_ticks": self.measured.contention.steal_ticks,
                "involuntary_switches": self.measured.contention.involuntary_switches,
            },
            "numerics": {
                "max_abs": self.numerics.max_abs,
                "rel": self.numerics.relative,
                "tol": self.numerics.tolerance,
                "sensitive": self.numerics.sensitive,
                "pass": self.numerics.passed,
            },
            "baselines": {
                "single": [{"device": name, **measured_data(one)} for name, one in self.alternatives.single],
                "replicas": _or_none(self.alternatives.replicas),
                "threads": _or_none(self.alternatives.threads),
                "left_out": dict(self.alternatives.left_out),
            },
            "first_seconds": self.first_seconds,
            "versions": dict(self.versions),
            "emulated": self.emulated,
            "not_independent": self.not_independent,
            "verdict": self.verdict,
            "warnings": list(self.warnings),
        }

    def _gain(self, gain: Gain) -> dict[str, Any]:
        figures = {"low": gain.low, "middle": gain.middle, "high": gain.high, "noise": gain.noise}
        return {**figures, "within_noise": gain.within_noise, "ideal": self.ideal}

    def _device(self, d: int) -> dict[str, Any]:
        worker = self.workers[d]
        back = self.readback[d] if d < len(self.readback) else {}
        return {
            "name": worker.name,
            "cores": list(worker.cores),
            "dtype": worker.dtype,
            "env": dict(worker.environment),
            "isa": worker.isa,
            "isa_readback": back.get("isa"),
            "threads_readback": back.get("threads"),
            "cores_readback": back.get("cores"),
        }


def placement_hash(placement: Placement) -> str:
    """The same for equal placements of operators of the same names."""
    digest = hashlib.sha256()
    for name, device in sorted(placement.by_name().items()):
        digest.update(f"{name}\0{device}\0".encode())
    return digest.hexdigest()[:16]


def measured_data(measured: Measured) -> dict[str, Any]:
    """What was measured, as JSON holds it."""
    bar = measured.seconds
    return {
        "median": None if bar is None else bar.median_seconds,
        "min": None if bar is None else bar.minimum_seconds,
        "quartile": None if bar is None else bar.quartile_seconds,
        "iqr": None if bar is None else bar.spread_seconds,
        "n": 0 if bar is None else bar.samples,
        "bursts": measured.bursts,
        "discarded": measured.lost,
        "insufficient": measured.insufficient,
        "timing_mode": measured.timing_mode,
    }


def _or_none(measured: Measured | None) -> dict[str, Any] | None:
    return None if measured is None else measured_data(measured)


def _predicted(predicted: Predicted) -> dict[str, Any]:
    return {"seconds": predicted.seconds, "costs": predicted.costs, "charge": predicted.charge}


def records_text(records: Sequence[Record], look: Look) -> list[str]:
    """One line per placement, then the simple alternatives."""
    unit = in_seconds(max(record.predicted.seconds for record in records))
    rows: list[list[Cell]] = [_row(record, unit) for record in records]
    columns = [
        Column("placement", least=12), Column("predicted", unit.unit, right=True),
        Column("min", unit.unit, right=True), Column("q25", unit.unit, right=True, drop=2),
        Column("median", unit.unit, right=True), Column("n/lost", right=True, drop=1),
        Column("ratio", right=True), Column("gain", right=True), Column("results"),
    ]  # fmt: skip
    first = records[0]
    lines = table(columns, rows, look)
    also = [*first.alternatives.single]
    also += [("all as replicas, per result", first.alternatives.replicas)] if first.alternatives.replicas else []
    also += [("one process, all cores", first.alternatives.threads)] if first.alternatives.threads else []
    beside: list[list[Cell]] = [
        [name, *(_figures(one, unit)), f"{one.seconds.samples if one.seconds else 0}/{one.lost}"] for name, one in also
    ]
    if beside:
        heads = [Column(title, unit.unit, right=True) for title in ("min", "q25", "median")]
        lines += ["", *table([Column("beside it", least=14), *heads, Column("n/lost", right=True)], beside, look)]
    return lines


def _figures(measured: Measured, unit: Any) -> list[str]:
    bar = measured.seconds
    if bar is None:
        return ["-", "-", "-"]
    return [unit(bar.minimum_seconds), unit(bar.quartile_seconds), unit(bar.median_seconds)]


def _row(record: Record, unit: Any) -> list[Cell]:
    measured = record.measured
    count = 0 if measured.seconds is None else measured.seconds.samples
    ratio = "-" if record.ratio is None else f"{record.ratio:.2f}"
    gain = "" if record.gain is None else record.gain.word
    results = "WRONG" if not record.numerics.passed else f"~{record.numerics.relative:.0e}"
    if record.numerics.passed:
        results = "too few" if measured.insufficient else "same" if record.numerics.relative == 0 else results
    return [
        record.name, unit(record.predicted.seconds), *_figures(measured, unit), f"{count}/{measured.lost}", ratio, gain,
        results,
    ]  # fmt: skip
