"""The model of `stead demo`: a decoder-only transformer that writes the next token of a few conversations."""

from __future__ import annotations

from stead.graph import Graph, GraphBuilder, OperatorId, TensorId

LAYERS = 24
WIDTH = 4608
HIDDEN = 12288
VOCABULARY = 96_000
CONVERSATIONS = 4
TOKENS_SO_FAR = 2048  # of each conversation: what attention reads
TOKENS_AT_MOST = 8192  # of each conversation: what the caches are allocated for
FP16_BYTES = 2

_ROW_BYTES = CONVERSATIONS * WIDTH * FP16_BYTES  # one vector of the model's width per conversation


def demo_graph() -> Graph:
    """A graph of 7 billion parameters (14 GB) and caches (14 GB): too much for one card of 24 GB.

    Caches are allocated for long conversations and read only as far as these have got. So a byte of cache on
    a slow card costs less time than a byte of weights, but cutting there sends two small tensors per layer:
    where to cut is not obvious.

    >>> graph = demo_graph()
    >>> len(graph), round(sum(graph.weight_bytes.tolist()) / 1e9, 1)
    (219, 28.5)
    """
    return _Decoder().graph()


class _Decoder:
    def __init__(self) -> None:
        self.build = GraphBuilder("demo")

    def graph(self) -> Graph:
        table_bytes = VOCABULARY * WIDTH * FP16_BYTES
        # A lookup reads one row per conversation, not the table.
        ids = self._add("embed", "Embedding", (), parameter_bytes=table_bytes, moved_bytes=_ROW_BYTES)
        stream = self._output(ids, _ROW_BYTES)
        for layer in range(LAYERS):
            stream = self._mlp(f"layers.{layer}.mlp", self._attention(f"layers.{layer}.attention", stream))
        normed = self._norm("norm", "", stream)
        head = self._linear("head", "", normed, WIDTH, VOCABULARY)
        self._output(head, CONVERSATIONS * VOCABULARY * FP16_BYTES, kept=True)
        return self.build.build()

    def _attention(self, module: str, stream: TensorId) -> TensorId:
        normed = self._norm("norm", module, stream)
        qkv = self._output(self._linear("qkv", module, normed, WIDTH, 3 * WIDTH), 3 * _ROW_BYTES)
        read_tokens, kept_tokens = CONVERSATIONS * TOKENS_SO_FAR, CONVERSATIONS * TOKENS_AT_MOST
        core = self._add(
            "core", "Attention", (qkv,), module,
            flops=4.0 * read_tokens * WIDTH,
            moved_bytes=2 * read_tokens * WIDTH * FP16_BYTES + 4 * _ROW_BYTES,
        )  # fmt: skip
        self.build.weight(f"{module}.kv_cache", size_bytes=2 * kept_tokens * WIDTH * FP16_BYTES, users=[core])
        mixed = self._output(core, _ROW_BYTES)
        return self._output(self._linear("out", module, mixed, WIDTH, WIDTH, stream), _ROW_BYTES)

    def _mlp(self, module: str, stream: TensorId) -> TensorId:
        wide_bytes = CONVERSATIONS * HIDDEN * FP16_BYTES
        normed = self._norm("norm", module, stream)
        gate = self._output(self._linear("gate", module, normed, WIDTH, HIDDEN), wide_bytes)
        up = self._output(self._linear("up", module, normed, WIDTH, HIDDEN), wide_bytes)
        gated = self._add(
            "act",
            "SwiGLU",
            (gate, up),
            module,
            flops=8.0 * CONVERSATIONS * HIDDEN,
            moved_bytes=3 * wide_bytes,
        )
        wide = self._output(gated, wide_bytes)
        return self._output(self._linear("down", module, wide, HIDDEN, WIDTH, stream), _ROW_BYTES)

    def _norm(self, name: str, module: str, stream: TensorId) -> TensorId:
        scale_bytes = WIDTH * FP16_BYTES
        norm = self._add(
            name, "RMSNorm", (stream,), module,
            flops=4.0 * CONVERSATIONS * WIDTH,
            moved_bytes=2 * _ROW_BYTES + scale_bytes,
            parameter_bytes=scale_bytes,
        )  # fmt: skip
        return self._output(norm, _ROW_BYTES)

    def _linear(
        self, name: str, module: str, given: TensorId, width_in: int, width_out: int, *added: TensorId
    ) -> OperatorId:
        """A matrix product; tensors in `added` are summed into its result."""
        matrix_bytes = width_in * width_out * FP16_BYTES
        rows_bytes = CONVERSATIONS * (width_in + width_out * (1 + len(added))) * FP16_BYTES
        return self._add(
            name, "MatMul", (given, *added), module,
            flops=2.0 * CONVERSATIONS * width_in * width_out,
            moved_bytes=matrix_bytes + rows_bytes,
            parameter_bytes=matrix_bytes,
        )  # fmt: skip

    def _add(
        self,
        name: str,
        kind: str,
        reads: tuple[TensorId, ...],
        module: str = "",
        *,
        flops: float = 0.0,
        moved_bytes: int,
        parameter_bytes: int = 0,
    ) -> OperatorId:
        path = f"{module}.{name}" if module else name
        added = self.build.operator(
            path,
            kind=kind,
            reads=reads,
            flops=flops,
            moved_bytes=moved_bytes,
            module=module or name,
            dtype="fp16",
        )
        if parameter_bytes:
            self.build.weight(f"{path}.weight", size_bytes=parameter_bytes, users=[added])
        return added

    def _output(self, operator: OperatorId, size_bytes: int, *, kept: bool = False) -> TensorId:
        return self.build.tensor(operator, size_bytes=size_bytes, kept=kept)
