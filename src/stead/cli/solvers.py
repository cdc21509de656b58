"""stead solvers: what can be asked for with --solver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stead.cli import options

if TYPE_CHECKING:
    from stead.solvers.registry import Entry


def solvers(json: options.Json = False) -> int:
    """List the solvers, their options and defaults."""

    from stead.cli.output import print_json
    from stead.cli.streams import look, show
    from stead.printing.table import Column, table
    from stead.solvers.registry import entries

    found = entries()
    if json:
        keys = ("name", "kind", "objectives", "does", "options")
        print_json([{key: getattr(one, key) for key in keys} for one in found])
        return 0
    does = Column("what it does, and its options", least=40, whole=True)
    columns = [Column("solver", least=12), Column("kind"), does]
    lines = []
    for one in found:
        lines += [[one.name, one.kind, one.does], *(["", "", text] for text in _more(one))]
    show("\n".join(table(columns, lines, look(), indent="")))
    return 0


def _more(one: Entry) -> list[str]:
    """What it takes, where that is not everything, and its options."""
    from stead.solvers.registry import OBJECTIVES

    takes = "" if one.objectives == OBJECTIVES else ", ".join(one.objectives)
    settings = "  ".join(f"{key}={value!r}" for key, value in one.options.items())
    return [*([f"for {takes}"] if takes else []), *([f"--set {settings}"] if settings else [])]
