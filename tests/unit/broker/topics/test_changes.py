"""Topics are created, enlarged, altered and deleted; what was answered survives everything."""

import asyncio
import errno
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from kohort.broker.storage.errors import StorageError
from kohort.broker.topics.changes import Alteration, PlannedTopic
from kohort.broker.topics.creation import NewTopic
from kohort.broker.topics.manager import TopicManager
from kohort.broker.topics.names import SHARE_GROUP_STATE, internal_topic_configs
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.testing.simulated_filesystem import SimulatedFileSystem
from tests.support.brokers.running_topics import append, directories, running_topics
from tests.support.measures.busy_clock import BusyClock
from tests.support.records.storage_tools import memory_store
from tests.support.waiting import iterations_of


async def create(topics: TopicManager, *wanted: NewTopic) -> list[PlannedTopic | ErrorCode]:
    outcomes = await topics.changes.create_topics(wanted)
    return [one.code if isinstance(one, KafkaError) else one for one in outcomes]


def setting(**configs: str) -> Alteration:
    def alteration(current: Mapping[str, str]) -> dict[str, str]:
        return dict(current) | {name.replace("_", "."): text for name, text in configs.items()}

    return alteration


async def test_topics_of_one_request_succeed_and_fail_alone(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        await topics.changes.create_topic("a.b", partition_count=1)
        outcomes = await create(
            topics,
            NewTopic(name="fine", partition_count=2),
            NewTopic(name="a.b"),
            NewTopic(name="a_b"),
            NewTopic(name="no way"),
            NewTopic(name="fine"),
            NewTopic(name="none", partition_count=0),
            NewTopic(name="odd", configs={"retention.ms": "x"}),
            NewTopic(name="odd", configs={"nonsense": "1"}),
        )
        assert isinstance(outcomes[0], PlannedTopic)
        assert outcomes[1:] == [
            ErrorCode.TOPIC_ALREADY_EXISTS,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            ErrorCode.INVALID_REQUEST,
            ErrorCode.INVALID_PARTITIONS,
            ErrorCode.INVALID_CONFIG,
            ErrorCode.INVALID_CONFIG,
        ]
        assert {topic.name for topic in topics.all()} == {"a.b", "fine"}


async def test_no_client_can_make_partitions_without_bound(tmp_path: Path) -> None:
    async with running_topics(tmp_path, "kohort.max.partitions=5") as topics:
        first = await topics.changes.create_topic("first", partition_count=4)
        assert await create(topics, NewTopic(name="second", partition_count=2)) == [
            ErrorCode.INVALID_PARTITIONS
        ]
        with pytest.raises(KafkaError, match=r"kohort\.max\.partitions, 5"):
            await topics.changes.create_partitions(first, 6)
        assert await topics.changes.delete_topics([first]) == [None]
        await topics.changes.create_topic("third", partition_count=5)


async def test_topics_are_there_after_a_restart_with_everything(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        topic = await topics.changes.create_topic(
            "orders", partition_count=1, configs={"flush.ms": "7"}
        )
        topic_id = topic.topic_id
        await topics.changes.create_partitions(topic, 3)
        await topics.changes.alter_topic(topic, setting(retention_ms="5"))
        append(topic.partitions[2])
    async with running_topics(tmp_path) as topics:
        again = topics.get("orders")
        assert again is not None
        assert (again.topic_id, len(again.partitions)) == (topic_id, 3)
        assert (again.config.retention_ms, again.config.flush_ms) == (5, 7)
        assert again.partitions[2].log.log_end_offset == 1
        assert again.partitions[2].high_watermark == 1


async def test_new_partitions_join_the_old_ones(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        topic = await topics.changes.create_topic("orders", partition_count=1)
        append(topic.partitions[0])
        await topics.changes.create_partitions(topic, 3)
        assert [partition.index for partition in topic.partitions] == [0, 1, 2]
        assert topic.partitions[0].log.log_end_offset == 1
        with pytest.raises(KafkaError, match="already has 3"):
            await topics.changes.create_partitions(topic, 3)


async def test_a_deleted_topic_is_gone_with_its_files_and_its_name_is_free(tmp_path: Path) -> None:
    deleted: list[str] = []
    async with running_topics(tmp_path) as topics:
        topics.changes.on_topics_deleted(deleted.extend)
        old = await topics.changes.create_topic("orders", partition_count=2)
        partition = old.partitions[0]
        append(partition)
        assert await topics.changes.delete_topics([old]) == [None]
        assert deleted == ["orders"]
        assert topics.get("orders") is topics.get_by_id(old.topic_id) is None
        with pytest.raises(KafkaError) as answer:
            partition.check_online()
        assert answer.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        (error,) = await topics.changes.delete_topics([old])
        assert error is not None
        assert error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        with pytest.raises(KafkaError) as gone:
            await topics.changes.create_partitions(old, 5)
        assert gone.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        new = await topics.changes.create_topic("orders", partition_count=1)
        assert new.topic_id != old.topic_id
        assert new.partitions[0].log.log_end_offset == 0
    assert directories(tmp_path) == ["orders-0"]


@pytest.mark.parametrize(
    "configs",
    [
        {"cleanup_policy": "compact"},
        {"cleanup_policy": "compact,delete"},
        {"retention_ms": "86400000"},
        {"retention_bytes": "1000000000"},
    ],
)
async def test_the_state_of_share_groups_is_neither_compacted_nor_retained_for_a_time(
    tmp_path: Path, configs: dict[str, str]
) -> None:
    async with running_topics(tmp_path, "log.retention.bytes=1000000") as topics:
        created = internal_topic_configs(SHARE_GROUP_STATE, topics.settings.config)
        topic = await topics.changes.create_topic(
            SHARE_GROUP_STATE, partition_count=1, configs=created
        )
        await topics.changes.alter_topic(topic, setting(segment_bytes="2000000"))
        with pytest.raises(KafkaError) as refused:
            await topics.changes.alter_topic(topic, setting(**configs), validate_only=True)
        assert refused.value.code is ErrorCode.INVALID_CONFIG
        with pytest.raises(KafkaError):
            await topics.changes.alter_topic(topic, lambda _: {})


async def test_altered_configs_apply_at_once_to_open_logs(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        topic = await topics.changes.create_topic("orders", partition_count=2)
        opened = topic.partitions[0]
        await topics.changes.alter_topic(topic, setting(flush_messages="1"))
        assert topic.config.flush_messages == 1
        assert opened.config.flush_messages == 1
        assert opened.log.config is opened.config
        await topics.changes.alter_topic(topic, lambda _: {})
        assert opened.config.flush_messages == 2**63 - 1
        with pytest.raises(KafkaError) as refused:
            await topics.changes.alter_topic(topic, setting(retention_ms="x"))
        assert refused.value.code is ErrorCode.INVALID_CONFIG


async def test_changes_wait_for_each_other(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        outcomes = await asyncio.gather(
            *(create(topics, NewTopic(name="orders", partition_count=3)) for _ in range(5))
        )
        created = [one for (one,) in outcomes if isinstance(one, PlannedTopic)]
        assert len(created) == 1
        assert [one for (one,) in outcomes].count(ErrorCode.TOPIC_ALREADY_EXISTS) == 4


async def test_a_change_comes_to_its_end_though_its_request_is_cancelled(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        creation = asyncio.create_task(topics.changes.create_topic("orders", partition_count=3))
        await asyncio.sleep(0)
        creation.cancel()
        with pytest.raises(asyncio.CancelledError):
            await creation
        await topics.changes.create_topic("next", partition_count=1)
        assert topics.get("orders") is not None
        assert (tmp_path / "orders-2").is_dir()


async def test_a_full_disk_refuses_a_topic_and_leaves_nothing_of_it() -> None:
    files = SimulatedFileSystem()
    store = memory_store()
    async with running_topics(Path("/data"), files=files, store=store) as topics:
        files.fail("create", suffix="orders-1/00000000000000000000.log", number=errno.ENOSPC)
        assert await create(topics, NewTopic(name="orders", partition_count=3)) == [
            ErrorCode.KAFKA_STORAGE_ERROR
        ]
        assert topics.get("orders") is None
        assert store.topics() == []
        topic = await topics.changes.create_topic("orders", partition_count=3)
        assert append(topic.partitions[1]).base_offset == 0


class CheckpointCounter(SimulatedFileSystem):
    """Counts how often each checkpoint is replaced."""

    def __init__(self) -> None:
        super().__init__()
        self.replaced: Counter[str] = Counter()

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        if "checkpoint" in target:
            self.replaced[target] += 1


async def test_very_many_topics_are_validated_in_slices(tmp_path: Path) -> None:
    wanted = [NewTopic(name=f"t-{n}", configs={"retention.ms": str(n)}) for n in range(200)]
    async with running_topics(tmp_path, clock=BusyClock()) as topics:
        validating = topics.changes.create_topics(wanted, validate_only=True)
        outcomes, iterations = await iterations_of(validating)
        assert all(isinstance(outcome, PlannedTopic) for outcome in outcomes)
        assert iterations > len(wanted) // 2


async def test_topics_deleted_together_write_each_checkpoint_once() -> None:
    files = CheckpointCounter()
    async with running_topics(Path("/data"), files=files, store=memory_store()) as topics:
        await create(topics, *(NewTopic(name=f"t-{number}") for number in range(20)))
        files.replaced.clear()
        assert await topics.changes.delete_topics(topics.all()) == [None] * 20
        assert set(files.replaced.values()) == {1}


async def test_a_disk_that_refuses_everything_spoils_no_name() -> None:
    """This happens when no more files may be opened: neither logs nor checkpoints can be made."""
    files = SimulatedFileSystem()
    store = memory_store()
    async with running_topics(Path("/data"), files=files, store=store) as topics:
        files.fail("create", suffix=".log", number=errno.EMFILE, times=99)
        files.fail("create", suffix=".tmp", number=errno.EMFILE, times=99)
        for _ in range(2):
            wanted = (NewTopic(name="orders"), NewTopic(name="sales"))
            assert await create(topics, *wanted) == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
            assert topics.all() == []
            assert store.topics() == []
        files.clear_faults()
        for name in ("orders", "sales"):
            topic = await topics.changes.create_topic(name, partition_count=1)
            assert append(topic.partitions[0]).base_offset == 0


async def test_a_topic_that_cannot_be_taken_back_is_there_and_offline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = SimulatedFileSystem()
    store = memory_store()

    def refuse(topic_ids: list[bytes]) -> None:
        raise StorageError(f"the disk is full: {topic_ids!r}")

    async with running_topics(Path("/data"), files=files, store=store) as topics:
        files.fail("create", suffix="orders-0/00000000000000000000.log", number=errno.ENOSPC)
        with monkeypatch.context() as broken:
            broken.setattr(store, "mark_topics_deleted", refuse)
            outcomes = await create(topics, NewTopic(name="orders"), NewTopic(name="sales"))
        sales = topics.get("sales")
        assert sales is not None
        assert outcomes == [
            ErrorCode.KAFKA_STORAGE_ERROR,
            PlannedTopic("sales", sales.topic_id, 1, {}),
        ]
        orders = topics.get("orders")
        assert orders is not None
        assert not orders.partitions.is_online(0)
        assert await create(topics, NewTopic(name="orders")) == [ErrorCode.TOPIC_ALREADY_EXISTS]
        assert await topics.changes.delete_topics([orders]) == [None]
        await topics.changes.create_topic("orders", partition_count=1)
