"""Opinions that are learnt on one large problem: the network becomes the best of what was drawn around it.

Notation as in opinion_loop.py; W of `say` begins where the policy left it, s is how far a shake moves opinions apart.

A walk with w + X u is the walk of the network whose W is W + X, but for rounding. So where one of the pairs of an
update is shorter than the walk of the network as it is, the network becomes that one (a (1 + 2P) evolution strategy).
Pairs are shaken by strengths around s, and s becomes the one that helped. Slopes, which many graphs together give a
direction to (opinion_loop.py), say little on one large graph: shakes that are small enough change next to no decision,
and there is no time for many. On a few thousand operators slopes are as good, and better where equal devices have names
(ColocRL), for which embeddings are learnt along.

Some kinds of walks leave opinions little to decide, such as those that keep all users of a weight together. Where
nothing has helped for long, the next kind is walked, with the opinions that there are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from stead.learn.ground.task import Inputs, Task
from stead.learn.ground.tensor_file import Arrays
from stead.learn.ground.training_loop import Clock, Step, mean_of
from stead.learn.walk.opinion_loop import Opined, OpinionLoop, OpinionTraining, lengths, opined, scorer_of

BEGIN = 0.5  # s of the notation
SPREAD = 0.5, -1.0  # powers of ten by which the pairs of an update are shaken more strongly and less
LEAST, MOST = 0.02, 4.0
TINY = 1e-9
VAIN = 16  # updates in a row that did not help, before the next kind of walk


class OpinionClimb(OpinionLoop[Inputs]):
    """Learns on one problem, by selection; at learning rate 0 all is the same but that nothing is kept."""

    def __init__(
        self,
        network: nn.Module,
        thinks: Opined[Inputs],
        tasks: Sequence[Task[Inputs]],
        training: OpinionTraining,
        *,
        seed: int = 0,
    ) -> None:
        super().__init__(network, thinks, tasks, training, seed=seed)
        assert len(self.tasks) == 1
        self.strength, self.steps, self.vain = BEGIN, 0, 0
        self._codes: tuple[Tensor, Tensor] | None = None

    def learn(self) -> Step:
        """Shake, walk, become the best; the first walk is that of the network as it is."""
        clock, (task,) = Clock(), self.tasks
        with clock, torch.no_grad():
            u, b = self._seen(task)
            w, shakes = self.thinks.say(u), self._scaled(u, b)
            moved = torch.einsum("pbh,mh->pmb", shakes, u)
            opinions = opined(torch.cat([w[None], w + moved, w - moved]), b).numpy()
        scored = self._walked(task, opinions)
        length = lengths(scored)
        best = int(length.argmin())
        stepped = self.training.learning_rate > 0 and bool(length[best] < length[0])
        if stepped:
            with torch.no_grad():
                self.thinks.say.weight += torch.cat([shakes, -shakes])[best - 1]
            self.strength = float(self._strengths()[(best - 1) % len(shakes)].clamp(LEAST, MOST))
        self._went(task, stepped)
        return Step(
            tasks=[task], seconds=[scored.seconds[1:]], entropy=mean_of([]), gradient=0.0, stepped=stepped,
            network_seconds=clock.seconds,
        )  # fmt: skip

    def _scaled(self, u: Tensor, b: Tensor) -> Tensor:  # [P, B, H]
        """Shakes that change opinions of one device against others by as much as they are meant to, whatever the units
        of a network."""
        shakes = self._shakes(0, u.shape[1], b.shape[2])
        changed = torch.einsum("pmb,mkb->pmk", torch.einsum("pbh,mh->pmb", shakes, u), b)
        apart = (changed - changed.mean(dim=2, keepdim=True)).square().mean(dim=(1, 2)).sqrt()
        return (self._strengths() / apart.clamp(min=TINY))[:, None, None] * shakes

    def _strengths(self) -> Tensor:  # [P]
        """Around the one that helped last, from stronger to much weaker."""
        return self.strength * torch.logspace(*SPREAD, self.training.pairs, base=10.0)

    def _went(self, task: Task[Inputs], stepped: bool) -> None:
        """Count, and walk otherwise where all has been in vain for long."""
        self.steps, self.vain = self.steps + stepped, 0 if stepped else self.vain + 1
        if self.vain == VAIN:
            scorer_of(task).kind += 1
            self.strength, self.vain = BEGIN, 0

    @property
    def taught(self) -> bool:
        """Once something shaken was better: until then all that is drawn is owed to what the network was before."""
        return self.carried_on or self.steps > 0

    def own_arrays(self) -> Arrays:
        """How strongly it shakes, how often that helped, for how long it did not, and which kind of walks it is at."""
        return {"climb": np.array([self.strength, self.steps, self.vain, scorer_of(self.tasks[0]).kind])}

    def take_own(self, arrays: Arrays) -> None:
        """As they were."""
        strength, *counted = arrays["climb"].tolist()
        self.strength = float(strength)
        self.steps, self.vain, scorer_of(self.tasks[0]).kind = map(int, counted)

    def _seen(self, task: Task[Inputs]) -> tuple[Tensor, Tensor]:
        """(u, b), which nothing here changes: looked up once."""
        if self._codes is None:
            self._codes = self.thinks.codes(task.inputs)
        return self._codes
