"""__transaction_state as the topic that it is."""

from pathlib import Path

import pytest

from kohort.broker.core.transaction.records import TransactionTombstone
from kohort.broker.topics.internal_log import InternalLog
from kohort.broker.topics.manager import TopicManager
from kohort.broker.topics.names import TRANSACTION_STATE
from kohort.broker.transactions.log import encode_as_batch, load_ids
from kohort.protocol.errors import ErrorCode, KafkaError
from tests.support.brokers.running_topics import directories, running_topics
from tests.support.transactions.driven_id import S, stored

WALL_MS = 1_700_000_000_000


def log_of(topics: TopicManager) -> InternalLog:
    return InternalLog(
        topics, TRANSACTION_STATE, partition_count=7, configs={"cleanup.policy": "compact"}
    )


async def test_the_topic_is_made_with_its_first_id_and_a_look_makes_nothing(
    tmp_path: Path,
) -> None:
    async with running_topics(tmp_path) as topics:
        log = log_of(topics)
        assert log.partition_count == 7
        assert (await load_ids(log, topics.clock)).records == {}
        assert directories(tmp_path, "__transaction*") == []
        made = log.append(3, encode_as_batch(stored(S.EMPTY), WALL_MS), wall_ms=WALL_MS)
        assert made is not None
        await made
        assert directories(tmp_path, "__transaction*") == ["__transaction_state-3"]
        # From now on nothing is waited for.
        assert log.append(3, encode_as_batch(stored(S.ONGOING), WALL_MS), wall_ms=WALL_MS) is None
        topic = topics.get(TRANSACTION_STATE)
        assert topic is not None
        assert topic.config.cleanup_policy == ("compact",)


async def test_the_last_record_of_each_id_is_read_back(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        log = log_of(topics)
        for record in (
            stored(S.EMPTY),
            stored(S.EMPTY, transactional_id="gone"),
            stored(S.EMPTY, transactional_id="other", last_update_ms=5),
            stored(S.ONGOING),
            TransactionTombstone("gone"),
        ):
            waiting = log.append(3, encode_as_batch(record, WALL_MS), wall_ms=WALL_MS)
            if waiting is not None:
                await waiting
    async with running_topics(tmp_path) as topics:
        log = log_of(topics)
        loaded = await load_ids(log, topics.clock)
        # The one that was updated first comes first.
        assert list(loaded.records.values()) == [
            stored(S.EMPTY, transactional_id="other", last_update_ms=5),
            stored(S.ONGOING),
        ]
        assert loaded.unreadable_partitions == set()
        assert log.leader_epoch(3) == log.leader_epoch(4) == 0


def test_what_the_format_cannot_say_is_refused() -> None:
    record = stored(S.EMPTY, transactional_id="x" * 40_000)
    with pytest.raises(KafkaError) as caught:
        encode_as_batch(record, WALL_MS)
    assert caught.value.code is ErrorCode.INVALID_RECORD
