"""python -m stead.cli: the command line without an installed script."""

from stead.cli.main import run

run()
