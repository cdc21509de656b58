"""HSDAG, again: python experiments/hsdag/run.py [--quick] [--only WORD]

Runs what is missing under results/, one file per cell, then prints all tables and the acceptance checks with measured
values. Interrupt it whenever you like: cells that are done are not run again. `--quick` runs few seeds into a folder of
its own. Values are milliseconds of sequential latency, as the simulator says; "evaluations" counts every placement that
a method asked for, also such as it had asked for before.
"""

from __future__ import annotations

import argparse
import json

from cells import cells
from checks import checks
from suite import HERE
from tables import tables


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="few seeds, a minute or two, into results-quick/"
    )
    parser.add_argument("--only", default="", help="run cells whose name contains this, print nothing else")
    given = parser.parse_args()
    folder = HERE / ("results-quick" if given.quick else "results")
    folder.mkdir(exist_ok=True)
    done = {}
    for name, work in cells(given.quick).items():
        path = folder / f"{name.replace(' ', '_')}.json"
        if not path.exists() and given.only in name:
            print(f"running {name}", flush=True)
            path.write_text(json.dumps(work(), indent=1) + "\n", encoding="utf-8")
        if path.exists():
            done[name] = json.loads(path.read_text(encoding="utf-8"))
    if given.only:
        return 0
    told = checks(done)
    text = ["# Acceptance checks", "", "| check | | measured |", "|---|---|---|"]
    text += [f"| {name} | {'pass' if passed else 'FAIL'} | {measured} |" for name, passed, measured in told]
    document = "\n".join([*text, "", tables(done), ""])
    (folder / "README.md").write_text(document, encoding="utf-8")
    print(document)
    return 0 if all(passed for _, passed, _ in told) else 1


if __name__ == "__main__":
    raise SystemExit(main())
