"""Groups that have more to do than a turn of the loop may take: in each turn, one of them goes on.

What twenty groups do at the same time, each a bounded piece in every turn, is together a turn that
is not bounded.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Protocol

logger = logging.getLogger(__name__)


class TurnTaker(Protocol):
    """Somebody with work that can wait a few turns."""

    def take_turn(self) -> bool:
        """Do a piece of it; True if there is more. What it fails at must not come again."""
        ...


class TurnQueue:
    """Turn takers of all groups that do the same kind of work. Each has its turn, and the next one
    the turn after.
    """

    def __init__(self) -> None:
        self._waiting: deque[TurnTaker] = deque()

    def add(self, one: TurnTaker) -> None:
        """Not while it waits, and not from its `take_turn`."""
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
            # Or it would believe for ever that its turn is still to come.
            logger.exception("A fault of ours in what a group does by and by")
            is_more = True
        if is_more:
            self._waiting.append(one)
        if self._waiting:
            self._come_back()
