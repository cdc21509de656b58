"""A policy proposes placements for problems it may never have seen; this is what it looks like from outside.

Notation    N operators, K devices, S samples
    placements         [S, N]  one device per operator, only such as the problem allows
    log_probabilities  [S]     of each placement under the policy
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, Protocol, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from stead.cluster.classes import SOLVER_DEVICES
from stead.coarsen import Grouping
from stead.errors import BadInput
from stead.learn.ground import tensor_file
from stead.learn.ground.network import Inputs, Network
from stead.learn.ground.priorities import Ranks
from stead.learn.ground.tensor_file import Arrays
from stead.learn.ground.torch_state import check_network, load_network, network_arrays, one_thread
from stead.printing.wording import one_line
from stead.problem import Problem

FORMAT = 1  # of policies of networks; another number is refused


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """A construction that was simulated so that a network can look at it."""

    name: str
    devices: NDArray[np.uint8]  # [group], or of a proposal [operator]
    seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """What looking at a problem has simulated: it is counted, and never owed to the network."""

    evaluations: int = 0
    cut: Cut | None = None  # the best of it


NOTHING_SEEN = Seen()


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """Placements a policy draws, the greedy one among them if it has one."""

    placements: NDArray[np.uint8]  # [sample, operator]
    log_probabilities: NDArray[np.float64]  # [sample]
    greedy: int = -1  # row of the greedy decode; -1 for none
    positions: NDArray[np.int32] | None = None  # [sample, operator]; priorities that come with each placement
    seen: Seen = NOTHING_SEEN  # what was simulated on the way

    def __post_init__(self) -> None:
        if self.placements.ndim != 2 or self.placements.dtype != np.uint8:
            raise BadInput(
                f"a proposal has rows of uint8 devices, got {self.placements.dtype} of {self.placements.shape}"
            )
        if self.log_probabilities.shape != (len(self.placements),):
            raise BadInput(f"{len(self.placements)} placements need as many log probabilities")
        if self.positions is not None and self.positions.shape != self.placements.shape:
            raise BadInput(f"positions {self.positions.shape} do not fit placements {self.placements.shape}")
        if not -1 <= self.greedy < len(self.placements):
            raise BadInput(f"there is no row {self.greedy} that could be the greedy one")


class Policy(Protocol):
    """Proposes placements for problems, also for such as it has never seen."""

    @property
    def name(self) -> str:
        """The name it is called by."""

    def unsupported(self, problem: Problem) -> str | None:
        """Why it cannot place `problem`, in one sentence; None if it can."""

    def looks(self, problem: Problem) -> int:
        """Simulations that a proposal takes at most, before anything of it is scored."""

    @property
    def taught(self) -> bool:
        """Whether it has learnt anything; what random weights draw is not owed to learning."""

    def propose(self, problem: Problem, samples: int, seed: int) -> Proposal:
        """Draw placements, the greedy one first; the same seed gives the same ones."""


class Method(Protocol):
    """A paper's method with its options: how to build its network, and which problems that can place."""

    @property
    def name(self) -> str:
        """The name it is called by."""

    def network(self, devices: int, seed: int) -> nn.Module:
        """A network with random weights."""

    def network_options(self) -> dict[str, object]:
        """Options without which the network could not be built again."""

    @classmethod
    def stored(cls, options: Mapping[str, object]) -> Method:
        """The method with the network options that a file names."""

    def misfit(self, devices: int, problem: Problem) -> str | None:
        """Why a network for `devices` devices cannot place `problem`; None if it can."""


class Reads(Method, Protocol[Inputs]):
    """A method whose network decides a whole placement from what it reads of a problem."""

    def network(self, devices: int, seed: int) -> Network[Inputs]:
        """A network with random weights."""

    def inputs(self, problem: Problem) -> tuple[Grouping, Inputs]:
        """The groups that are placed, and what the network reads."""

    def looks(self, problem: Problem) -> int:
        """Simulations that `inputs` makes at most."""

    def seen(self, inputs: Inputs) -> Seen:
        """Those that it has made."""


M = TypeVar("M", bound=Method)


class NetworkPolicy(Generic[Inputs]):
    """A trained network of a method, ready to place problems; a file of it holds arrays and JSON, no code."""

    def __init__(
        self, method: Reads[Inputs], network: Network[Inputs], devices: int, *, taught: bool = False
    ) -> None:
        self.method, self.network, self.devices, self.taught = method, network, devices, taught

    @property
    def name(self) -> str:
        """The name of the method."""
        return self.method.name

    def unsupported(self, problem: Problem) -> str | None:
        """What the method says about networks of this size."""
        return self.method.misfit(self.devices, problem)

    def looks(self, problem: Problem) -> int:
        """What the method says."""
        return self.method.looks(problem)

    def propose(self, problem: Problem, samples: int, seed: int) -> Proposal:
        """The greedy placement first, then samples."""
        with one_thread():
            grouping, inputs = self.method.inputs(problem)
            generator = torch.Generator().manual_seed(seed)
            actions, log_p = self.network.sample(inputs, samples, generator, greedy=True)
            rows = self.network.placements(inputs, actions).numpy().astype(np.uint8)
        devices, classes = rows[:, : grouping.count], rows[:, grouping.count :]
        positions = Ranks(problem, grouping).positions(classes) if classes.size else None
        seen = self.method.seen(inputs)
        if seen.cut is not None:
            lifted = grouping.lift(seen.cut.devices[None, :])[0]
            seen = replace(seen, cut=replace(seen.cut, devices=lifted))
        return Proposal(grouping.lift(devices), log_p.double().numpy(), greedy=0, positions=positions, seen=seen)

    def save(self, path: Path) -> None:
        """Write the policy to a file."""
        tensor_file.save(path, network_arrays(self.network), document_of(self.method, self.devices))

    @staticmethod
    def load(path: Path, kind: type[Reads[Inputs]]) -> NetworkPolicy[Inputs]:
        """Read a policy of a kind of method; a damaged or foreign file is BadInput."""
        method, arrays, devices, taught = read_policy(path, kind)
        network = method.network(devices, 0)
        load_network(network, arrays)
        return NetworkPolicy(method, network, devices, taught=taught)


def read_policy(path: Path, kind: type[M]) -> tuple[M, Arrays, int, bool]:
    """(method, its network, devices it is for, whether it has learnt) of a file; the arrays fit the network."""
    arrays, document = tensor_file.load(path)
    name = kind().name
    if document.get("policy") != name:
        raise BadInput(f"{path} holds a policy {document.get('policy')!r}, not one of {name}")
    try:
        method = cast(M, kind.stored(cast(Mapping[str, object], document["options"])))
        devices = document["devices"]
        if type(devices) is not int or not 1 <= devices <= SOLVER_DEVICES:
            raise ValueError(f"{devices!r} devices")
        with torch.device("meta"):  # sizes alone: what a file claims takes no memory before it is compared
            check_network(method.network(devices, 0), arrays)
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError) as error:
        reason = one_line(f"{type(error).__name__}: {error}", 200)
        raise BadInput(f"{path} does not say how its network is built: {reason}") from None
    trained = document.get("trained")
    if isinstance(trained, Mapping) and trained.get("format", FORMAT) != FORMAT:
        raise BadInput(f"{path} has format {trained['format']!r}, this stead reads {FORMAT}; train it again")
    return method, arrays, devices, not (isinstance(trained, Mapping) and trained.get("updates") == 0)


def other_width(devices: int, problem: Problem) -> str | None:
    """Why a network with one output per device cannot place `problem`; None if it can."""
    if devices == len(problem.cluster):
        return None
    return f"the policy was trained for {devices} devices, the problem has {len(problem.cluster)}"


def document_of(method: Method, devices: int) -> dict[str, object]:
    """What a file says about the network in it."""
    return {"policy": method.name, "options": method.network_options(), "devices": devices}


def allowed_only(problem: Problem, placements: NDArray[np.uint8]) -> bool:
    """Whether every operator of every row is on a device that may run it."""
    return bool(problem.allowed[np.arange(placements.shape[1])[None, :], placements].all())
