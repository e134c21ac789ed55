"""The coordinator's group on the loop's time: the broker's own rules, and who waits for them."""

import asyncio
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from kohort.client.core.group.requests import decode_member, decode_share
from kohort.groups.config import GroupConfig
from kohort.groups.effects import Reply
from kohort.groups.requests import JoinResult
from tests.support.groups.scenario import Scenario, Ticket

Answered = Callable[[Any], None]


class Author(NamedTuple):
    """Author of a commit: a process, and as which member of which generation."""

    process: int
    generation: int
    member_id: str


class GroupHost(Scenario):
    """One group, wherever its coordinator is at the moment."""

    def __init__(self, topic: str, partitions: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._begun_ms = round(self._loop.time() * 1000)
        self._waiting: dict[Ticket, Answered] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._claimed: dict[tuple[int, str], set[int]] = {}
        """By generation and member the partitions that it had when the generation began; of the
        present generation only."""
        config = GroupConfig(initial_rebalance_delay_ms=200)
        super().__init__(config, partition_counts={topic: partitions})

    def ask(self, step: Callable[[Ticket], object], answered: Answered) -> None:
        """One request; `answered` is called with the answer, at once or some time later."""
        self.catch_up()
        ticket = self.ticket()
        self._waiting[ticket] = answered
        self.step(lambda: step(ticket))
        self.set_timer()

    def holds(self, member_id: str) -> Collection[int]:
        """The partitions that a member may commit for: those that it was given, and those that it
        had when it joined and may not have given up yet.
        """
        (member,) = [one for one in self.classic.roster if one.member_id == member_id]
        given = decode_share(member.assignment) if member.assignment else ()
        claimed = self._claimed.get((self.classic.data.generation, member_id), ())
        return {one.partition for one in given}.union(claimed)

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

    def _note_claims(self, result: JoinResult) -> None:
        """What the leader is told of the members. Later ones of theirs are of the next round."""
        claimed = self._claimed
        for one in map(decode_member, result.members):
            known = claimed.setdefault((result.generation, one.member_id), set())
            known.update(partition.partition for partition in one.owned)
        generation = self.classic.data.generation
        self._claimed = {key: claimed[key] for key in claimed if key[0] == generation}

    def _due(self) -> None:
        self.catch_up()
        self.set_timer()

    def _answer(self, reply: Reply) -> None:
        super()._answer(reply)
        assert isinstance(reply.ticket, Ticket)
        if isinstance(reply.body, JoinResult):
            self._note_claims(reply.body)
        answered = self._waiting.pop(reply.ticket, None)
        self.tickets.clear()
        if answered is not None:
            answered(reply.body)
