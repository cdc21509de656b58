"""A training step that was written down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from stead.graph import refreshed
from stead.readers.base import Model
from stead.readers.common.strict_json import collector_paused
from stead.readers.common.tied_updates import part_updates
from stead.readers.torch.aten import Value
from stead.readers.torch.aten_graph import Built, Trace, build_graph
from stead.readers.torch.exported import arguments_of, torch_package
from stead.readers.torch.replay import Replayed, replay

Update = Literal["none", "sgd", "adam"]
UPDATES: tuple[Update, ...] = get_args(Update)


@dataclass(slots=True)
class Tape:
    """A training step that was written down: a trace to make a graph of, and to run again on real tensors."""

    trace: Trace
    parameters: dict[str, Value] = field(default_factory=dict)
    buffers: dict[str, Value] = field(default_factory=dict)
    slots: dict[str, Value] = field(default_factory=dict)  # of the optimiser: "weight.exp_avg"
    inputs: list[Value] = field(default_factory=list)  # and targets, flat
    constants: dict[str, tuple[Value, Any]] = field(default_factory=dict)  # with the tensor itself
    outputs: list[Value] = field(default_factory=list)
    loss: Value | None = None
    gradients: dict[str, Value] = field(default_factory=dict)
    update: Update = "none"
    gaps: dict[int, tuple[int, ...]] = field(default_factory=dict)  # call: places of its results, if not all

    def build(self) -> Built:
        """The graph, and which operator runs each call."""
        with collector_paused():
            return build_graph(self.trace)

    def model(self) -> Model:
        """The graph with its remarks; the update of a tied weight is shared out among its uses.

        Updated weights reach their readers: operators of kind `Refresh`, of which no call is known, receive them.
        """
        built = self.build()
        return Model(refreshed(part_updates(built.graph)), notes=tuple(built.notes()))

    def replay(
        self,
        module: Any,
        inputs: Any,
        targets: Sequence[Any] = (),
        *,
        order: Sequence[int] | None = None,
    ) -> Replayed:
        """Run the same step on the parameters of a real module, which stay as they are.

        `order` lists the operators of `build().graph` in some topological order; without it they run as captured.
        """
        torch = torch_package("running captured graphs")
        return replay(torch, self, module, arguments_of(torch, inputs), targets, order)
