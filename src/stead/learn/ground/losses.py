"""What is made small: REINFORCE and PPO over choices, baselines of rewards, and numbers that change over a run.

Notation    S samples, C choices that make up one placement
    log p  [S, C]  of every choice; their sum is that of the placement
    R      [S]     reward, higher is better         B  baseline
    A      [S]     R - B, standardised over the batch if the baseline is the batch mean; [S, C] for rewards per step
    w      [S]     1 where a sample teaches, 0 where it is only looked at

    REINFORCE    loss = -sum_s w sum_c A log p / sum_s w
    PPO          loss = -sum_s w sum_c min(r A, clip(r, 1 - eps, 1 + eps) A) / sum_s w      r = p / p_old per choice
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Linear:
    """A number that goes from `start` to `end` over `updates` and stays there.

    >>> Linear(1.0, 0.0, 10).at(5)
    0.5
    """

    start: float
    end: float = 0.0
    updates: int = 300

    def at(self, version: int) -> float:
        """Its value at an update."""
        share = min(1.0, version / self.updates) if self.updates > 0 else 1.0
        return self.start + share * (self.end - self.start)


def reinforce_loss(log_p: Tensor, advantage: Tensor, weight: Tensor) -> Tensor:
    """-mean of A log p over the samples that count."""
    gain = (_per_choice(advantage, log_p) * log_p).sum(dim=1)
    return -(weight * gain).sum() / weight.sum().clamp(min=1e-12)


def ppo_loss(log_p: Tensor, old: Tensor, advantage: Tensor, weight: Tensor, clip: float) -> Tensor:
    """Clipped surrogate per choice; `old` is log p when the samples were drawn."""
    each = _per_choice(advantage, log_p)
    ratio = (log_p - old).exp()
    gain = torch.minimum(ratio * each, ratio.clamp(1 - clip, 1 + clip) * each).sum(dim=1)
    return -(weight * gain).sum() / weight.sum().clamp(min=1e-12)


def advantages(
    reward: NDArray[np.float64], weight: NDArray[np.float64], baseline: float | None
) -> NDArray[np.float64]:
    """R - B for a given baseline; without one the batch mean, standardised; 0 where the weight is."""
    teaches = weight > 0
    if not teaches.any():
        return np.zeros_like(reward)
    if baseline is not None:
        return np.where(teaches, reward - baseline, 0.0)
    centred = np.where(teaches, reward - reward[teaches].mean(), 0.0)
    standardised: NDArray[np.float64] = centred / (centred[teaches].std() + 1e-8)
    return standardised


def moved_average(average: float | None, rewards: NDArray[np.float64], decay: float) -> float | None:
    """The moving average after a batch; the mean of the first batch if there was none."""
    if not len(rewards):
        return average
    mean = float(rewards.mean())
    return mean if average is None else decay * average + (1 - decay) * mean


def _per_choice(advantage: Tensor, log_p: Tensor) -> Tensor:
    return advantage if advantage.dim() == log_p.dim() else advantage[:, None]
