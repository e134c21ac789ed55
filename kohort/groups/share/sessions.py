"""Share sessions: what a member fetches, and the epochs that order its requests.

A session belongs to the connection that opened it, and requests on any connection may use it.
ShareFetch and ShareAcknowledge share its epoch, which advances when a request is accepted. The
member need not belong to the group any more: a member that was removed can still acknowledge what
it has processed.
"""

from collections.abc import Hashable, Iterable
from typing import Final, NamedTuple

from kohort.protocol.errors import ErrorCode, KafkaError

NEW_EPOCH: Final = 0
FINAL_EPOCH: Final = -1

_EPOCH_MAX: Final = 2**31 - 1


class SessionPartition(NamedTuple):
    topic_id: bytes
    partition: int


class ShareSession:
    """The session of a (group, member)."""

    __slots__ = (
        "connection",
        "due",
        "epoch",
        "group_id",
        "is_closed",
        "located",
        "member_id",
        "partitions",
        "unknown",
    )

    def __init__(self, group_id: str, member_id: str, connection: Hashable) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.connection = connection
        """The connection that opened the session."""
        self.epoch = 1
        """The epoch that the next request must have. A change makes a parked fetch stale."""
        self.is_closed = False
        """Whether the session was ended, or replaced by another session of the member."""
        self.partitions: dict[SessionPartition, None] = {}
        """The session's partitions, in the order in which they were added."""
        self.due: set[SessionPartition] = set()
        """Partitions to include in the response after their next read, even without records."""
        self.unknown: set[SessionPartition] = set()
        """Partitions whose topic did not exist when they were added."""
        self.located: object = None
        """The ShareFetch handler's cache for the partitions; None after some were removed."""

    def update(
        self, named: Iterable[SessionPartition], forgotten: Iterable[SessionPartition] = ()
    ) -> set[SessionPartition]:
        """Add partitions, then remove the forgotten ones. Return the new partitions, which the
        response includes even without records.
        """
        added: set[SessionPartition] = set()
        for partition in named:
            if partition not in self.partitions:
                self.partitions[partition] = None
                added.add(partition)
        for partition in forgotten:
            self.partitions.pop(partition, None)
            for noted in (added, self.due, self.unknown):
                noted.discard(partition)
            self.located = None
        return added

    def rotated(self, epoch: int) -> list[SessionPartition]:
        """Return the partitions in order, rotated: each epoch begins one partition further."""
        partitions = list(self.partitions)
        if not partitions:
            return partitions
        begin = epoch % len(partitions)
        return partitions[begin:] + partitions[:begin]


class ShareSessions:
    """All sessions of the broker."""

    def __init__(self, max_sessions: int) -> None:
        self._max_sessions = max_sessions
        self._sessions: dict[tuple[str, str], ShareSession] = {}
        self._of_connections: dict[Hashable, dict[ShareSession, None]] = {}

    def get(self, group_id: str | None, member_id: str | None) -> ShareSession | None:
        return self._sessions.get((group_id or "", member_id or ""))

    def fetch(
        self,
        group_id: str,
        member_id: str,
        epoch: int,
        connection: Hashable,
        *,
        acknowledges: bool,
    ) -> ShareSession:
        """Accept a ShareFetch: open or continue a session, or end it (see `is_closed`).

        `acknowledges` says whether the request carries acknowledgements.
        Raises KafkaError: INVALID_REQUEST, SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH, or
        SHARE_SESSION_LIMIT_REACHED, which the client gets after MaxWaitMs.
        """
        if epoch != NEW_EPOCH:
            return self._continue(group_id, member_id, epoch)
        if acknowledges:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        old = self._sessions.get((group_id, member_id))
        if old is not None:
            self._close(old)
        elif len(self._sessions) >= self._max_sessions:
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        session = ShareSession(group_id, member_id, connection)
        self._sessions[group_id, member_id] = session
        self._of_connections.setdefault(connection, {})[session] = None
        return session

    def acknowledge(self, group_id: str, member_id: str, epoch: int) -> ShareSession:
        """Accept a ShareAcknowledge: continue a session, or end it (see `is_closed`).

        Raises KafkaError: SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH.
        """
        if epoch == NEW_EPOCH:
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        return self._continue(group_id, member_id, epoch)

    def _continue(self, group_id: str, member_id: str, epoch: int) -> ShareSession:
        session = self._sessions.get((group_id, member_id))
        if session is None:
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        if epoch == FINAL_EPOCH:
            self._close(session)
        elif epoch != session.epoch:
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        else:
            session.epoch = 1 if epoch == _EPOCH_MAX else epoch + 1
        return session

    def connection_closed(self, connection: Hashable) -> list[ShareSession]:
        """End the sessions that a connection has opened; the caller releases their locks."""
        sessions = list(self._of_connections.pop(connection, ()))
        for session in sessions:
            self._close(session)
        return sessions

    def _close(self, session: ShareSession) -> None:
        session.is_closed = True
        del self._sessions[session.group_id, session.member_id]
        self._of_connections.get(session.connection, {}).pop(session, None)

    @property
    def is_full(self) -> bool:
        return len(self._sessions) >= self._max_sessions

    @property
    def partition_count(self) -> int:
        """The number of partitions of all sessions."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def __len__(self) -> int:
        return len(self._sessions)
