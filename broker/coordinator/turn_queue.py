"""Groups that have more to do than a turn of the loop may take: in each turn, one of them goes on.

What twenty groups do at the same time, each a bounded piece in every turn, is together a turn that
is not bounded.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol


class TurnTaker(Protocol):
    """Somebody with work that can wait a few turns."""

    def take_turn(self) -> bool:
        """Do a piece of it; True if there is more."""
        ...


class TurnQueue:
    """Those of all groups that do the same kind of work. Each has its turn, and the next one the
    turn after.
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
            if one.take_turn():
                self._waiting.append(one)
        finally:
            if self._waiting:
                self._come_back()
