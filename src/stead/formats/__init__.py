"""Files of models: reading any known format, writing stead's own."""

from stead.formats.base import READERS, Model, Reader, formats, read, read_json, reader_of
from stead.formats.json_graph import JsonGraph, graph_as_dict, graph_from_dict, graph_text, write_graph
from stead.formats.msr_fiddle import MsrFiddle, host_cluster
from stead.formats.msr_split import is_split, read_split, split_placement, write_split

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
