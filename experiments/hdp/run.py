"""HDP beside its controls: does it learn, how far does it come, and what does the same effort buy elsewhere?

    python experiments/hdp/run.py [tables|shown|checks|all] [--out experiments/hdp/results] [--quick]

`tables` computes and prints the tables of README.md, `shown` prints what is there of them, `checks` the acceptance
checks, one line each with the measured value. Cells that are already in the results are not computed again. `--quick`
takes one seed and few evaluations.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from comparison import Cells, Instance, Study, arguments, median_of, solved, told

from stead.learn.ground.ablation import varied
from stead.learn.hdp.method import HDP

LAB_BOOK = "experiments/hdp/README.md"
INSTANCES = (
    Instance("RNNLM-2 on 2 devices", "zoo:rnnlm-2?phase=train", 2),
    Instance("Inception-v3 on 2 devices", "zoo:inception-v3?phase=train", 2),
    Instance("GNMT-2 on 2 devices, tight memory", "zoo:gnmt-2?phase=train", 2, room=1.15),
)
EVALUATIONS = dict(zip((one.name for one in INSTANCES), (1000, 600, 300), strict=True))
VARIANTS = {
    "hdp": HDP(),
    "hdp, learning rate 0": HDP(learning_rate=0.0),
    "hdp from a random grouper": varied(HDP(), init="random"),
    "hdp, faithful": HDP(variant="faithful"),
}


def study(folder: Path, *, quick: bool) -> Study:
    """What the tables show."""
    return Study(
        Cells(folder),
        INSTANCES[:1] if quick else INSTANCES,
        {name: 60 if quick else limit for name, limit in EVALUATIONS.items()},
        VARIANTS,
        seeds=range(1) if quick else range(5),
        few=("hdp, faithful", "hdp from a random grouper"),
        polished="hdp",
        matched=("hdp",),
    )


def checks(own: Study) -> None:
    """The acceptance checks that need minutes; the others are tests."""
    for one in INSTANCES:
        pairs = list(
            zip(
                own.rows(one, "hdp"),
                own.rows(one, "hdp, learning rate 0"),
                own.rows(one, "random"),
                strict=True,
            )
        )
        won = sum(a["seconds"] < b["seconds"] for a, b, _ in pairs)
        ahead = sum(a["seconds"] < c["seconds"] for a, _, c in pairs)
        medians = [median_of([row[n] for row in pairs])[0] for n in range(3)]
        told(
            f"learning, {one.name}",
            medians[0] < min(medians[1:]),
            f"ahead of learning rate 0 on {won} of {len(pairs)} seeds, of random placements on {ahead}",
        )
    tight = INSTANCES[-1]
    expert = median_of(own.rows(tight, "expert"))[0]
    alone = median_of(own.rows(tight, "hdp"))[0]
    found = own.cells.get(
        "C11", lambda: solved("hdp", tight.problem(), seconds=120.0, updates=50, polish=True)
    )
    told(
        "C11",
        expert / found["seconds"] >= 1.2,
        f"{100 * (expert / found['seconds'] - 1):.1f} % faster than the expert with polish, "
        f"samples alone {100 * (expert / alone - 1):.1f} %",
    )
    shares = [row["network_share"] for one in INSTANCES for row in own.rows(one, "hdp")]
    told("time in the network", min(shares) > 0.8, f"at least {100 * min(shares):.1f} %")


def main() -> None:
    """Compute, then print."""
    given = arguments(__doc__ or "", Path(__file__).parent / "results")
    own = study(given.out, quick=given.quick)
    if given.what in ("tables", "all"):
        own.run()
    if given.what != "checks":
        if not given.quick:
            own.fill(LAB_BOOK)
        print("\n".join(line for one in own.instances for line in (f"### {one.name}", "", *own.table(one), "")))
    if given.what in ("checks", "all") and not given.quick:
        checks(own)


if __name__ == "__main__":
    main()
