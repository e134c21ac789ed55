"""The heartbeat of a consumer group, independent of protocol versions."""

from typing import NamedTuple

from kohort.groups.reasons import NO_REASON, StatedReason
from kohort.groups.requests import Connection
from kohort.groups.topics import Partition


class HeartbeatRequest(NamedTuple):
    """A ConsumerGroupHeartbeat. A field that is None, or a timeout of -1, is unchanged."""

    member_id: str
    epoch: int
    """0 to join or to join again, -1 to leave, -2 if a static member leaves and is expected to
    return."""
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topic_names: tuple[str, ...] | None = None
    topic_regex: str | None = None
    server_assignor: str | None = None
    owned: frozenset[Partition] | None = None
    client_id: str = ""
    client_host: str = ""
    reason: StatedReason = NO_REASON
    client_software: str = ""
    """See `MemberRef.client_software`."""
    connection: Connection | None = None

    @property
    def is_full(self) -> bool:
        """Whether the heartbeat contains all fields, so that the answer contains the assignment."""
        return (
            self.rebalance_timeout_ms != -1
            and (self.topic_names is not None or self.topic_regex is not None)
            and self.owned is not None
        )
