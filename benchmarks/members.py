"""Members of classic groups, driven through the coordinator without sockets."""

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from typing import Any, Final

from kohort.broker.app import Broker
from kohort.broker.runtime.deferred import Deferred
from kohort.groups.requests import JoinRequest, JoinResult, SyncRequest
from kohort.protocol.errors import ErrorCode

_SESSION_MS: Final = 90_000
"""Longer than all of them take to join, on a machine that is busy."""
_REBALANCE_MS: Final = 300_000
_SUBSCRIPTION: Final = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"
_MOVES_PER_ITERATION: Final = 10


class Members:
    """The members of all groups. They send a few requests in each event loop iteration."""

    def __init__(self, broker: Broker, group_count: int, group_size: int) -> None:
        self._classic = broker.services.classic_groups
        self._places = list(
            itertools.product(map("group-{}".format, range(group_count)), range(group_size))
        )
        self._moves: deque[Callable[[], None]] = deque()
        self.joined: list[tuple[str, JoinResult]] = []
        self._synced_count = 0

    async def come(self) -> None:
        """Let all members join, and return when each has its assignment."""
        self.joined, self._synced_count = [], 0
        await self._make(partial(self._join, group_id) for group_id, _ in self._places)
        while self._synced_count < len(self._places):
            await self._make(())

    async def _make(self, moves: Iterable[Callable[[], None]]) -> None:
        # A few at a time, so that the meter does not measure the work of the members.
        moves = iter(moves)
        while some := [*islice(moves, _MOVES_PER_ITERATION)] or self._take_moves():
            for move in some:
                move()
            await asyncio.sleep(0)
        await asyncio.sleep(0)

    def _take_moves(self) -> list[Callable[[], None]]:
        return [self._moves.popleft() for _ in range(min(_MOVES_PER_ITERATION, len(self._moves)))]

    def _join(self, group_id: str) -> None:
        request = JoinRequest(
            member_id="",
            instance_id=None,
            client_id="bench",
            client_host="127.0.0.1",
            session_timeout_ms=_SESSION_MS,
            rebalance_timeout_ms=_REBALANCE_MS,
            protocol_type="consumer",
            protocols=(("range", _SUBSCRIPTION),),
            requires_known_id=False,
        )
        answer = self._classic.join(group_id, request).map(partial(self._on_joined, group_id))
        assert isinstance(answer, Deferred), "a join waits for the others"

    def _on_joined(self, group_id: str, result: JoinResult) -> None:
        assert result.error is ErrorCode.NONE, result.error
        self.joined.append((group_id, result))
        self._moves.append(partial(self._sync, group_id, result))

    def _sync(self, group_id: str, joined: JoinResult) -> None:
        shares = {member.member_id: b"assignment" for member in joined.members}
        request = SyncRequest(joined.member_id, None, joined.generation, assignments=shares)
        result = self._classic.sync(group_id, request)
        if isinstance(result, Deferred):
            result.map(self._on_synced)
        else:
            self._on_synced(result)

    def _on_synced(self, result: Any) -> None:  # noqa: ANN401 - a SyncResult.
        assert result.error is ErrorCode.NONE, result.error
        self._synced_count += 1
