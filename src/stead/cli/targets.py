"""stead targets: what plans can be exported to."""

from __future__ import annotations

from stead.cli import options


def targets(json: options.Json = False) -> int:
    """List what plans can be exported to."""
    from stead.cli.output import print_json
    from stead.cli.streams import look, show
    from stead.export.targets import TARGETS
    from stead.printing.table import Column, table

    if json:
        print_json([
            {"name": name, "does": one.summary, "granularity": one.granularity, "checked": one.checked}
            for name, one in TARGETS.items()
        ])  # fmt: skip
        return 0
    columns = [
        Column("target"), Column("places"), Column("verified"), Column("what it writes", least=30, whole=True)
    ]  # fmt: skip
    lines = [[name, f"{one.granularity}s", one.checked, one.summary] for name, one in TARGETS.items()]
    show("\n".join(table(columns, lines, look(), indent="")))
    return 0
