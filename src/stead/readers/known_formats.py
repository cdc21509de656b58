"""Every format that can be read: how its files end and begin, and who reads it, known without importing any reader."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from stead.readers.base import Reader

ENTRY_POINTS = "stead.readers"
_BLANK = rb"[\xef\xbb\xbf \t\r\n]*"  # before text begins, with the mark of UTF-8
_ZIP = rb"PK\x03\x04"


@dataclass(frozen=True, slots=True)
class Format:
    """A kind of file; what it begins with and holds are patterns, as in `re`."""

    name: str
    suffixes: tuple[str, ...]  # of names of files, in lower case
    does: str
    at: str  # module:Class of its reader
    begins: bytes = b""
    holds: bytes = b""

    def sniff(self, head: bytes) -> bool:
        """Whether a file that starts like this is one of its own."""
        return re.match(self.begins, head) is not None and re.search(self.holds, head) is not None


READERS: dict[str, Format] = {
    one.name: one
    for one in (
        Format(
            "stead-json", (".json", ".json.gz"), "Reader of stead's own graphs.",
            "stead.readers.native.reader:JsonGraph",
            holds=rb'"format"\s*:\s*"stead\.graph"',
        ),
        Format(
            "stead-npz", (".npz",), "Reader of stead's own graphs in arrays.", "stead.readers.native.npz:GraphNpz",
            begins=_ZIP + rb"(?s:.{26})stead\.graph\.npy",  # the name in the header of the first member
        ),
        Format(
            "msr-fiddle", (".json", ".json.gz"), "Reader of throughput and latency inputs.",
            "stead.readers.msr.reader:MsrFiddle",
            holds=rb'"(?:maxFPGAs|maxSizePerFPGA)"\s*:',
        ),
        Format(
            "onnx", (".onnx",),
            "Reader of ONNX models: one operator per node, constants, views and bias additions folded.",
            "stead.readers.onnx.reader:Onnx",
            begins=rb"\x08[\x01-\x40][\x12\x1a\x22\x28\x32\x3a\x42]",  # IR version, then another field of a model
        ),
        Format(
            "openvino", (".xml",),
            "Reader of OpenVINO models: one operator per layer, constants, views and bias additions folded.",
            "stead.readers.openvino.reader:OpenVino",
            begins=_BLANK + rb"<", holds=rb"\A(?s:.{0,4091})<net ",
        ),
        Format(
            "gguf", (".gguf",),
            "Reader of GGUF models (llama.cpp): attention, feed-forward part and experts of every block.",
            "stead.readers.gguf.reader:Gguf",
            begins=rb"GGUF",
        ),
        Format(
            "pt2", (".pt2",),
            'Reader of exported PyTorch programs; `shapes` sets open dimensions, by symbol or as "x[0]".',
            "stead.readers.torch.pt2:Pt2",
            begins=_ZIP, holds=rb"/(?:data/(?:weights|constants)/|models/[^/]{1,200}\.json|archive_format)",
        ),
        Format(
            "huggingface", (".json",), "Reader of Hugging Face models.", "stead.readers.hf.reader:HuggingFace",
            begins=_BLANK + rb"\{", holds=rb'"(?:model_type|architectures)"\s*:',
        ),
    )
}  # fmt: skip


def plugged_in() -> Iterator[Reader]:
    """The readers of other packages."""
    from importlib import metadata  # takes longer to import than all the rest here

    for point in metadata.entry_points(group=ENTRY_POINTS):
        made: Reader = point.load()()
        yield made


class OfTable:
    """What a reader of this package need not say itself: how to tell its files, which the table knows."""

    __slots__ = ()
    name: ClassVar[str]

    @property
    def suffixes(self) -> tuple[str, ...]:
        """How names of its files end, in lower case."""
        return READERS[self.name].suffixes

    def sniff(self, head: bytes) -> bool:
        """Whether a file that starts like this is one of its own."""
        return READERS[self.name].sniff(head)
