"""How much of a budget each round of search by `auto` gets, and whether it begins anew.

Orders of small graphs that have time for several attempts are searched from several beginnings, each with equal effort,
before search goes on from the best of all; effort is doubled when that is over. With less time there is one long round,
as slow cooling beats new starts then. On large graphs, and of pipelines, rounds of doubled effort alternate.
"""

from __future__ import annotations

import math
from functools import cached_property

from stead.solvers.auto_steps import Tuning, searches_orders
from stead.solvers.search.search import SMALL, WORK_PER_SECOND
from stead.solvers.search_state import Search


class Rounds:
    """Rounds of one search, numbered from 0; `effort` is the evaluations of a first round."""

    def __init__(self, search: Search, tuning: Tuning, effort: int) -> None:
        self._search, self._tuning, self._effort = search, tuning, effort
        self._count = max(1, len(search.problem.graph))

    @property
    def small(self) -> bool:
        """Whether the graph is searched as a whole, not window by window."""
        return self._count <= SMALL

    @cached_property
    def are_attempts(self) -> bool:
        """Whether search of orders makes several attempts; asked when its first round begins."""
        searched = self.small and searches_orders(self._search.problem)
        return searched and self.evaluations_left() >= self._tuning.least_attempts * self.attempt

    @property
    def attempt(self) -> int:
        """Evaluations of an attempt on a small graph; beyond them other beginnings gain more than slower cooling."""
        return max(self._effort, self._tuning.attempt_effort * self._count)

    @property
    def new_start(self) -> int:
        """Evaluations of the first new start."""
        return self.attempt if self.are_attempts else self._effort

    def doublings(self, number: int) -> int:
        """How often effort has been doubled before a round."""
        return number // self._tuning.attempts if self.are_attempts else number

    def share(self, number: int) -> int:
        """Evaluations that a round has by its number."""
        return self.new_start << self.doublings(number)

    def effort(self, number: int) -> int:
        """Evaluations that a round may take: if it is the last one, whatever is left."""
        share = self.share(number)
        return share * math.ceil(self._tuning.one_round) if self.is_last(number) else share

    def seconds(self, number: int) -> float:
        """How long a round may take; to the end if the next one could not end before."""
        spare = self._search.spare_seconds
        seconds = self.share(number) * self._count / WORK_PER_SECOND
        return math.inf if spare == math.inf or self.is_last(number) else 2 * seconds

    def is_last(self, number: int) -> bool:
        """Whether what is left is better spent in one round than in several."""
        rest = self._tuning.last_attempt if self.are_attempts else self._tuning.one_round
        return self.evaluations_left() < rest * self.share(number)

    def goes_on(self, number: int) -> bool:
        """Whether a round goes on from the best of all: every second one, or after attempts the last one of them."""
        if not self.are_attempts:
            return bool(number % 2)
        return number > 0 and ((number + 1) % self._tuning.attempts == 0 or self.is_last(number))

    def draws(self, number: int) -> bool:
        """Whether a round begins with what is drawn, and not with what is known: every second attempt."""
        return self.are_attempts and bool(number % self._tuning.attempts % 2)

    def evaluations_left(self) -> float:
        """As many as the budget counts, or about as many as there is time for."""
        counted, pace = self._search.remaining_evaluations, WORK_PER_SECOND / self._count
        return self._search.spare_seconds * pace if counted is None else counted

    def most_starts(self, effort: int) -> int:
        """As many as the time that is left suffices for."""
        tuning, evaluations = self._tuning, min(effort, self.evaluations_left())
        if not self.small:
            return min(tuning.pool, max(2, int(evaluations / tuning.large_least_effort)))
        each = evaluations / self._count
        return 1 if each < tuning.one_start else min(tuning.pool, max(1, int(each / tuning.least_effort)))

    def moves(self, moves: int) -> int:
        """So many moves of annealing, or as many as there is time for if a round of twice as many would not end."""
        most = self._search.spare_seconds * self._tuning.moves_per_second
        return int(most) if most < 3 * moves else moves
