"""What the training loop asks of a network that decides a whole placement at once.

Notation    S samples, A numbers of one action, C choices that make up one placement, G groups, K devices
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

Inputs = TypeVar("Inputs")  # what a network reads of a problem


class Network(nn.Module, ABC, Generic[Inputs]):
    """A network that decides a whole placement and tells how likely its choices were."""

    @abstractmethod
    def sample(
        self, inputs: Inputs, samples: int, generator: torch.Generator, *, greedy: bool = False
    ) -> tuple[Tensor, Tensor]:
        """(actions [S, A], log p [S]); greedy: the first row takes the likeliest choice everywhere."""

    @abstractmethod
    def likelihood(self, inputs: Inputs, actions: Tensor) -> tuple[Tensor, Tensor]:
        """(log p [S, C], entropy [S, C]) of given actions."""

    @abstractmethod
    def placements(self, inputs: Inputs, actions: Tensor) -> Tensor:
        """Rows that the scorer takes: the device of every group [S, G]."""

    @abstractmethod
    def renamed(self, inputs: Inputs, actions: Tensor, names: Tensor) -> Tensor:
        """The actions that give the same rows with other names [S, K] of devices."""
