"""Clients that a group has refused, for its history: their users see that a client stopped, and
only the client's own log has the error.
"""

from typing import Final

from kohort.groups.events import RebalanceAvoided, Trigger
from kohort.groups.outbox import Outbox
from kohort.protocol.errors import ErrorCode

AGAIN_MS: Final = 600_000
"""A client is noted once in this time for each error, as it may retry for ever."""
CLIENTS_MAX: Final = 10
"""Maximum number of clients noted in this time: clients choose their ids, and must not displace a
group's rebalances from its history with ever new ones."""


class Refusals:
    """The refusals of one group."""

    __slots__ = ("_noted",)

    def __init__(self) -> None:
        self._noted: dict[tuple[str, str, ErrorCode], int] = {}
        """When each was noted, by client id, host and error."""

    def note(self, outbox: Outbox, trigger: Trigger, now_ms: int) -> None:
        """Note a refusal; `trigger` has the member and the error."""
        assert trigger.member is not None
        client = trigger.member.client_id, trigger.member.client_host, trigger.error
        noted = self._noted
        for known, noted_ms in list(noted.items()):
            if now_ms - noted_ms >= AGAIN_MS:
                del noted[known]
        if client not in noted and len(noted) < CLIENTS_MAX:
            noted[client] = now_ms
            outbox.note(RebalanceAvoided(trigger))
