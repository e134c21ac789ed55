"""Share sessions: what a member fetches, and the epochs that order its requests.

A session belongs to the connection that opened it and may be used from any. ShareFetch and
ShareAcknowledge share its epoch, which advances when a request is accepted.
"""

from collections.abc import Hashable, Iterable
from typing import NamedTuple

NEW_EPOCH = 0
FINAL_EPOCH = -1


class SessionPartition(NamedTuple):
    topic_id: bytes
    partition: int


class ShareSession:
    """The session of a (group, member)."""

    group_id: str
    member_id: str
    connection: Hashable
    """The connection that opened it."""
    epoch: int
    """The epoch that the next request must have. A parked fetch is stale if it has changed."""
    is_closed: bool
    partitions: dict[SessionPartition, None]
    """In the order in which they were added."""

    def update(
        self, named: Iterable[SessionPartition], forgotten: Iterable[SessionPartition] = ()
    ) -> set[SessionPartition]:
        """Add partitions, then remove the forgotten ones; return those that are new, which are
        answered even without records.
        """
        raise NotImplementedError

    def rotated(self, epoch: int) -> list[SessionPartition]:
        """Return the partitions, beginning at another one for each epoch of a request."""
        raise NotImplementedError


class ShareSessions:
    """All sessions of the broker."""

    def __init__(self, max_sessions: int) -> None:
        raise NotImplementedError

    def fetch(
        self,
        group_id: str,
        member_id: str,
        epoch: int,
        connection: Hashable,
        *,
        acknowledges: bool,
    ) -> ShareSession:
        """Accept a ShareFetch: open, continue or end a session (it then `is_closed`).

        `acknowledges` says whether the request carries acknowledgements.
        Raises KafkaError: INVALID_REQUEST, SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH, or
        SHARE_SESSION_LIMIT_REACHED, which the client gets after MaxWaitMs.
        """
        raise NotImplementedError

    def acknowledge(self, group_id: str, member_id: str, epoch: int) -> ShareSession:
        """Accept a ShareAcknowledge: continue or end a session (it then `is_closed`).

        Raises KafkaError: SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH.
        """
        raise NotImplementedError

    def connection_closed(self, connection: Hashable) -> list[ShareSession]:
        """End the sessions that a connection has opened; the caller releases their locks."""
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError
