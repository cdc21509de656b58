"""A recurrent language model: embedding, LSTM layers unrolled over the steps, a projection at every step.

Zaremba et al., "Recurrent Neural Network Regularization", 2014; the unrolled form is what placement papers place.
"""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stead.workloads.models.building_blocks import Built, CrossEntropy, LSTMCell, tokens


class RNNLM(nn.Module):
    """One operator call per layer and step."""

    def __init__(self, layers: int, hidden: int, vocabulary: int, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.cells = nn.ModuleList([LSTMCell(hidden, hidden) for _ in range(layers)])
        self.projection = nn.Linear(hidden, vocabulary)

    def forward(self, words: Tensor) -> Tensor:  # [batch, step] -> [batch, step, word]
        embedded = self.embedding(words)
        states = [cell.start(embedded) for cell in self.cells if isinstance(cell, LSTMCell)]
        scores = []
        for t in range(words.shape[1]):
            x = embedded[:, t]
            for layer, cell in enumerate(self.cells):
                states[layer] = cell(self._dropped(x), *states[layer])
                x = states[layer][0]
            scores.append(self.projection(self._dropped(x)))
        return torch.stack(scores, dim=1)

    def _dropped(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout) if self.training and self.dropout else x


class FusedRNNLM(nn.Module):
    """The same model with `nn.LSTM`: what people write."""

    def __init__(self, layers: int, hidden: int, vocabulary: int, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.lstm = nn.LSTM(hidden, hidden, layers, batch_first=True, dropout=dropout)
        self.projection = nn.Linear(hidden, vocabulary)

    def forward(self, words: Tensor) -> Tensor:
        hidden, _ = self.lstm(self.embedding(words))
        scores: Tensor = self.projection(hidden)
        return scores


def build(
    *, layers: int, steps: int, batch: int, hidden: int, vocabulary: int, dropout: float, fused: bool = False
) -> Built:
    """The model, a batch of sentences and the loss of predicting the next word."""
    kind = FusedRNNLM if fused else RNNLM
    module = kind(layers, hidden, vocabulary, dropout)
    return Built(module, (tokens(batch, steps, vocabulary),), CrossEntropy(tokens(batch, steps, vocabulary)))


build_fused = partial(build, fused=True)
