"""Records refused clients in the group's history. Without this, users would see only that a client
stopped, and find the error only in that client's log.
"""

from typing import Final

from kohort.groups.events import MemberRef, RebalanceAvoided, Trigger, TriggerKind
from kohort.groups.outbox import Outbox
from kohort.protocol.errors import ErrorCode

AGAIN_MS: Final = 600_000
"""A client is recorded once in this time for each error, because it may retry for ever."""
CLIENTS_MAX: Final = 10
"""Maximum number of clients recorded within `AGAIN_MS`: clients choose their ids, and must not
displace a group's rebalances from its history with ever new ids."""


class Refusals:
    """Recent refusals of one group; limits how many are recorded in the history."""

    __slots__ = ("_noted",)

    def __init__(self) -> None:
        self._noted: dict[tuple[str, str, ErrorCode], int] = {}
        """When each refusal was recorded, by client id, host and error."""

    def note(self, outbox: Outbox, trigger: Trigger, now_ms: int) -> None:
        """Record a refusal; `trigger` has the member and the error."""
        assert trigger.member is not None
        client = trigger.member.client_id, trigger.member.client_host, trigger.error
        noted = self._noted
        for known, noted_ms in list(noted.items()):
            if now_ms - noted_ms >= AGAIN_MS:
                del noted[known]
        if client not in noted and len(noted) < CLIENTS_MAX:
            noted[client] = now_ms
            outbox.note(RebalanceAvoided(trigger))

    def note_client(
        self, outbox: Outbox, client: MemberRef, error: ErrorCode, reason: str, now_ms: int
    ) -> None:
        """Record that a client may not join; do nothing if `reason` is empty. `client` has no
        member id: the id differs in each attempt, and no member has it.
        """
        if reason:
            trigger = Trigger(TriggerKind.MEMBER_REFUSED, client, error=error, detail=reason)
            self.note(outbox, trigger, now_ms)
