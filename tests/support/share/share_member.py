"""A member of a share group that sends frames on the running loop, also on virtual time."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from kohort.client.net.config import ConnectionConfig
from kohort.client.net.connection import BrokerConnection
from kohort.client.net.opening import open_connection
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import share_acknowledge as acks
from kohort.protocol.messages import share_fetch as fetches
from kohort.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.support.share.running_share import Acquired


class ShareMember:
    """A member with one session, which fetches partition 0 of its topic."""

    def __init__(self, connection: BrokerConnection, group: str, topic: str) -> None:
        self.member_id = str(uuid.uuid4())
        self._connection = connection
        self._group = group
        self._topic = topic
        self._topic_id = b""
        self._member_epoch = 0
        self._session_epoch = 0

    async def _ask(self, request: Any, version: int) -> Any:  # noqa: ANN401 - a message of any API.
        return await self._connection.call(request, version=version, timeout_ms=90_000)

    async def heartbeat(self) -> None:
        """Become or stay a member."""
        is_new = self._member_epoch == 0
        response = await self._ask(
            ShareGroupHeartbeatRequest(
                group_id=self._group,
                member_id=self.member_id,
                member_epoch=self._member_epoch,
                subscribed_topic_names=[self._topic] if is_new else None,
            ),
            1,
        )
        assert not response.error_code, response.error_message
        self._member_epoch = response.member_epoch
        if response.assignment is not None:
            for assigned in response.assignment.topic_partitions:
                self._topic_id = assigned.topic_id

    async def join(self) -> None:
        """Join, and wait for the assignment, which may come with a later heartbeat."""
        await self.heartbeat()
        while not self._topic_id:
            await asyncio.sleep(1)
            await self.heartbeat()

    async def fetch(self, *, max_wait_ms: int = 500) -> list[Acquired]:
        """Acquire records."""
        request = fetches.ShareFetchRequest(
            group_id=self._group,
            member_id=self.member_id,
            share_session_epoch=self._session_epoch,
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=500,
            batch_size=500,
            topics=[
                fetches.FetchTopic(
                    topic_id=self._topic_id,
                    partitions=[
                        fetches.FetchPartition(partition_index=0, acknowledgement_batches=[])
                    ],
                )
            ]
            if self._session_epoch == 0
            else [],
            forgotten_topics_data=[],
        )
        self._session_epoch += 1
        response = await self._ask(request, 2)
        assert not response.error_code, ErrorCode(response.error_code)
        return [
            Acquired(records.first_offset, records.last_offset, records.delivery_count)
            for topic in response.responses
            for partition in topic.partitions
            for records in partition.acquired_records
        ]

    async def acknowledge(self, first: int, last: int, *types: int) -> ErrorCode:
        """Acknowledge offsets: with one type for all, or one for each."""
        request = acks.ShareAcknowledgeRequest(
            group_id=self._group,
            member_id=self.member_id,
            share_session_epoch=self._session_epoch,
            topics=[
                acks.AcknowledgeTopic(
                    topic_id=self._topic_id,
                    partitions=[
                        acks.AcknowledgePartition(
                            partition_index=0, acknowledgement_batches=_batches(first, last, types)
                        )
                    ],
                )
            ],
        )
        self._session_epoch += 1
        response = await self._ask(request, 2)
        assert not response.error_code, ErrorCode(response.error_code)
        return ErrorCode(response.responses[0].partitions[0].error_code)


def _batches(first: int, last: int, types: Sequence[int]) -> list[acks.AcknowledgementBatch]:
    return [
        acks.AcknowledgementBatch(
            first_offset=first, last_offset=last, acknowledge_types=list(types)
        )
    ]


@asynccontextmanager
async def share_member(
    bootstrap_servers: str, group: str, topic: str, client_id: str = "sharer"
) -> AsyncIterator[ShareMember]:
    """Yield a member that has joined; its connection is closed at the end."""
    host, port = bootstrap_servers.split(":")
    connection = await open_connection(host, int(port), ConnectionConfig(client_id=client_id))
    try:
        member = ShareMember(connection, group, topic)
        await member.join()
        yield member
    finally:
        connection.close()
        await connection.wait_closed()
