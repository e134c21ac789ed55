"""TxnOffsetCommit by version, and the order of its checks."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from kohort.broker.core.transaction.client import Client
from kohort.broker.runtime.deferred import Deferred
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.types import ZERO_UUID
from tests.support import messages as m
from tests.support.groups.running_groups import RunningGroups, running_groups

VERSIONS = range(7)
A_TOPIC_ID = bytes(range(16))
NONE = ErrorCode.NONE
CLIENT = Client("c", "/127.0.0.1")
every_version = pytest.mark.parametrize("version", VERSIONS)


class Keeper:
    """Says what it is told to, and notes what it is asked."""

    def __init__(self) -> None:
        self.answers: list[ErrorCode] = []
        """One after the other; then NONE."""
        self.settled: Deferred[None] | None = None
        self.adding: Deferred[None] | None = None
        self.asked: list[tuple[object, ...]] = []

    def settling(self, transactional_id: str, *, adds: bool) -> Deferred[None] | None:
        assert transactional_id == "x"
        del adds
        return self.settled

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[tuple[str, int]],
        *,
        adds: bool,
    ) -> ErrorCode:
        self.asked.append((transactional_id, producer_id, producer_epoch, *partitions, adds))
        return self.answers.pop(0) if self.answers else NONE

    def add(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[tuple[str, int]],
        client: Client | None = None,
    ) -> Deferred[None] | None:
        assert client == CLIENT
        self.asked.append((transactional_id, producer_id, producer_epoch, *partitions))
        return self.adding


def with_keeper(g: RunningGroups) -> Keeper:
    keeper = Keeper()
    g.services.transactions = cast("Any", keeper)
    return keeper


def a_topic(
    g: RunningGroups, version: int, name: str, *partitions: int, metadata: str | None = None
) -> m.TxnOffsetCommitRequestTopic:
    topic = g.topics.get(name)
    known_id = A_TOPIC_ID if topic is None else topic.topic_id
    return m.TxnOffsetCommitRequestTopic(
        name=name if version < 6 else "",
        topic_id=ZERO_UUID if version < 6 else known_id,
        partitions=[
            m.TxnOffsetCommitRequestPartition(
                partition_index=index,
                committed_offset=42,
                committed_leader_epoch=5,
                committed_metadata=metadata,
            )
            for index in partitions
        ],
    )


async def ask(
    g: RunningGroups,
    version: int,
    topics: Sequence[m.TxnOffsetCommitRequestTopic],
    *,
    group_id: str = "g",
    member_id: str = "",
    generation: int = -1,
) -> m.TxnOffsetCommitResponse:
    request = m.TxnOffsetCommitRequest(
        transactional_id="x",
        group_id=group_id,
        producer_id=7,
        producer_epoch=3,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=list(topics),
    )
    answer: m.TxnOffsetCommitResponse = await g.ask(request, version)
    return answer


def errors_of(answer: m.TxnOffsetCommitResponse) -> list[int]:
    return [one.error_code for topic in answer.topics for one in topic.partitions]


def is_unstable(g: RunningGroups, partition: int = 0) -> bool:
    group = g.groups.host.group("g")
    return group is not None and group.offsets.is_unstable("t", partition)


async def test_the_group_is_asked_when_the_partition_is_in_the_transaction() -> None:
    async with running_groups() as g:
        keeper = with_keeper(g)
        keeper.adding = Deferred()
        answer = g.start(
            m.TxnOffsetCommitRequest(
                transactional_id="x",
                group_id="g",
                producer_id=7,
                producer_epoch=3,
                topics=[a_topic(g, 5, "t", 0)],
            ),
            5,
        )
        await g.groups.delete_group("other")
        assert not is_unstable(g)
        keeper.adding.set_result(None)
        assert errors_of(await answer) == [NONE]
        assert is_unstable(g)


@every_version
async def test_what_is_on_its_way_for_the_id_is_waited_for(version: int) -> None:
    async with running_groups() as g:
        keeper = with_keeper(g)
        keeper.settled = Deferred()
        asked = asyncio.ensure_future(ask(g, version, [a_topic(g, version, "t", 0)]))
        await g.groups.delete_group("other")
        await asyncio.sleep(0)
        assert not keeper.asked
        keeper.settled.set_result(None)
        assert errors_of(await asked) == [NONE]


@every_version
async def test_a_transaction_that_ends_meanwhile_is_not_appended_to(version: int) -> None:
    async with running_groups() as g:
        with_keeper(g).answers = [NONE, ErrorCode.PRODUCER_FENCED]
        answer = await ask(g, version, [a_topic(g, version, "t", 0)])
        assert errors_of(answer) == [ErrorCode.INVALID_PRODUCER_EPOCH]
        assert not is_unstable(g)


@every_version
async def test_with_nothing_to_store_no_coordinator_is_asked(version: int) -> None:
    async with running_groups() as g:
        keeper = with_keeper(g)
        assert (await ask(g, version, [])).topics == []
        assert len(errors_of(await ask(g, version, [a_topic(g, version, "absent", 0)]))) == 1
        assert keeper.asked == []


async def test_who_was_overtaken_while_the_partition_was_added_is_told_so() -> None:
    async with running_groups() as g:
        keeper = with_keeper(g)
        keeper.adding = Deferred()
        keeper.adding.set_exception(KafkaError(ErrorCode.PRODUCER_FENCED))
        with pytest.raises(KafkaError, match="INVALID_PRODUCER_EPOCH"):
            await ask(g, 5, [a_topic(g, 5, "t", 0)])
