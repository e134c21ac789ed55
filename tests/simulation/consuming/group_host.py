"""The coordinator's group on the loop's time: the broker's own rules, and who waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from kohort.broker.core.group.config import GroupConfig
from kohort.broker.core.group.effects import Reply
from tests.unit.broker.core.group.scenario import Scenario, Ticket

Answered = Callable[[Any], None]


class GroupHost(Scenario):
    """One group, wherever its coordinator is at the moment."""

    def __init__(self, topic: str, partitions: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._begun_ms = round(self._loop.time() * 1000)
        self._waiting: dict[Ticket, Answered] = {}
        self._timer: asyncio.TimerHandle | None = None
        config = GroupConfig(initial_rebalance_delay_ms=200)
        super().__init__(config, partition_counts={topic: partitions})

    def ask(self, step: Callable[[Ticket], object], answered: Answered) -> None:
        """One request; `answered` is called with the answer, at once or some time later."""
        self.catch_up()
        ticket = self.ticket()
        self._waiting[ticket] = answered
        self.step(lambda: step(ticket))
        self.set_timer()

    def catch_up(self) -> None:
        """Let the time pass that has passed on the loop."""
        now_ms = round(self._loop.time() * 1000) - self._begun_ms
        self.advance(max(0, now_ms + 5_000 - self.ms))

    def set_timer(self) -> None:
        """Come back when the next deadline is due."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if self.timers:
            left_ms = max(1, min(self.timers.values()) - self.ms)
            self._timer = self._loop.call_later(left_ms / 1000, self._due)

    def restart(self) -> None:
        """Another broker, or the same one again, has read the group from its log."""
        self.catch_up()
        self._waiting.clear()
        super().restart()
        # What was appended before is of no use to a simulation that lasts.
        self.appends.clear()
        self.events.clear()
        self.set_timer()

    def close(self) -> None:
        """No more deadlines."""
        if self._timer is not None:
            self._timer.cancel()

    def _due(self) -> None:
        self.catch_up()
        self.set_timer()

    def _answer(self, reply: Reply) -> None:
        super()._answer(reply)
        assert isinstance(reply.ticket, Ticket)
        answered = self._waiting.pop(reply.ticket, None)
        self.tickets.clear()
        if answered is not None:
            answered(reply.body)
