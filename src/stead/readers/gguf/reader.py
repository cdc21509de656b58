"""GGUF files (llama.cpp) to graphs of layers, from the header alone.

    token_embd                                        looks up one row per token
    blk.0.attn                                        everything of a block up to its feed-forward part
    blk.0.ffn                                         a dense feed-forward part, or norm, router and shared experts
    blk.0.experts                                     all experts of the block, which only a few tokens wake
    output_norm, output                               a tied output reads the weights of token_embd

Costs are those of decoding: every step reads all weights once, 2 FLOPs for every element and sequence.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from stead.errors import BadInput
from stead.files import collector_paused
from stead.graph import KV_CACHE, GraphBuilder, OperatorId, TensorId
from stead.graph.kernels import Kernel
from stead.printing.wording import one_line, quoted, shown_path
from stead.readers.base import Model
from stead.readers.common.checked_values import Wrong, about
from stead.readers.common.op_costs import bytes_of_elements
from stead.readers.common.protobuf import mapped
from stead.readers.gguf.file import Header, TensorInfo, read_header
from stead.readers.hf.step import DEFAULT_CACHE, NOT_SAID
from stead.readers.known_formats import OfTable

__all__ = ["Gguf"]

MAX_BLOCKS = 2**16
MAX_PARTS = 1000  # files that one model is split into

_BLOCK = re.compile(r"(?P<part>(?:\w+\.)*?)blk\.(?P<number>\d{1,6})\.(?P<rest>.+)", re.ASCII)
_PIECE = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.ASCII | re.DOTALL)
_EXPERTS = re.compile(r"ffn_\w*?_(?:ch)?exps\b|ffn_(?:gate|up|down)\.\d+\.", re.ASCII)
_FEED_FORWARD = re.compile(
    r"ffn|exp_probs|post_ffw|pre_ffw|channel_mix|layer_output|mlp|ln2\b|ls2\b|nextn", re.ASCII
)
_AFTER = re.compile(r"output|cls|dense|post|mm\.|unembd|altup_unembd|proj", re.ASCII)
_LOOKUPS = re.compile(
    r"(?:per_layer_)?token_embd\.weight|position_embd\.weight|token_types\.weight", re.ASCII
)
_KEYS_AND_VALUES = re.compile(r"attn_(?:k|qkv|kv)\b|attn_kv_a|attn_k_b", re.ASCII)
_FIRST_PARTS = ("v.", "a.", "enc.")  # towers and encoders run before the rest
_MOST_EVERYWHERE = 8  # tensors that all blocks share
_ACTIVATION_BYTES = 4  # llama.cpp keeps activations in single precision


@dataclass(frozen=True, slots=True)
class Gguf(OfTable):
    """Reader of GGUF models (llama.cpp): attention, feed-forward part and experts of every block."""

    name: ClassVar[str] = "gguf"

    batch: int = 1  # sequences that are decoded together
    context: int = NOT_SAID  # tokens of each sequence whose keys and values are kept; by default up to 4096
    cache_bits: int = 16  # of one number among those

    def __post_init__(self) -> None:
        for name, least, most in (("batch", 1, 2**20), ("context", 0, 2**40), ("cache_bits", 1, 64)):
            number = getattr(self, name)
            if name == "context" and number == NOT_SAID:
                continue
            if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= most:
                raise BadInput(f"{name} must be a whole number from {least} to {most}, got {number!r}")

    def read(self, path: str | os.PathLike[str]) -> Model:
        """The graph in a file, or in all the files it is split into; no tensor is read."""
        with about(shown_path(path)), collector_paused():
            return _Assembly(_all_parts(Path(path)), self, one_line(Path(path).name).removesuffix(".gguf")).model()


def tensor_names(path: str | os.PathLike[str]) -> list[str]:
    """The names of all tensors of a model."""
    with about(shown_path(path)):
        return [tensor.name for tensor in _all_parts(Path(path)).tensors]


def _header(path: Path) -> Header:
    with mapped(path) as data:
        if not len(data):
            raise Wrong("the file is empty; download the model again")
        return read_header(data)


def _all_parts(path: Path) -> Header:
    """The header of a file; with the tensors of the others if it is one of several."""
    first = _header(path)
    count = first.metadata.get("split.count", 1)
    if not isinstance(count, int) or count <= 1:
        return first
    named = _PIECE.fullmatch(path.name)
    if count > MAX_PARTS or named is None or int(named["count"]) != count:
        raise Wrong(f"one of {count} files whose names should end in -00001-of-{count:05}.gguf; rename them")
    parts = []
    for number in range(1, count + 1):
        piece = path.with_name(f"{named['stem']}-{number:05}-of-{count:05}.gguf")
        if not piece.is_file():
            raise Wrong(f"part {number} of {count} is missing: {one_line(piece.name)}")
        parts.append(_header(piece))
    tensors = [tensor for part in parts for tensor in part.tensors]
    if len({tensor.name for tensor in tensors}) < len(tensors):
        raise Wrong("two of its parts hold the same tensor; do they belong together?")
    unknown = sum(part.unknown_types for part in parts)
    return Header(parts[0].metadata, tensors, all(part.is_complete for part in parts), unknown)


@dataclass(slots=True)
class _Unit:
    """Tensors that are used together, and so become one operator."""

    name: str
    kind: str
    module: str
    tensors: list[TensorInfo] = field(default_factory=list)


class _Block:
    """One block of the model."""

    def __init__(self, path: str) -> None:
        self.attention = _Unit(f"{path}.attn", "Attention", f"{path}.attn")
        self.feed_forward = _Unit(f"{path}.ffn", "FeedForward", f"{path}.ffn")
        self.experts = _Unit(f"{path}.experts", "Experts", f"{path}.experts")

    def add(self, rest: str, tensor: TensorInfo) -> None:
        """Put a tensor where it belongs; `rest` is its name inside the block."""
        if _EXPERTS.match(rest):
            self.experts.tensors.append(tensor)
        elif _FEED_FORWARD.match(rest):
            self.feed_forward.tensors.append(tensor)
        else:
            self.attention.tensors.append(tensor)


class _Assembly:
    """One header on its way to a Model."""

    def __init__(self, header: Header, reader: Gguf, stem: str) -> None:
        self.header = header
        self.reader = reader
        self.metadata = header.metadata
        self.architecture = self._text("general.architecture")
        self.build = GraphBuilder(self._text("general.name") or stem)
        self.parts: dict[str, dict[int, _Block]] = {}  # blocks by part of the model and number
        self.before = _Unit("token_embd", "Embedding", "token_embd")
        self.norm = _Unit("output_norm", "Norm", "output_norm")
        self.after = _Unit("output", "Output", "output")
        self.everywhere: list[TensorInfo] = []  # read by the attention of every block
        self.users: dict[str, tuple[int, list[OperatorId]]] = {}  # weight: bytes and operators
        self.width = 0
        trained = self._number("context_length") or DEFAULT_CACHE
        self.context = min(DEFAULT_CACHE, trained) if reader.context == NOT_SAID else reader.context
        # Blocks that predict further tokens are loaded, but plain decoding does not run them.
        ahead = self._number("nextn_predict_layers")
        self.first_idle = max(self._number("block_count") - ahead, 0) if ahead else MAX_BLOCKS
        self.is_idle = False

    def model(self) -> Model:
        """Sort tensors into units, then string the units together."""
        if not self.header.tensors:
            raise Wrong("holds no tensors, only metadata; is it a vocabulary?")
        for tensor in self.header.tensors:
            self._sort(tensor)
        self.width = self._width()
        self._connect()
        for name, (size, users) in self.users.items():
            self.build.weight(name, size_bytes=size, users=users)
        return Model(self.build.build(), notes=tuple(self._notes()))

    # Metadata

    def _text(self, key: str) -> str:
        value = self.metadata.get(key, "")
        return value if isinstance(value, str) else ""

    def _number(self, key: str, layer: int = 0, default: int = 0) -> int:
        """A number of the architecture, which may be a list with one for every layer."""
        value: Any = self.metadata.get(f"{self.architecture}.{key}", default)
        if isinstance(value, list):
            value = value[layer] if layer < len(value) else default
        whole = isinstance(value, int) and not isinstance(value, bool)
        return value if whole and 0 <= value <= 2**40 else default

    def _width(self) -> int:
        """Elements of the vector that goes from block to block."""
        if given := self._number("embedding_length"):
            return given
        for tensor in self.header.tensors:
            if tensor.name == "token_embd.weight" or tensor.name.endswith("attn_norm.weight"):
                return tensor.shape[0] if tensor.shape else 0
        return 0

    # Tensors into units

    def _sort(self, tensor: TensorInfo) -> None:
        found = _BLOCK.fullmatch(tensor.name)
        if found:
            number = int(found["number"])
            if number >= MAX_BLOCKS:
                raise Wrong(f"tensor {quoted(tensor.name)} belongs to block {number}; that makes no sense")
            blocks = self.parts.setdefault(found["part"], {})
            block = blocks.setdefault(number, _Block(f"{found['part']}blk.{number}"))
            block.add(found["rest"], tensor)
        elif tensor.name.startswith("rope_") and len(self.everywhere) < _MOST_EVERYWHERE:
            self.everywhere.append(tensor)
        elif re.match(r"(?:enc\.|dec\.)?output_norm", tensor.name):
            self.norm.tensors.append(tensor)
        elif _AFTER.match(re.sub(r"^(?:v|a|enc|dec)\.", "", tensor.name)):
            self.after.tensors.append(tensor)
        else:
            self.before.tensors.append(tensor)

    def _tied(self) -> list[TensorInfo]:
        """The table of the embedding, if the output has no weights of its own and there is one."""
        if any(tensor.name == "output.weight" for tensor in self.after.tensors) or not self.norm.tensors:
            return []
        return [tensor for tensor in self.before.tensors if tensor.name == "token_embd.weight"]

    # Units into operators

    def _connect(self) -> None:
        embedded = self._embedding() if self.before.tensors else None
        streams: tuple[TensorId, ...] = (embedded,) if embedded is not None else ()
        encoded: TensorId | None = None
        for part in sorted(self.parts, key=lambda part: (*(part != one for one in _FIRST_PARTS), part)):
            if encoded is not None and embedded is not None:
                streams = (embedded,)
            for number in sorted(self.parts[part]):
                streams = self._block(self.parts[part][number], number, streams, encoded)
            self.is_idle = False
            encoded = streams[-1] if part == "enc." and streams else None
        if self.norm.tensors:
            streams = (self._vector(self._unit(self.norm, streams)),)
        self.after.tensors += self._tied()
        self._logits(self._unit(self.after, streams))

    def _block(
        self, block: _Block, number: int, streams: tuple[TensorId, ...], encoded: TensorId | None
    ) -> tuple[TensorId, ...]:
        """Add a block; the tensors that the next one reads."""
        self.is_idle = number >= self.first_idle
        if block.attention.tensors:
            block.attention.tensors += self.everywhere
            reads = (*streams, *((encoded,) if encoded is not None else ()))
            streams = (self._vector(self._attention(block.attention, number, reads)),)
        if not block.experts.tensors:
            if block.feed_forward.tensors:
                streams = (self._vector(self._unit(block.feed_forward, streams)),)
            return streams
        routed = streams
        if block.feed_forward.tensors:
            router = self._unit(block.feed_forward, streams)
            routed = (self._vector(router),)
            if any("shexp" in tensor.name for tensor in block.feed_forward.tensors):
                streams = (*streams, self._vector(router))  # what the shared experts give
        return (*streams, self._vector(self._experts(block.experts, number, routed)))

    def _experts(self, unit: _Unit, number: int, reads: Sequence[TensorId]) -> OperatorId:
        """Experts of which every sequence wakes a few, each its own."""
        count, used = self._number("expert_count", number), self._number("expert_used_count", number)
        if not 0 < used <= count:
            return self._unit(unit, reads)
        awake = 1.0 - (1.0 - used / count) ** self.reader.batch  # expected, if sequences choose by chance
        return self._unit(
            unit, reads, share=awake, tokens=self.reader.batch * used / count, launches=count * awake
        )

    def _embedding(self) -> TensorId:
        """Lookups read one row per sequence; whatever else is there is read as a whole."""
        tables = [tensor for tensor in self.before.tensors if _LOOKUPS.fullmatch(tensor.name)]
        rest = [tensor for tensor in self.before.tensors if tensor not in tables]
        rows = self.reader.batch * sum(tensor.row_bytes for tensor in tables)
        added = self.build.operator(
            self.before.name,
            kind=self.before.kind,
            module=self.before.module,
            dtype=_dtype(rest or tables),
            flops=2.0 * self.reader.batch * sum(tensor.elements for tensor in rest),
            moved_bytes=rows + sum(tensor.size_bytes for tensor in rest) + self._vector_bytes(),
        )
        self._hold(self.before.tensors, added)
        return self._vector(added)

    def _attention(self, unit: _Unit, number: int, reads: Sequence[TensorId]) -> OperatorId:
        """A unit that also keeps keys and values, if it has any and there is a context."""
        heads = self._number("attention.head_count", number)
        kept = self._kept_per_token(unit, number, heads)
        reader = self.reader
        if not kept or not self.context or self.is_idle:
            return self._unit(unit, reads)
        tokens = reader.batch * self.context
        cache = tokens * bytes_of_elements(sum(kept), reader.cache_bits)
        widths = self._head_widths(number, heads)
        added = self._unit(unit, reads, flops=2.0 * tokens * heads * sum(widths), moved_bytes=float(cache))
        self.build.weight(f"{unit.name}.{KV_CACHE}", size_bytes=cache, users=[added])
        return added

    def _head_widths(self, number: int, heads: int) -> tuple[int, int]:
        """Elements of a key and of a value of one head."""
        default = self.width // heads if heads else 0
        return (
            self._number("attention.key_length", number, default),
            self._number("attention.value_length", number, default),
        )

    def _kept_per_token(self, unit: _Unit, number: int, heads: int) -> tuple[int, ...]:
        """Elements of keys and of values that one token leaves behind; none where there is no attention."""
        if not any(
            _KEYS_AND_VALUES.match(tensor.name.rpartition("blk.")[2].partition(".")[2])
            for tensor in unit.tensors
        ):
            return ()
        keys, values = self._head_widths(number, heads)
        if self._number("attention.key_length_mla"):  # one latent vector stands for keys and values
            return (self._number("attention.kv_lora_rank") + self._number("rope.dimension_count"),)
        shared = self._number("attention.head_count_kv", number, heads)
        return (shared * keys, shared * values)

    def _unit(
        self,
        unit: _Unit,
        reads: Sequence[TensorId],
        *,
        share: float = 1.0,  # of its weights that a step reads
        tokens: float | None = None,  # that an average weight works for; None: one of every sequence
        flops: float = 0.0,
        moved_bytes: float = 0.0,
        launches: float = 1.0,  # to expect
    ) -> OperatorId:
        """Add an operator that works with its weights, and on whatever else is given."""
        works = self.reader.batch if tokens is None else tokens
        if self.is_idle:
            share = works = 0.0
        read = share * sum(tensor.size_bytes for tensor in unit.tensors)
        work = 2.0 * works * sum(tensor.elements for tensor in unit.tensors) + flops
        moved = 0.0 if self.is_idle else read + (len(reads) + 1) * self._vector_bytes() + moved_bytes
        added = self.build.operator(
            unit.name,
            kind=unit.kind,
            reads=reads,
            module=unit.module,
            dtype=_dtype(unit.tensors),
            flops=work,
            moved_bytes=moved,
            kernels=() if launches == 1.0 or self.is_idle else (Kernel(work, moved, launches),),
        )
        self._hold(unit.tensors, added)
        return added

    def _hold(self, tensors: Sequence[TensorInfo], operator: OperatorId) -> None:
        for tensor in tensors:
            self.users.setdefault(tensor.name, (tensor.size_bytes, []))[1].append(operator)

    def _vector_bytes(self) -> int:
        return self.reader.batch * self.width * _ACTIVATION_BYTES

    def _vector(self, producer: OperatorId) -> TensorId:
        shape = (self.reader.batch, self.width)
        return self.build.tensor(producer, size_bytes=self._vector_bytes(), shape=shape, dtype="fp32")

    def _logits(self, producer: OperatorId) -> None:
        """What the model returns: one number per word and sequence."""
        table = next(
            (t for t in self.after.tensors if t.name in ("output.weight", "token_embd.weight")), None
        )
        words = table.shape[1] if table is not None and len(table.shape) > 1 else self.width
        shape = (self.reader.batch, words)
        size = self.reader.batch * words * _ACTIVATION_BYTES
        self.build.tensor(producer, size_bytes=size, kept=True, shape=shape, dtype="fp32")

    def _notes(self) -> Iterator[str]:
        total = sum(tensor.size_bytes for tensor in self.header.tensors)
        types = Counter(tensor.type_name for tensor in self.header.tensors)
        shown = ", ".join(f"{name} {count}" for name, count in types.most_common(8))
        blocks = sum(len(blocks) for blocks in self.parts.values())
        said = " (default; --context N)" if self.reader.context == NOT_SAID else ""
        yield f"decode: batch {self.reader.batch}, context {self.context}{said}"
        yield f"{len(self.header.tensors)} tensors of {total} bytes in {blocks} blocks: {shown}"
        if self.header.unknown_types:
            yield f"{self.header.unknown_types} tensors are of unknown types; their sizes follow from their places"
        if not self.header.is_complete:
            yield "the file is shorter than its tensors need; was it copied completely?"
        claimed = self._number("block_count")
        if claimed and claimed != len(self.parts.get("", {})) and "" in self.parts:
            yield f"it claims {claimed} blocks and holds {len(self.parts[''])}"
        if self.first_idle < MAX_BLOCKS:
            yield f"blocks from {self.first_idle} on predict further tokens; they are held but cost no time here"
        window = self._number("attention.sliding_window")
        if window and self.context > window:
            yield f"some layers may look back {window} tokens only; caches are counted for the whole context"


def _dtype(tensors: Sequence[TensorInfo]) -> str:
    """The type that most elements are computed in."""
    largest = max(tensors, key=lambda tensor: tensor.elements, default=None)
    kind = largest.type_name if largest is not None else "F32"
    return {"F32": "fp32", "F64": "fp64", "BF16": "bf16"}.get(kind, "fp16")
