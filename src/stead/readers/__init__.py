"""Files of models: reading any known format, writing stead's own."""

from stead.readers.base import READERS, Model, Reader, formats, read, read_json, reader_of
from stead.readers.msr.expert_split import is_split, read_split, split_placement, write_split
from stead.readers.msr.reader import MsrFiddle, host_cluster
from stead.readers.native.reader import JsonGraph, graph_as_dict, graph_from_dict, graph_text, write_graph

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
