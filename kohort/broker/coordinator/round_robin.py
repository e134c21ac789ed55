"""Work of groups that takes more than one pass of the loop: in each pass, one group goes on.

A bounded piece of work for each of twenty groups in one pass is together not bounded.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Protocol

logger = logging.getLogger(__name__)


class TurnTaker(Protocol):
    """A group's work that can wait for a few passes of the loop."""

    def take_turn(self) -> bool:
        """Do a piece of it; True if there is more. What it fails at must not come again."""
        ...


class RoundRobin:
    """The same kind of work of all groups: each takes its turn in a pass of the loop of its own."""

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
            # Otherwise it would believe for ever that its turn is still to come.
            logger.exception("A fault of ours in a group's work over several passes")
            is_more = True
        if is_more:
            self._waiting.append(one)
        if self._waiting:
            self._come_back()
