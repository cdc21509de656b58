"""stead zoo: models that can be placed by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from stead.cli import options

if TYPE_CHECKING:
    from stead.workloads import Family
    from stead.workloads.graph_cache import Entry

_NONE = "-"


def zoo(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="A model or a family, to see its options.")
    ] = None,
    json: options.Json = False,
) -> int:
    """List the models that can be placed by name, as in `stead place zoo:gnmt-8?batch=64,phase=train`."""
    from stead.cli.output import print_json
    from stead.cli.streams import print_lines
    from stead.report.text import line
    from stead.workloads import FAMILIES, parse
    from stead.workloads.synthetic import ALIASES
    from stead.workloads.synthetic import FAMILIES as SYNTHETIC
    from stead.workloads.zoo import split_name

    plain, _ = split_name(name or "")
    families, synthetic = list(FAMILIES.values()), list(SYNTHETIC)
    if plain in SYNTHETIC or plain in ALIASES:
        families, synthetic = [], [plain]
    elif plain:
        families, synthetic = [FAMILIES[parse(plain).family]], []
    if json:
        print_json(_document(families, synthetic))
        return 0
    if families:
        _print_table(families)
    if name is None:
        print()
        print_lines([line("synthetic", ", ".join(synthetic)), line("options", "`stead zoo NAME` shows them")])
    else:
        _print_options(families, synthetic)
    return 0


def _known(name: str) -> dict[str, Entry | None]:
    """What is known about a model without capturing it, by mode."""
    from stead.workloads import parse
    from stead.workloads.graph_cache import catalogue
    from stead.workloads.zoo import MODES

    return {mode: catalogue().get(parse(name, phase=mode).fingerprint) for mode in MODES}


def _document(families: list[Family], synthetic: list[str]) -> dict[str, Any]:
    from dataclasses import asdict

    from stead.workloads.synthetic import family_options

    return {
        "families": [
            {
                "name": family.name,
                "about": family.about,
                "options": {key: option.default for key, option in family.options.items()},
                "models": {
                    name: {mode: asdict(entry) if entry else None for mode, entry in _known(name).items()}
                    for name in family.names
                },
            }
            for family in families
        ],
        "synthetic": [{"name": name, "options": family_options(name)} for name in synthetic],
    }


def _print_table(families: list[Family]) -> None:
    from stead.cli.streams import look, show
    from stead.printing.table import Column, table

    columns = [Column("model", least=12), Column("parameters", "million", right=True)]
    columns += [Column("operators", mode, right=True) for mode in ("inference", "training")]
    columns += [Column("TFLOP", mode, right=True) for mode in ("inference", "training")]
    rows = []
    for family in families:
        for name in family.names:
            entries = list(_known(name).values())
            parameters = next((f"{entry.parameters / 1e6:.1f}" for entry in entries if entry), _NONE)
            operators = [str(entry.operators) if entry else _NONE for entry in entries]
            flops = [f"{entry.flops / 1e12:.3f}" if entry else _NONE for entry in entries]
            rows.append([name, parameters, *operators, *flops])
    show("\n".join(table(columns, rows, look(), indent="")))


def _print_options(families: list[Family], synthetic: list[str]) -> None:
    from stead.cli.streams import look, show
    from stead.printing.table import Column, table
    from stead.workloads.families import text_of
    from stead.workloads.synthetic import family_options

    columns = [Column("option"), Column("default"), Column("may be", least=20, whole=True)]
    for family in families:
        rows = [
            [key, text_of(option.default), f"{option.allowed}{_multiple(option.multiple_of)}"]
            for key, option in family.options.items()
        ]
        rows.append(["phase", "infer", "infer or train"])
        rows.append(["update", "adam", "none, sgd or adam; of training alone"])
        print(f"\n{family.shown}: {family.about}")
        show("\n".join(table(columns, rows, look(), indent="  ")))
    for name in synthetic:
        print(f"{name}: synthetic")
        rows = [[key, text_of(default), ""] for key, default in family_options(name).items()]
        show("\n".join(table(columns, rows, look(), indent="  ")))


def _multiple(of: str) -> str:
    return f", a multiple of {of}" if of else ""
