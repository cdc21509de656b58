"""Train the Placeto policy that comes with the package, and ask it about families and sizes that it never saw.

    python experiments/pretrain/placeto.py train [--updates 400] [--seed 0] [--most-minutes 5]
    python experiments/pretrain/placeto.py table [--policy FILE] [--most-minutes 5]

`train` goes on from its checkpoint; run it again until it says that it is done. `table` keeps what it has in
results/placeto.json and prints run times over those of one device, memory aside.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from data import Row
from suite import EXPERTS, GDP12, equal, rule_seconds
from training import trained

from stead.learn.ground.ablation import varied
from stead.learn.ground.torch_state import network_arrays, one_thread
from stead.learn.placeto.method import SHIPPED, Placeto, PlacetoPolicy
from stead.placing.loading import load
from stead.problem import Latency, Problem
from stead.sim.bounds import best_bound

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
sys.path.insert(0, str(HERE.parent / "placeto"))

import cells  # noqa: E402

OPTIONS = varied(
    Placeto(policy="", groups=64, imitation=10_000, teacher=2000, threads=1), led=8
)  # no rewards
EVERY = 20  # updates between checkpoints

# Translation, transformer-xl and wavenet are held out, and of the other families the sizes and numbers of TESTS
ROWS = (
    Row("branches", "zoo:branches?seed=1", "2 equal", 0),
    Row("branches", "zoo:branches?seed=2", "4 equal", 0),
    Row("branches", "zoo:branches?seed=3", "8 equal", 0),
    Row("branches", "zoo:branches?seed=4", "4 unequal", 0),
    Row("enas-cnn", "zoo:enas-cnn?seed=0", "2 equal", 0),
    Row("enas-cnn", "zoo:enas-cnn?seed=1", "4 equal", 0),
    Row("enas-cnn", "zoo:enas-cnn?seed=2", "4 with slow links", 1.5),
    Row("enas-rnn", "zoo:enas-rnn?seed=0", "2 equal", 0),
    Row("enas-rnn", "zoo:enas-rnn?seed=1", "4 equal", 0),
    Row("enas-rnn", "zoo:enas-rnn?seed=2", "8 equal", 1.5),
    Row("enas-rnn", "zoo:enas-rnn?seed=3", "2 unequal", 0),
    Row("rnnlm", "zoo:rnnlm-2?steps=10,phase=train", "2 equal", 1.5),
    Row("rnnlm", "zoo:rnnlm-4?steps=10,phase=train", "4 with slow links", 1.5),
    Row("inception", "zoo:inception-v3?batch=16,phase=train", "2 equal", 1.5),
    Row("inception", "zoo:inception-v3?batch=16", "4 equal", 0),
    Row("transformers", "zoo:bert-base", "4 equal", 1.5),
    Row("transformers", "zoo:gpt2-small?phase=train", "2 unequal", 1.5),
)
TESTS = {
    "held-out families": ("nmt 1000", "nmt 1001", "nmt 1002", "GNMT-2", "Transformer-XL-2", "WaveNet 2x18"),
    "other graphs and sizes": ("branches 101", "enas-cnn 1000", "enas-rnn 1000", "RNNLM-2", "Inception-v3"),
}
COLUMNS = (
    "argmax", "best of 4", "untrained best of 4", "all starts", "untrained all starts", "starts", "random", "single",
    "expert", "heft", "climb", "bound",
)  # fmt: skip


def test_problem(name: str) -> Problem:
    """A graph of gdp12 with its memory limits, or number n of a family on 4 devices."""
    family, _, number = name.rpartition(" ")
    if number.isdigit():
        return load(f"zoo:{family}?seed={number}", equal(4)).problem(Latency())
    return next(one for one in GDP12 if one.name == name).problem()


def asked(policy: PlacetoPolicy, name: str, seed: int) -> dict[str, Any]:
    """One row of the table."""
    method, problem = policy.method, test_problem(name)
    untrained = network_arrays(method.network(2, seed + 1000))
    begin = time.process_time()
    with one_thread():
        found = cells.placed(problem, method, policy.arrays, untrained, seed)
    known = rule_seconds(problem, (*EXPERTS, "single"))
    single = 1e-3 * found["single"]
    return {
        **found, "single": known["single"] / single, "expert": min(known[one] for one in EXPERTS) / single,
        "bound": best_bound(problem).seconds / single, "devices": len(problem.cluster),
        "operators": len(problem.graph), "cpu": time.process_time() - begin,
    }  # fmt: skip


def table(path: Path, most_minutes: float, seed: int) -> None:
    """Fill the table, row by row, and print it."""
    begin, kept = time.monotonic(), RESULTS / "placeto.json"
    found: dict[str, dict[str, Any]] = json.loads(kept.read_text()) if kept.exists() else {}
    policy = PlacetoPolicy.load(path)
    for name in (name for names in TESTS.values() for name in names):
        if name in found:
            continue
        if time.monotonic() - begin > 60 * most_minutes:
            print("out of time; run it again to go on")
            break
        found[name] = asked(policy, name, seed)
        kept.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(told(found))


def told(found: dict[str, dict[str, Any]]) -> str:
    """Markdown; below 1 is faster than one device."""
    lines = [f"| graph | devices | {' | '.join(COLUMNS)} |", f"|---|---:|{'---:|' * len(COLUMNS)}"]
    for kind, names in TESTS.items():
        rows = [found[name] for name in names if name in found]
        for name in names:
            if name in found:
                values = [shown(found[name][key]) for key in COLUMNS]
                lines.append(f"| {name} | {found[name]['devices']} | {' | '.join(values)} |")
        if rows:
            medians = [shown(median(row[key] for row in rows)) for key in COLUMNS]
            lines.append(f"| median of {kind} | | {' | '.join(medians)} |")
    return "\n".join(lines)


def shown(value: float) -> str:
    """A ratio, or that it does not fit."""
    return f"{value:.3f}" if math.isfinite(value) else "no room"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["train", "table"])
    parser.add_argument("--policy", type=Path, help="to write, or to ask: that of the package if none is given")
    parser.add_argument("--updates", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most-minutes", type=float, default=5.0)
    given = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    if given.what == "table":
        table(given.policy or SHIPPED, given.most_minutes, given.seed)
        return
    done = trained(
        OPTIONS, ROWS, given.policy or RESULTS / "placeto.safetensors",
        updates=given.updates, seed=given.seed, most_minutes=given.most_minutes, every=EVERY,
    )  # fmt: skip
    raise SystemExit(0 if done else 3)


if __name__ == "__main__":
    main()
