"""The requests to share groups and their results, independent of protocol versions."""

from typing import NamedTuple

from kohort.protocol.errors import ErrorCode


class ShareHeartbeatRequest(NamedTuple):
    """A ShareGroupHeartbeat. A field that is None is unchanged."""

    member_id: str
    epoch: int
    """0 to join or to join again, -1 to leave."""
    rack_id: str | None = None
    topic_names: tuple[str, ...] | None = None
    client_id: str = ""
    client_host: str = ""
    client_software: str = ""
    """Name and version of the client library (see `MemberRef`)."""


class OffsetsResult(NamedTuple):
    """The result of AlterShareGroupOffsets or DeleteShareGroupOffsets."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    missing: frozenset[bytes] = frozenset()
    """Ids of the requested topics for which the group stores no share-partitions to delete."""
