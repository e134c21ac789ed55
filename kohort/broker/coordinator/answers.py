"""Gives out a group's answers, a slice in an iteration of the loop.

The end of a phase answers every member: thousands of responses to be made and written. Each of them
is settled by the step that asked for it, so other work may come in between; answers that come
meanwhile stand behind.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from kohort.broker.core.group.effects import Reply
from kohort.broker.core.steps import FEW
from kohort.broker.runtime.later import Later
from kohort.broker.runtime.slices import RoundRobin, Slice


class AnswerQueue:
    """The answers of one group that are to be given."""

    __slots__ = ("_is_turn_coming", "_queue", "_turns", "_waiting")

    def __init__(self, waiting: dict[Later[Any], None], turns: RoundRobin) -> None:
        """`waiting` are the group's unanswered tickets, from which those answered are taken;
        `turns` is that of all groups.
        """
        self._waiting = waiting
        self._turns = turns
        self._queue: deque[Iterator[Reply]] = deque()
        self._is_turn_coming = False

    @property
    def has_more(self) -> bool:
        """Are there answers that a later turn will give?"""
        return bool(self._queue)

    def give(self, reply: Reply) -> None:
        """Answer at once, unless others come first."""
        if self._queue:
            self._queue.append(iter((reply,)))
            return
        # As `_answer`: nearly every answer comes this way.
        ticket = reply.ticket
        assert isinstance(ticket, Later)
        self._waiting.pop(ticket, None)
        ticket.give(reply.body)

    def give_all(self, replies: Iterator[Reply], count: int) -> None:
        """Answer all `count` at once if they are few and no others come first, else by and by: the
        step that they come from has made thousands of changes already.
        """
        self._queue.append(replies)
        if self._is_turn_coming:
            return
        if count > FEW or self.take_turn(self._turns.new_slice()):
            self._is_turn_coming = True
            self._turns.add(self.take_turn)

    def flush(self) -> None:
        """Give all that there are."""
        while self._queue:
            for reply in self._queue.popleft():
                self._answer(reply)

    def take_turn(self, piece: Slice) -> bool:
        """Called by the queue of all groups; True if there is more for another turn."""
        while self._queue:
            reply = next(self._queue[0], None)
            if reply is None:
                self._queue.popleft()
                continue
            self._answer(reply)
            if piece.is_over():
                break
        self._is_turn_coming = bool(self._queue)
        return self._is_turn_coming

    def _answer(self, reply: Reply) -> None:
        ticket = reply.ticket
        assert isinstance(ticket, Later)
        self._waiting.pop(ticket, None)
        ticket.give(reply.body)
