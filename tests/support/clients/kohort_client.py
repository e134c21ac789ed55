"""Kohort's own consumer, as a member beside those of other libraries."""

import asyncio
import threading
from typing import Any

from kohort import Consumer, RebalanceListener
from kohort.client.group.listener import Partitions
from tests.support.clients.model import Record, Seat
from tests.support.clients.threads import ThreadMember


class KohortMember(ThreadMember, RebalanceListener):
    """Runs a loop of its own in its thread."""

    def __init__(self, bootstrap: str, group: str, topic: str, seat: Seat) -> None:
        self._topic = topic
        protocol: dict[str, Any] = {"group_protocol": "consumer"}
        if not seat.uses_consumer_protocol:
            protocol = {
                "partition_assignment_strategy": seat.strategy,
                "heartbeat_interval_ms": 300,
                "session_timeout_ms": seat.session_timeout_ms,
            }
        self._consumer = Consumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            group_instance_id=seat.instance_id,
            client_id=seat.client_id or "kohort",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            **protocol,
        )
        super().__init__()

    @property
    def leads(self) -> bool:
        engine = self._consumer._lifecycle.engine
        return (
            engine is not None and engine.member is not None and engine.member.membership.is_leader
        )

    def poll_until(self, leaving: threading.Event) -> None:
        asyncio.run(self._read(leaving))

    async def _read(self, leaving: threading.Event) -> None:
        async with self._consumer as consumer:
            consumer.subscribe([self._topic], listener=self)
            while not leaving.is_set():
                for found in (await consumer.poll(0.05)).values():
                    self.took(
                        [
                            Record(
                                value=record.value,
                                key=record.key,
                                timestamp_ms=record.timestamp,
                                partition=record.partition,
                                offset=record.offset,
                            )
                            for record in found
                        ]
                    )

    def on_assigned(self, partitions: Partitions) -> None:
        self.gains({one.partition for one in partitions})

    async def on_revoked(self, partitions: Partitions) -> None:
        await self._consumer.commit()
        self.gives_up({one.partition for one in partitions})

    def on_lost(self, partitions: Partitions) -> None:
        self.gives_up({one.partition for one in partitions})
