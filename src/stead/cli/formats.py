"""stead formats: what can be read."""

from __future__ import annotations

from stead.cli import options


def formats(json: options.Json = False) -> int:
    """List the model formats that can be read."""
    from stead.cli.output import print_json
    from stead.formats import formats as readers

    rows = []
    for name, reader in readers().items():
        does = (type(reader).__doc__ or "").strip().splitlines()[0]
        rows.append({"name": name, "suffixes": list(reader.suffixes), "does": does})
    if json:
        print_json(rows)
        return 0
    width = max(len(str(row["name"])) for row in rows)
    for row in rows:
        print(f"{row['name']:<{width}}  {' '.join(row['suffixes'])}  {row['does']}")
    return 0
