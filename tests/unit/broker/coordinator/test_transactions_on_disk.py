"""Commits in transactions over a real log: what a start finds is what was there before."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kohort.broker.coordinator.offsets_log import TopicOffsetsLog
from kohort.broker.storage.metadata.store import MetadataStore
from kohort.broker.topics.manager import TopicManager
from kohort.broker.topics.names import CONSUMER_OFFSETS
from kohort.broker.topics.partition import Partition
from kohort.groups.requests import (
    CommitRequest,
    EnclosingTransaction,
    OffsetToCommit,
    TopicPartition,
)
from kohort.protocol.errors import ErrorCode
from kohort.protocol.records.control import ControlType
from kohort.testing.inline_executor import InlineExecutor
from kohort.testing.lasting_metadata import LastingMetadata
from kohort.testing.simulated_filesystem import SimulatedFileSystem
from kohort.testing.virtual_clock import VirtualClock
from tests.support.brokers.running_topics import running_topics
from tests.support.virtual_time import virtual
from tests.unit.broker.coordinator.harness import Harness, running

PRODUCERS = (7, 8)
GROUPS = ("g", "h")
PARTITIONS = 3
LIVES = 8


class Broker:
    """Groups and their topic; the coordinator of transactions is the test."""

    def __init__(self, topics: TopicManager, groups: Harness) -> None:
        self.topics = topics
        self.h = groups

    def partition(self, group_id: str) -> Partition:
        topic = self.topics.get(CONSUMER_OFFSETS)
        assert topic is not None
        return topic.partitions[self.h.groups.offsets_partition(group_id)]

    async def commit(
        self, group_id: str, producer_id: int, epoch: int, partition: int, offset: int
    ) -> ErrorCode:
        request = CommitRequest((OffsetToCommit("t", partition, offset),))
        transaction = EnclosingTransaction(producer_id, epoch)
        result = await self.h.groups.commit_transactional(
            group_id, request, transaction, may_answer_group_not_found=True
        )
        return result.errors[0]

    async def end(self, producer_id: int, epoch: int, *, commit: bool) -> None:
        """Markers of the next epoch, wherever there may be a transaction of the producer."""
        topic = self.topics.get(CONSUMER_OFFSETS)
        if topic is None:
            return
        for index in {self.h.groups.offsets_partition(group_id) for group_id in GROUPS}:
            appended = topic.partitions[index].append_marker(
                producer_id,
                epoch + 1,
                ControlType.COMMIT if commit else ControlType.ABORT,
                coordinator_epoch=0,
                transaction_version=2,
                wall_ms=1_700_000_000_000,
            )
            self.h.groups.end_transaction(index, producer_id, commit=commit)
            await topic.partitions[index].wait_committed(appended.next_offset)

    def view(self) -> dict[tuple[str, int], tuple[int | None, bool]]:
        """Positions, and which of them are unstable."""
        view = {}
        for group_id in GROUPS:
            group = self.h.groups.host.group(group_id)
            for partition in range(PARTITIONS):
                unstable = group is not None and group.offsets.is_unstable("t", partition)
                view[group_id, partition] = self.h.offset(group_id, partition), unstable
        return view

    def check_that_all_open_ones_are_known(self) -> None:
        """A producer that has positions pending in a group has a transaction open where it lies."""
        for group_id in GROUPS:
            group = self.h.groups.host.group(group_id)
            if group is not None and group.offsets.has_pending:
                opened = {one.producer_id for one in self.partition(group_id).open_transactions()}
                assert set(group.offsets.pending_producers()) <= opened


@asynccontextmanager
async def a_broker(
    clock: VirtualClock,
    files: SimulatedFileSystem,
    store: MetadataStore,
    flush_messages: int,
    *,
    stop_cleanly: bool = True,
) -> AsyncIterator[Broker]:
    async with running_topics(
        Path("/data"),
        "offsets.topic.num.partitions=2",
        f"log.flush.interval.messages={flush_messages}",
        clock=clock,
        files=files,
        store=store,
        executor=InlineExecutor(),
        stop_cleanly=stop_cleanly,
    ) as topics:
        log = TopicOffsetsLog(topics, topics.settings.config)
        async with running(clock, log) as h:
            yield Broker(topics, h)


async def live(
    broker: Broker, draw: random.Random, epochs: dict[int, int], first_step: int
) -> dict[tuple[str, int], tuple[int | None, bool]]:
    """Some steps; what is there at the end."""
    for step in range(first_step, first_step + draw.randint(1, 8)):
        producer_id, group_id = draw.choice(PRODUCERS), draw.choice(GROUPS)
        partition = draw.randrange(PARTITIONS)
        match draw.choice(["pending", "pending", "plain", "commit", "abort", "delete"]):
            case "pending":
                epoch = epochs[producer_id]
                error = await broker.commit(group_id, producer_id, epoch, partition, step)
                assert error is ErrorCode.NONE
            case "plain":
                await broker.h.do_commit(step, group_id=group_id, partition=partition)
            case "delete":
                places = [TopicPartition("t", partition)]
                await broker.h.groups.delete_offsets(group_id, places)
            case "commit" | "abort" as how:
                await broker.end(producer_id, epochs[producer_id], commit=how == "commit")
                epochs[producer_id] += 1
    broker.check_that_all_open_ones_are_known()
    return broker.view()


@pytest.mark.parametrize(
    ("flush_messages", "end"), [(10_000, "stop"), (10_000, "kill"), (1, "power loss")]
)
def test_a_start_finds_what_was_there(flush_messages: int, end: str, *, long_form: bool) -> None:
    for seed in range(30 if long_form else 2):
        start_again_and_again(random.Random(seed), flush_messages, end)


def start_again_and_again(draw: random.Random, flush_messages: int, end: str) -> None:
    files, store = SimulatedFileSystem(), LastingMetadata()
    epochs = dict.fromkeys(PRODUCERS, 0)

    @virtual
    async def lives(clock: VirtualClock) -> None:
        before = None
        for life in range(LIVES):
            async with a_broker(
                clock, files, store, flush_messages, stop_cleanly=end == "stop"
            ) as broker:
                assert before is None or broker.view() == before
                before = await live(broker, draw, epochs, life * 10)
            if end == "power loss":
                files.lose_power(lambda _: 0)

    lives()


@virtual
async def test_behind_the_marker_of_a_later_epoch_nothing_is_appended(clock: VirtualClock) -> None:
    files, store = SimulatedFileSystem(), LastingMetadata()
    async with a_broker(clock, files, store, 10_000) as broker:
        assert await broker.commit("g", 7, 0, 0, 1) is ErrorCode.NONE
        assert await broker.commit("g", 7, 0, 0, 2) is ErrorCode.NONE
        await broker.end(7, 0, commit=True)
        assert await broker.commit("g", 7, 0, 0, 3) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert broker.view()["g", 0] == (2, False)
        assert await broker.commit("g", 7, 1, 0, 4) is ErrorCode.NONE
        assert broker.view()["g", 0] == (2, True)
        end_offset = broker.partition("g").high_watermark
        assert broker.partition("g").last_stable_offset == end_offset - 1
