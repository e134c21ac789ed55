"""Log lines about rebalances, rate-limited.

Members decide how often a group rebalances, and must not be able to fill the disk with log lines.
"""

import logging
from typing import Final

from kohort.broker.runtime.clock import Clock
from kohort.formats.text import shown
from kohort.groups.history.model import HistoryRecord
from kohort.groups.history.sentence import sentence

logger = logging.getLogger("kohort.broker.history")

INTERVAL_MS: Final = 10_000
LINES_PER_INTERVAL: Final = 100
GROUP_ID_CHARS: Final = 255


class RebalanceLog:
    """Logs rebalances."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._interval_ends_ms = 0
        self._written = 0
        self._left_out = 0

    def note(self, record: HistoryRecord) -> None:
        """Log why the group rebalanced, or why not."""
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._interval_ends_ms:
            self._interval_ends_ms = now_ms + INTERVAL_MS
            self._written = 0
            if self._left_out:
                logger.info("%d more rebalances were not logged", self._left_out)
                self._left_out = 0
        if self._written >= LINES_PER_INTERVAL:
            self._left_out += 1
            return
        self._written += 1
        logger.info("Group %s %s", shown(record.group[:GROUP_ID_CHARS]), sentence(record))
