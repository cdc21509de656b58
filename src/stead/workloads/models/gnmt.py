"""Google's neural machine translation: LSTM encoder and decoder with attention, unrolled over the steps.

Wu et al., "Google's Neural Machine Translation System", 2016. The first encoder layer runs in both directions; encoder
and decoder have residual connections; attention asks with the state of the first decoder layer, and its answer goes to
every decoder layer. Modules `encoder.3` and `decoder.3` are layer 3 of each side.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stead.workloads.models.building_blocks import Built, CrossEntropy, LSTMCell, tokens


class Attention(nn.Module):
    """Additive attention of one step (Bahdanau et al., 2015)."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.query = nn.Linear(hidden, hidden, bias=False)
        self.score = nn.Parameter(torch.randn(hidden))

    def forward(self, state: Tensor, keys: Tensor, memory: Tensor) -> Tensor:
        energy = torch.matmul(torch.tanh(self.query(state).unsqueeze(1) + keys), self.score)
        weights = torch.softmax(energy, dim=-1)
        return torch.bmm(weights.unsqueeze(1), memory).squeeze(1)


class BothWays(nn.Module):
    """The first encoder layer: one cell reads from the front, one from the back."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.forwards = LSTMCell(inputs, hidden)
        self.backwards = LSTMCell(inputs, hidden)

    def forward(self, steps: list[Tensor]) -> list[Tensor]:
        ahead = _unrolled(self.forwards, steps)
        back = _unrolled(self.backwards, reversed(steps))[::-1]
        return [torch.cat(pair, dim=-1) for pair in zip(ahead, back, strict=True)]


def _unrolled(cell: LSTMCell, steps: Iterable[Tensor]) -> list[Tensor]:
    """The outputs of one layer over all steps."""
    outputs: list[Tensor] = []
    state: tuple[Tensor, Tensor] | None = None
    for x in steps:
        state = cell(x, *(state or cell.start(x)))
        outputs.append(state[0])
    return outputs


class GNMT(nn.Module):
    """One call per layer and step."""

    def __init__(self, layers: int, hidden: int, vocabulary: int, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.source_embedding = nn.Embedding(vocabulary, hidden)
        self.target_embedding = nn.Embedding(vocabulary, hidden)
        self.encoder = nn.ModuleList([BothWays(hidden, hidden)])
        for layer in range(1, layers):
            self.encoder.append(LSTMCell(hidden if layer > 1 else 2 * hidden, hidden))
        width = hidden if layers > 1 else 2 * hidden
        self.keys = nn.Linear(width, hidden, bias=False)
        self.attention = Attention(hidden)
        self.decoder = nn.ModuleList([LSTMCell(hidden + width, hidden) for _ in range(layers)])
        self.projection = nn.Linear(hidden, vocabulary)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:  # [batch, step] -> [batch, step, word]
        memory = self._encode(source)
        return self._decode(target, memory, self.keys(memory))

    def _encode(self, source: Tensor) -> Tensor:
        embedded = self.source_embedding(source)
        steps = [embedded[:, t] for t in range(source.shape[1])]
        for layer, cells in enumerate(self.encoder):
            given = [self._dropped(x) for x in steps]
            outputs = _unrolled(cells, given) if isinstance(cells, LSTMCell) else cells(given)
            steps = [x + y for x, y in zip(steps, outputs, strict=True)] if layer > 1 else outputs
        return torch.stack(steps, dim=1)

    def _decode(self, target: Tensor, memory: Tensor, keys: Tensor) -> Tensor:
        embedded = self.target_embedding(target)
        states = [cell.start(embedded) for cell in self.decoder if isinstance(cell, LSTMCell)]
        context = memory.new_zeros(len(target), memory.shape[-1])
        scores = []
        for t in range(target.shape[1]):
            x = embedded[:, t]
            for layer, cell in enumerate(self.decoder):
                states[layer] = cell(self._dropped(torch.cat([x, context], dim=-1)), *states[layer])
                output = states[layer][0]
                if layer == 0:
                    context = self.attention(output, keys, memory)
                x = x + output if layer > 1 else output
            scores.append(self.projection(x))
        return torch.stack(scores, dim=1)

    def _dropped(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout) if self.training and self.dropout else x


def build(*, layers: int, steps: int, batch: int, hidden: int, vocabulary: int, dropout: float) -> Built:
    """The model, a batch of sentence pairs and the loss of predicting the translation."""
    module = GNMT(layers, hidden, vocabulary, dropout)
    inputs = (tokens(batch, steps, vocabulary), tokens(batch, steps, vocabulary))
    return Built(module, inputs, CrossEntropy(tokens(batch, steps, vocabulary)))
