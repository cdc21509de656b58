"""stead formats: what can be read."""

from __future__ import annotations

from typing import Any

from stead.cli import options


def formats(json: options.Json = False) -> int:
    """List the model formats that can be read."""
    from stead.cli.output import print_json
    from stead.cli.streams import look, show
    from stead.printing.table import Column, table
    from stead.readers.known_formats import READERS, plugged_in

    rows: list[dict[str, Any]] = [
        {"name": one.name, "suffixes": list(one.suffixes), "does": one.does} for one in READERS.values()
    ]
    for reader in plugged_in():
        does = (type(reader).__doc__ or "").strip().partition("\n")[0]
        rows.append({"name": reader.name, "suffixes": list(reader.suffixes), "does": does})
    if json:
        print_json(rows)
        return 0
    columns = [Column("format"), Column("files"), Column("what it reads", least=30, whole=True)]
    lines = [[row["name"], " ".join(row["suffixes"]), row["does"]] for row in rows]
    show("\n".join(table(columns, lines, look(), indent="")))
    return 0
