"""stead solvers: what can be asked for with --solver."""

from __future__ import annotations

from stead.cli import options


def solvers(json: options.Json = False) -> int:
    """List the solvers, their options and defaults."""
    from dataclasses import fields

    from stead.cli.output import print_json
    from stead.errors import MissingExtra
    from stead.solvers import solver_class, solver_names

    rows = []
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
    width = max(len(str(row["name"])) for row in rows)
    for row in rows:
        print(f"{row['name']:<{width}}  {row['does']}")
        given = row["options"]
        if isinstance(given, dict) and given:
            print(f"{'':<{width}}    --set " + "  ".join(f"{key}={value!r}" for key, value in given.items()))
    return 0
