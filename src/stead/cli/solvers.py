"""stead solvers: what can be asked for with --solver."""

from __future__ import annotations

from typing import Any

from stead.cli import options


def solvers(json: options.Json = False) -> int:
    """List the solvers, their options and defaults."""
    from dataclasses import fields

    from stead.cli.output import print_json
    from stead.cli.streams import look, show
    from stead.errors import MissingExtra
    from stead.printing.table import Column, table
    from stead.solvers import solver_class, solver_names

    rows: list[dict[str, Any]] = []
    for name in solver_names():
        try:
            kind = solver_class(name)
        except MissingExtra as error:
            rows.append({"name": name, "does": str(error), "options": {}})
            continue
        does = (kind.__doc__ or "").strip().splitlines()[0]
        rows.append({"name": name, "does": does, "options": {one.name: one.default for one in fields(kind)}})
    if json:
        print_json(rows)
        return 0
    lines = []
    for row in rows:
        lines.append([row["name"], row["does"]])
        if row["options"]:
            lines.append(["", "--set " + "  ".join(f"{key}={value!r}" for key, value in row["options"].items())])
    columns = [Column("solver", least=12), Column("what it does, and its options", least=40, whole=True)]
    show("\n".join(table(columns, lines, look(), indent="")))
    return 0
