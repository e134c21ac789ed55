"""Sends a group's responses in slices, over several iterations of the event loop.

The end of a rebalance phase answers every member: thousands of responses to build and write. The
step that ended the phase has fixed their content, so other work may run between the slices, and
other responses of the group may be sent.
"""

from collections import deque
from collections.abc import Iterator
from typing import Any

from kohort.broker.runtime.deferred import Deferred
from kohort.broker.runtime.slices import RoundRobin, Slice
from kohort.groups.effects import Reply
from kohort.groups.steps import FEW
from kohort.protocol.errors import KafkaError


class AnswerQueue:
    """The responses of one group that are still to be sent."""

    __slots__ = ("_is_queued", "_queue", "_slices", "_waiting")

    def __init__(self, waiting: dict[Deferred[Any], None], slices: RoundRobin) -> None:
        """`waiting` holds the tickets of the group's pending requests; answering a request removes
        its ticket. `slices` is shared by all groups.
        """
        self._waiting = waiting
        self._slices = slices
        self._queue: deque[Iterator[Reply]] = deque()
        self._is_queued = False

    @property
    def has_more(self) -> bool:
        """Whether responses are left for a later event loop iteration."""
        return bool(self._queue)

    def give(self, reply: Reply) -> None:
        """Answer a request at once, even if responses to other requests are queued: in a new
        generation, the first members sync while the JoinGroup responses of other members are still
        queued.
        """
        # Inlines `_answer`: nearly every response is sent here.
        ticket = reply.ticket
        assert isinstance(ticket, Deferred)
        self._waiting.pop(ticket, None)
        ticket.set_result(reply.body)

    def give_all(self, replies: Iterator[Reply], count: int) -> None:
        """Send `count` responses: at once if they are few and no responses are queued, otherwise in
        slices that begin in a later event loop iteration.
        """
        self._queue.append(replies)
        if self._is_queued:
            return
        if count > FEW or self.run_slice(self._slices.new_slice()):
            self._is_queued = True
            self._slices.add(self.run_slice)

    def fail_all(self, error: KafkaError) -> None:
        """Send all queued responses, and answer all other pending requests with the error."""
        while self._queue:
            for reply in self._queue.popleft():
                self._answer(reply)
        waiting = list(self._waiting)
        self._waiting.clear()
        for ticket in waiting:
            if not ticket.is_done:
                ticket.set_exception(error)

    def run_slice(self, time_slice: Slice) -> bool:
        """Send a slice of responses; called by `slices`. Return whether responses are left."""
        while self._queue:
            reply = next(self._queue[0], None)
            if reply is None:
                self._queue.popleft()
                continue
            self._answer(reply)
            if time_slice.is_over():
                break
        self._is_queued = bool(self._queue)
        return self._is_queued

    def _answer(self, reply: Reply) -> None:
        ticket = reply.ticket
        assert isinstance(ticket, Deferred)
        self._waiting.pop(ticket, None)
        ticket.set_result(reply.body)
