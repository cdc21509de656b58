"""The version of stead, stated once in the package's metadata."""

from importlib.metadata import version

__version__ = version("stead")
