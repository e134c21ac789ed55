"""The group APIs in front of a coordinator and real topics, without a network."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from kohort.broker.assembly.coordinators import make_transactions
from kohort.broker.coordinator.coordinator import GroupCoordinator
from kohort.broker.core.purgatory import Purgatory
from kohort.broker.dispatch.context import BrokerServices, RequestContext
from kohort.broker.dispatch.encoded import EncodedResponse
from kohort.broker.handlers import load_handlers
from kohort.broker.network.service import ConnectionInfo
from kohort.broker.runtime.background_tasks import BackgroundTasks
from kohort.broker.runtime.clock import SystemClock
from kohort.broker.runtime.purgatory_shell import PurgatoryShell
from kohort.broker.share.delivery import ShareDelivery
from kohort.broker.topics.manager import TopicManager
from kohort.broker.transactions.transactions import Transactions
from kohort.groups.steps import at_once
from kohort.protocol.codec import codec
from kohort.protocol.framing import RequestHeader
from kohort.protocol.message import RESPONSES, schema_of
from kohort.testing.simulated_filesystem import SimulatedFileSystem
from tests.support import messages as m
from tests.support.brokers.running_topics import NODE_ID, running_topics
from tests.support.groups.coordinators import group_coordinator, report
from tests.support.records.storage_tools import memory_store

M = TypeVar("M")
SUBSCRIPTION = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"


def _through_the_wire(message: M, message_class: type[M], version: int) -> M:
    """Return the message that the other side reads: what the version lacks is gone."""
    as_bytes = codec(message_class, version).encode(message)
    decoded, end = codec(message_class, version).decode(as_bytes)
    assert end == len(as_bytes)
    return decoded


async def answered(
    services: BrokerServices,
    request: Any,  # noqa: ANN401
    version: int | None = None,
    connection: ConnectionInfo | None = None,
) -> Any:  # noqa: ANN401
    """What the handler of a request answers, as a client of that version reads it."""
    schema = schema_of(type(request))
    assert schema.key is not None
    api = load_handlers()[schema.key]
    version = api.versions.high if version is None else version
    assert version in api.versions
    request = _through_the_wire(request, type(request), version)
    header = RequestHeader(schema.key, version, correlation_id=7, client_id="c")
    context = RequestContext(header, connection or ConnectionInfo("/127.0.0.1"), services)
    response: Any = api.handler(context, request)
    if inspect.isgenerator(response):
        response = at_once(cast("Any", response))
    if inspect.isawaitable(response):
        response = await response
    response_class: type[Any] = RESPONSES[api.key]
    if isinstance(response, EncodedResponse):
        response, _ = codec(response_class, version).decode(response.body)
    return _through_the_wire(response, response_class, version)


class Coordinators(NamedTuple):
    groups: GroupCoordinator
    transactions: Transactions

    @property
    def share(self) -> ShareDelivery:
        raise NotImplementedError("tests/support/share has a broker with share-partitions")


class RunningGroups:
    """A broker as far as groups need one."""

    def __init__(self, topics: TopicManager, groups: GroupCoordinator) -> None:
        self.topics = topics
        self.groups = groups
        clock = SystemClock()
        transactions = make_transactions(
            topics.settings.config,
            clock,
            topics,
            groups,
            topics._purgatory,
            BackgroundTasks(clock),
        )
        self.services = BrokerServices(
            config=topics.settings.config,
            clock=clock,
            purgatory=topics._purgatory,
            topics=topics,
            coordinators=lambda: Coordinators(groups, transactions),
            node_id=NODE_ID,
            cluster_id=topics.cluster_id,
            advertised_host="broker.example",
            advertised_port=9092,
        )

    def start(self, request: Any, version: int | None = None) -> asyncio.Future[Any]:  # noqa: ANN401
        """Send a request of this version, the newest if none is given."""
        return asyncio.ensure_future(answered(self.services, request, version))

    async def ask(self, request: Any, version: int | None = None) -> Any:  # noqa: ANN401
        """The answer, as a client of that version reads it."""
        return await self.start(request, version)

    async def join(
        self,
        version: int = 9,
        *,
        member_id: str = "",
        instance: str | None = None,
        **changes: Any,  # noqa: ANN401
    ) -> m.JoinGroupResponse:
        fields: dict[str, Any] = {
            "group_id": "g",
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 60_000,
            "member_id": member_id,
            "group_instance_id": instance,
            "protocol_type": "consumer",
            "protocols": [m.JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
        }
        response: m.JoinGroupResponse = await self.ask(
            m.JoinGroupRequest(**fields | changes), version
        )
        return response

    async def sync(
        self,
        member_id: str,
        generation: int,
        version: int = 5,
        assignments: Sequence[tuple[str, bytes]] = (),
        **changes: Any,  # noqa: ANN401
    ) -> m.SyncGroupResponse:
        fields: dict[str, Any] = {
            "group_id": "g",
            "generation_id": generation,
            "member_id": member_id,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [
                m.SyncGroupRequestAssignment(member_id=share_of, assignment=share)
                for share_of, share in assignments
            ],
        }
        response: m.SyncGroupResponse = await self.ask(
            m.SyncGroupRequest(**fields | changes), version
        )
        return response

    async def lone_member(self, instance: str = "i") -> str:
        """A stable group "g" of one static member in generation 1."""
        member_id = (await self.join(instance=instance)).member_id
        await self.sync(member_id, 1, assignments=[(member_id, b"share")])
        return member_id


@asynccontextmanager
async def running_groups() -> AsyncIterator[RunningGroups]:
    """With a topic "t" of three partitions, no initial rebalance delay, all of it in memory."""

    clock = SystemClock()
    in_memory = memory_store()
    async with running_topics(
        Path("/data"), clock=clock, files=SimulatedFileSystem(), store=in_memory
    ) as topics:
        await topics.changes.create_topic("t", partition_count=3)
        purgatory = Purgatory(report=report)
        shell = PurgatoryShell(purgatory, clock)
        groups = group_coordinator(purgatory, clock)
        topics.changes.on_topics_deleted(groups.host.forget_topics)
        await groups.host.start()
        try:
            yield RunningGroups(topics, groups)
        finally:
            await groups.host.close()
            shell.close()
