"""Work on many ids at once, a slice of it in each iteration of the loop."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from kohort.broker.runtime.clock import Clock
from kohort.broker.runtime.slices import Slice

logger = logging.getLogger(__name__)


class Backlog:
    """Pieces of work in the order in which they came. Each is short, and must not raise."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pieces: deque[Callable[[], object]] = deque()

    def __len__(self) -> int:
        return len(self._pieces)

    def add(self, piece: Callable[[], object]) -> None:
        """Have it done in a turn to come."""
        self._pieces.append(piece)
        if len(self._pieces) == 1:
            asyncio.get_running_loop().call_soon(self._take_turn)

    def clear(self) -> None:
        """Forget what is left."""
        self._pieces.clear()

    def _take_turn(self) -> None:
        turn = Slice(self._clock)
        while self._pieces:
            try:
                self._pieces[0]()
            except Exception:
                logger.exception("A fault of ours in what transactions do by and by")
            if self._pieces:
                self._pieces.popleft()
            if turn.is_over():
                break
        if self._pieces:
            asyncio.get_running_loop().call_soon(self._take_turn)
