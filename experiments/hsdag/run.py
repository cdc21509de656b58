"""HSDAG, again: python experiments/hsdag/run.py [--quick] [--only WORD]

Runs what is missing in results/cells.json, then prints all tables and the acceptance checks with measured
values. Interrupt it whenever you like: cells that are done are not run again. `--quick` runs few seeds into a folder of
its own. Values are milliseconds of sequential latency, as the simulator says; "evaluations" counts every placement that
a method asked for, also such as it had asked for before.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
    kept = folder / "cells.json"
    done = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    for name, work in cells(given.quick).items():
        if name not in done and given.only in name:
            print(f"running {name}", flush=True)
            done[name] = work()
            write_whole(kept, done)
    if given.only:
        return 0
    told = checks(done)
    text = ["# Acceptance checks", "", "| check | | measured |", "|---|---|---|"]
    text += [f"| {name} | {'pass' if passed else 'FAIL'} | {measured} |" for name, passed, measured in told]
    document = "\n".join([*text, "", tables(done), ""])
    (folder / "README.md").write_text(document, encoding="utf-8")
    print(document)
    return 0 if all(passed for _, passed, _ in told) else 1


def write_whole(path: Path, cells: Mapping[str, Any]) -> None:
    """Write all cells, one per line, so that an interrupt leaves the old file or the new one."""
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(cells[name])}" for name in sorted(cells))
    half = path.with_suffix(".part")
    half.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    half.replace(path)


if __name__ == "__main__":
    raise SystemExit(main())
