"""Facts of every policy that comes with the package, read from the files, into docs/learned/cards.md.

python experiments/cards.py
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pages import ROOT, fill

from stead.learn.ground import tensor_file

FOLDER = ROOT / "src" / "stead" / "learn" / "pretrained"
TITLES = ("file", "policy", "numbers", "learned from", "seed", "updates", "evaluations")


def facts(path: Path) -> list[str]:
    """A row of the table."""
    arrays, document = tensor_file.load(path)
    trained = document["trained"]
    assert isinstance(trained, Mapping)
    size = sum(array.size for array in arrays.values())
    if "recipe" in trained:  # rules
        recipe, members = trained["recipe"], trained["members"]
        seen = sum(round(member["share"] * trained["problems"]) for member in members)
        learned = f"up to {seen:,} made-up problems, {len(members)} rules"
        if added := trained.get("added"):  # by experiments/walk/longer.py
            learned += f"; then {added['rules']} more from up to {added['problems']:,}"
        counted = [f"{recipe['seed']}", f"{recipe['generations']} generations of the first rule"]
        return [path.name, str(document["policy"]), f"{size:,}", learned, *counted, f"{trained['walks']:,} walks"]
    graphs = [graph["name"] for graph in trained["graphs"]]
    made = all(name.startswith("made ") for name in graphs)
    learned = f"{len(graphs):,} made-up problems" if made else f"{len(graphs)} graphs"
    counted = [str(trained["seed"]), f"{trained['updates']:,}", f"{trained['evaluations']:,}"]
    return [path.name, str(document["policy"]), f"{size:,}", learned, *counted]


def main() -> None:
    """Write the table."""
    lines = [f"| {' | '.join(TITLES)} |", "|---|---|---:|---|---:|---:|---:|"]
    lines += [f"| {' | '.join(facts(path))} |" for path in sorted(FOLDER.glob("*.safetensors"))]
    fill("docs/learned/cards.md", "files", lines)


if __name__ == "__main__":
    main()
