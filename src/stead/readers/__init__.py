"""Files of models: reading any known format, writing stead's own.

Names are imported when they are first used: a reader that a file does not need is not loaded.
"""

from typing import TYPE_CHECKING

from stead.lazy import first_use

if TYPE_CHECKING:
    from stead.readers.base import Model, Reader, formats, read, read_json, reader_of
    from stead.readers.known_formats import READERS
    from stead.readers.msr.expert_split import is_split, read_split, split_placement, write_split
    from stead.readers.msr.reader import MsrFiddle, host_cluster
    from stead.readers.native.reader import JsonGraph, graph_as_dict, graph_from_dict, graph_text, write_graph

_HOME = {
    "base": ("Model", "Reader", "formats", "read", "read_json", "reader_of"),
    "known_formats": ("READERS",),
    "msr.expert_split": ("is_split", "read_split", "split_placement", "write_split"),
    "msr.reader": ("MsrFiddle", "host_cluster"),
    "native.reader": ("JsonGraph", "graph_as_dict", "graph_from_dict", "graph_text", "write_graph"),
}
__getattr__ = first_use(__name__, {name: f"{__name__}.{home}" for home, names in _HOME.items() for name in names})

__all__ = [
    "READERS",
    "JsonGraph",
    "Model",
    "MsrFiddle",
    "Reader",
    "formats",
    "graph_as_dict",
    "graph_from_dict",
    "graph_text",
    "host_cluster",
    "is_split",
    "read",
    "read_json",
    "read_split",
    "reader_of",
    "split_placement",
    "write_graph",
    "write_split",
]
