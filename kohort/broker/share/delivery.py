"""The services for the handlers of ShareFetch and ShareAcknowledge: sessions, waiting fetches, and
share-partitions.
"""

from collections.abc import Awaitable, Hashable

from kohort.broker.share.acknowledge import Acknowledging
from kohort.broker.share.dead_letters import DeadLetterQueue
from kohort.broker.share.fetch import ShareFetch, ShareReader
from kohort.broker.share.maintenance import Maintenance
from kohort.broker.share.partitions import SharePartitions
from kohort.broker.share.state_topic import StateTopic
from kohort.groups.share.sessions import ShareSession, ShareSessions


class ShareDelivery:
    def __init__(
        self,
        reader: ShareReader,
        topic: StateTopic,
        maintenance: Maintenance,
        dead_letters: DeadLetterQueue,
        *,
        max_sessions: int,
    ) -> None:
        self.reader = reader
        self.partitions: SharePartitions = reader.partitions
        self.sessions = ShareSessions(max_sessions)
        self.maintenance = maintenance
        self._topic = topic
        self._dead_letters = dead_letters
        self._waiting: dict[tuple[str, str], ShareFetch] = {}
        """The unanswered fetch of each (group, member)."""
        self._is_closed = False

    def accept_fetch(
        self, group_id: str, member_id: str, epoch: int, connection: Hashable, *, acknowledges: bool
    ) -> ShareSession:
        """Accept a ShareFetch; `ShareSessions.fetch` lists the errors."""
        session = self.sessions.fetch(
            group_id, member_id, epoch, connection, acknowledges=acknowledges
        )
        self._supersede(group_id, member_id)
        return session

    def accept_acknowledge(self, group_id: str, member_id: str, epoch: int) -> ShareSession:
        """Accept a ShareAcknowledge; see `ShareSessions.acknowledge`."""
        session = self.sessions.acknowledge(group_id, member_id, epoch)
        self._supersede(group_id, member_id)
        return session

    def begin_fetch(self, session: ShareSession, fetch: ShareFetch) -> None:
        """Begin a fetch of an open session; if it waits, the session's next request ends it."""
        key = session.group_id, session.member_id
        fetch.begin()
        if not fetch.answer.is_done:
            self._waiting[key] = fetch

            def forget(_: object) -> None:
                if self._waiting.get(key) is fetch:
                    del self._waiting[key]

            fetch.answer.add_done_callback(forget)

    def connection_lost(self, connection: Hashable) -> None:
        """End the sessions that a connection has opened."""
        if self._is_closed:
            return  # The broker is stopping, which ends all locks.
        for session in self.sessions.connection_closed(connection):
            self._supersede(session.group_id, session.member_id)
            acknowledging = Acknowledging(self.partitions, session.member_id)
            acknowledging.release_all(session.group_id, session.partitions)
            acknowledging.store(_nothing)

    def _supersede(self, group_id: str, member_id: str) -> None:
        fetch = self._waiting.get((group_id, member_id))
        if fetch is not None:
            fetch.supersede()

    # Start and stop.

    def prepare(self) -> Awaitable[None] | None:
        """Create the state topic; return None if it exists already. Raises KafkaError."""
        return self._topic.prepare()

    async def close(self) -> None:
        """Stop, and append the share-partitions' staged state records."""
        self._is_closed = True
        await self.maintenance.close()
        await self._dead_letters.close()
        await self._topic.close()


def _nothing() -> None:
    return
