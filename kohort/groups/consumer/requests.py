"""The heartbeat of a consumer group and its result, independent of protocol versions."""

from typing import NamedTuple

from kohort.groups.consumer.member import Owned
from kohort.groups.reasons import NO_REASON, StatedReason
from kohort.groups.topics import Partition
from kohort.protocol.errors import ErrorCode


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

    @property
    def is_full(self) -> bool:
        """Whether it contains all fields, so that its answer contains the assignment."""
        return (
            self.rebalance_timeout_ms != -1
            and (self.topic_names is not None or self.topic_regex is not None)
            and self.owned is not None
        )


class HeartbeatResult(NamedTuple):
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    member_id: str | None = None
    epoch: int = 0
    heartbeat_interval_ms: int = 0
    assigned: Owned | None = None
    """The member's assignment; None if the member knows it already."""
