"""Work of groups that takes more than one iteration of the loop: in each, one group has its turn.

A bounded piece of work for each of twenty groups in one iteration is together not bounded.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Protocol

logger = logging.getLogger(__name__)


class TurnTaker(Protocol):
    """A group's work that can wait for a few iterations of the loop."""

    def take_turn(self) -> bool:
        """Do a piece of it; True if there is more. What it fails at must not come again."""
        ...


class RoundRobin:
    """The same kind of work of all groups: each iteration of the loop is the turn of one."""

    def __init__(self) -> None:
        self._waiting: deque[TurnTaker] = deque()

    def add(self, one: TurnTaker) -> None:
        """Have it take turns until it has no more to do. Not to be called for one that still takes
        turns, nor from its `take_turn`.
        """
        self._waiting.append(one)
        if len(self._waiting) == 1:
            self._come_back()

    def _come_back(self) -> None:
        asyncio.get_running_loop().call_soon(self._take_turn)

    def _take_turn(self) -> None:
        one = self._waiting.popleft()
        try:
            is_more = one.take_turn()
        except Exception:
            # It expects another turn, and would never be added again without one.
            logger.exception("A fault of ours in a group's work over several turns")
            is_more = True
        if is_more:
            self._waiting.append(one)
        if self._waiting:
            self._come_back()
