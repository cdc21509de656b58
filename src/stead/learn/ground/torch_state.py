"""Networks and optimisers as plain arrays, and back to the same bits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from stead.errors import BadInput
from stead.learn.ground.tensor_file import Arrays

NETWORK, OPTIMISER = "network.", "adam."
KEPT = 7 * 2**20  # floats: a block that the C library still takes as a measure of what to keep, which ends at 32 MiB


def network_arrays(module: nn.Module) -> Arrays:
    """Copies of all parameters, by name."""
    return {f"{NETWORK}{name}": value.detach().numpy().copy() for name, value in module.state_dict().items()}


def load_network(module: nn.Module, arrays: Arrays) -> None:
    """Set all parameters; what does not fit is BadInput."""
    module.load_state_dict(check_network(module, arrays))


def check_network(module: nn.Module, arrays: Arrays) -> dict[str, Tensor]:
    """The parameters for a network, by name, each of the type and shape it must have and finite; BadInput otherwise."""
    with torch.device("cpu"):
        found = {
            name.removeprefix(NETWORK): torch.from_numpy(np.asarray(array).copy())
            for name, array in arrays.items()
            if name.startswith(NETWORK)
        }
    wanted = module.state_dict()
    if found.keys() != wanted.keys() or any(
        (found[name].shape, found[name].dtype) != (wanted[name].shape, wanted[name].dtype) for name in wanted
    ):
        raise BadInput(
            "the parameters in the file are of another network; give the options it was trained with"
        )
    if not all(bool(torch.isfinite(value).all()) for value in found.values()):
        raise BadInput("the parameters in the file are not all finite")
    return found


def optimiser_arrays(optimiser: torch.optim.Optimizer) -> Arrays:
    """All that the optimiser remembers."""
    slots = optimiser.state_dict()["state"]
    return {
        f"{OPTIMISER}{n}.{key}": value.numpy().copy()
        for n, slot in slots.items()
        for key, value in slot.items()
    }


def load_optimiser(optimiser: torch.optim.Optimizer, arrays: Arrays) -> None:
    """Go on from what `optimiser_arrays` gave."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, array in arrays.items():
        if name.startswith(OPTIMISER):
            _, number, key = name.split(".")
            state.setdefault(int(number), {})[key] = torch.from_numpy(np.asarray(array).copy())
    optimiser.load_state_dict({**optimiser.state_dict(), "state": state})


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch on one thread: sums in one order, the same bits on every machine with the same kernels."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.empty(KEPT)  # freed at once: from here on blocks up to this size are used again, not given back every time
    try:
        yield
    finally:
        torch.set_num_threads(before)
