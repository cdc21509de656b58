"""stead zoo: models that can be placed by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from stead.cli import options

if TYPE_CHECKING:
    from stead.workloads import Family
    from stead.workloads.cache import Entry

_NONE = "-"


def zoo(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="A model or a family, to see its options.")
    ] = None,
    json: options.Json = False,
) -> int:
    """List the models that can be placed by name, as in `stead place zoo:gnmt-8?batch=64,phase=train`."""
    from stead.cli.output import print_json
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
        print(f"\nsynthetic: {', '.join(synthetic)}\n`stead zoo NAME` shows options.")
    else:
        _print_options(families, synthetic)
    return 0


def _known(name: str) -> dict[str, Entry | None]:
    """What is known about a model without capturing it, by mode."""
    from stead.workloads import parse
    from stead.workloads.cache import catalogue
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
    print(f"{'':<18} {'parameters':>12}   {'operators':>9} {'':>9}   {'TFLOP':>9}")
    print(f"{'':<18} {'':>12}   {'inference':>9} {'training':>9}   {'inference':>9} {'training':>9}")
    for family in families:
        for name in family.names:
            entries = list(_known(name).values())
            parameters = next((f"{entry.parameters / 1e6:.1f} M" for entry in entries if entry), _NONE)
            operators = " ".join(f"{entry.operators if entry else _NONE:>9}" for entry in entries)
            flops = " ".join(f"{entry.flops / 1e12:>9.3f}" if entry else f"{_NONE:>9}" for entry in entries)
            print(f"{name:<18} {parameters:>12}   {operators}   {flops}")


def _print_options(families: list[Family], synthetic: list[str]) -> None:
    from stead.workloads.families import text_of
    from stead.workloads.synthetic import family_options

    for family in families:
        print(f"\n{family.shown}: {family.about}")
        for key, option in family.options.items():
            multiple = f", a multiple of {option.multiple_of}" if option.multiple_of else ""
            print(f"  {key:<14} {text_of(option.default):<9} {option.allowed}{multiple}")
        print("  phase          infer     infer or train")
        print("  update         adam      none, sgd or adam; of training alone")
    for name in synthetic:
        print(f"{name}: synthetic")
        for key, default in family_options(name).items():
            print(f"  {key:<14} {text_of(default)}")
