"""`python -m stead` does what `stead` does."""

from stead.cli.main import run

if __name__ == "__main__":
    run()
