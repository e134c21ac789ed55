"""A console over real groups, topics and a real history, all of it in memory, without sockets."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from kohort.broker.console.lag_history import LagHistory
from kohort.broker.console.paths import console_pages
from kohort.broker.console.source import ConsoleSource
from kohort.broker.coordinator.coordinator import GroupCoordinator
from kohort.broker.coordinator.requests.classic import ClassicRequests
from kohort.broker.core.purgatory import Purgatory
from kohort.broker.groups_seen import no_shares
from kohort.broker.history.history import RebalanceHistory
from kohort.broker.http.messages import HttpRequest, HttpResponse, ResponseOrStream
from kohort.broker.http.routes import Routes
from kohort.broker.metrics.broker_metrics import BrokerMetrics
from kohort.broker.metrics.rebalances import RebalanceMetrics
from kohort.broker.runtime.clock import Clock
from kohort.broker.runtime.deferred import Deferred
from kohort.broker.runtime.purgatory_shell import PurgatoryShell
from kohort.broker.topics.manager import TopicManager
from kohort.groups.reasons import NO_REASON
from kohort.groups.requests import (
    CommitRequest,
    JoinRequest,
    LeaveEntry,
    OffsetToCommit,
    SyncRequest,
)
from kohort.protocol.records.batch import read_header
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record
from kohort.testing.inline_executor import InlineExecutor
from kohort.testing.simulated_filesystem import SimulatedFileSystem
from kohort.testing.virtual_clock import VirtualClock
from tests.support.brokers.running_topics import running_topics
from tests.support.groups.coordinators import group_coordinator, report
from tests.support.groups.raw_members import share, subscription
from tests.support.records.storage_tools import memory_store


class LookedAt:
    """A broker as far as the console needs one, and a browser that asks it."""

    def __init__(
        self,
        clock: VirtualClock,
        topics: TopicManager,
        groups: GroupCoordinator,
        history: RebalanceHistory,
        purgatory: Purgatory,
        *,
        is_open_to_anonymous: bool = True,
    ) -> None:
        self.clock = clock
        self.topics = topics
        self.groups = groups
        self.classic = ClassicRequests(groups.host)
        self.history = history
        self.source = ConsoleSource(
            groups=groups.host,
            history=history,
            lags=LagHistory(),
            topics=topics,
            clock=cast("Clock", clock),
            executor=InlineExecutor(),
            offloaded_reads=asyncio.Semaphore(2),
            network=cast("Any", None),
            purgatory=purgatory,
            metrics=BrokerMetrics(),
            rebalances=RebalanceMetrics(),
            tasks=cast("Any", None),
            startup=cast("Any", None),
            node_id=1,
            cluster_id="c",
            listeners=[],
            address="broker.example:9092",
            version="1.2.3",
            transactions=cast("Any", None),
            shares=no_shares,
            holding=cast("Any", None),
            coordinator=groups,
            allows_write=True,
            is_open_to_anonymous=is_open_to_anonymous,
            began_ms=clock.wall_ms(),
        )
        self._routes = Routes(
            console_pages(lambda: self.source, self.source.executor, allows_write=True)
        )

    # The browser.

    async def answer(self, path: str, query: str = "", **request: Any) -> ResponseOrStream:  # noqa: ANN401 - fields of many types.
        method = request.setdefault("method", "GET")
        found = self._routes.find(path if method == "GET" else f"{method} {path}")
        assert found is not None, path
        page, values = found
        given = HttpRequest(path=path, query=query, accept="", path_values=values, **request)
        return await page(given)

    async def ask(self, path: str, query: str = "", **request: Any) -> Any:  # noqa: ANN401 - as JSON has it.
        response = await self.answer(path, query, **request)
        assert isinstance(response, HttpResponse)
        return json.loads(b"".join(response.body))

    # What there is to look at.

    def produce(self, topic: str, index: int, *timestamps: int) -> None:
        """One batch with a record for each timestamp."""
        partition = self.topics.partition(topic, index)
        assert partition is not None
        batch = encode_batch([Record(b"v", timestamp=one) for one in timestamps])
        partition.append(batch, read_header(batch), wall_ms=self.clock.wall_ms())

    def join(
        self,
        group: str,
        client: str = "c",
        *,
        member_id: str = "",
        instance: str | None = None,
        topics: tuple[str, ...] = ("t",),
    ) -> Deferred[Any]:
        request = JoinRequest(
            member_id=member_id,
            instance_id=instance,
            client_id=client,
            client_host="/10.0.0.1",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=(("range", subscription(*topics)),),
            reason=NO_REASON,
        )
        return self.classic.join(group, request)

    async def settle(self, group: str, client: str = "c", *partitions: int) -> str:
        """A Stable group of one static member, which has these partitions of "t"."""
        joined = await self.join(group, client, instance=f"{client}-static")
        request = SyncRequest(
            member_id=joined.member_id,
            instance_id=None,
            generation=joined.generation,
            protocol_type="consumer",
            protocol_name="range",
            assignments={joined.member_id: share("t", *partitions)},
        )
        synced = self.classic.sync(group, request)
        if isinstance(synced, Deferred):
            await synced
        self.history.drain()
        member_id: str = joined.member_id
        return member_id

    async def leave(self, group: str, member_id: str) -> None:
        await self.classic.leave(group, [LeaveEntry(member_id)])
        self.history.drain()

    async def commit(self, group: str, **offsets: int) -> None:
        """Positions by partition of "t", as t0=7, from outside of any membership."""
        wanted = [OffsetToCommit(name[0], int(name[1:]), at) for name, at in offsets.items()]
        await self.groups.commit(
            group, CommitRequest(tuple(wanted)), may_answer_group_not_found=True
        )


@asynccontextmanager
async def looked_at(*, is_open_to_anonymous: bool = True) -> AsyncIterator[LookedAt]:
    """With a topic "t" of three partitions."""
    clock = VirtualClock()
    in_memory = memory_store()
    async with running_topics(
        Path("/data"),
        clock=clock,
        files=SimulatedFileSystem(),
        store=in_memory,
        executor=InlineExecutor(),
    ) as topics:
        await topics.changes.create_topic("t", partition_count=3)
        purgatory = Purgatory(report=report)
        shell = PurgatoryShell(purgatory, clock)
        history = RebalanceHistory(clock=clock)
        groups = group_coordinator(purgatory, clock, observers=[history])
        await groups.host.start()
        try:
            yield LookedAt(
                clock,
                topics,
                groups,
                history,
                purgatory,
                is_open_to_anonymous=is_open_to_anonymous,
            )
        finally:
            await groups.host.close()
            shell.close()
