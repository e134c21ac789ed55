"""The topic of the history over real topics: written, read back from its end, and in trouble."""

import errno
import logging
import random
from pathlib import Path

import pytest

from kohort.broker.history import topic as history_topic
from kohort.broker.history.restoring import restore
from kohort.broker.history.rings import Rings
from kohort.broker.history.topic import RUNNING, TopicHistoryLog
from kohort.broker.topics import names
from kohort.broker.topics.manager import TopicManager
from kohort.broker.topics.names import REBALANCE_HISTORY
from kohort.groups.history.entry import Entry
from kohort.groups.history.json_form import parse_text, text_steps
from kohort.groups.history.model import MemberTimeline, RebalanceOutcome, RebalanceRecord
from kohort.groups.steps import at_once
from kohort.protocol.records.batch import read_header
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record
from kohort.testing.inline_executor import InlineExecutor
from kohort.testing.simulated_filesystem import SimulatedFileSystem
from kohort.testing.virtual_clock import VirtualClock
from tests.support.brokers.running_topics import running_topics
from tests.support.records.storage_tools import memory_store
from tests.unit.groups.history.test_json_form import AVOIDED, TRIGGER


def log_of(topics: TopicManager) -> TopicHistoryLog:
    return TopicHistoryLog(topics, topics.settings.config, InlineExecutor())


def entry(group_id: str, sequence: int, text: bytes = b"{}", kind: str = "rebalance") -> Entry:
    return Entry(group_id, kind, sequence, text, 1_700_000_000_000 + sequence)


async def test_a_start_without_a_history_makes_no_topic(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        assert list(log_of(topics).read()) == []
        assert topics.get(REBALANCE_HISTORY) is None


async def test_the_topic_is_made_with_the_first_entry_and_deletes_by_time(tmp_path: Path) -> None:
    settings = ("kohort.rebalance.history.retention.ms=60000",)
    async with running_topics(tmp_path, *settings) as topics:
        await log_of(topics).append([entry("g", 1)])
        topic = topics.get(REBALANCE_HISTORY)
        assert topic is not None
        assert topic.is_internal
        assert len(topic.partitions) == 1
        assert topic.config.cleanup_policy == ("delete",)
        assert topic.config.retention_ms == 60_000
        assert topic.config.retention_bytes == 256 << 20


async def test_what_was_appended_together_is_one_batch_and_is_there_after_a_kill(
    tmp_path: Path,
) -> None:
    large = b'{"a":"' + b"x" * 100_000 + b'"}'
    entries = [entry("g", 1), entry("h\ud800", 1, large), entry("g", 2, kind="avoided")]
    async with running_topics(tmp_path, stop_cleanly=False) as topics:
        await log_of(topics).append(entries)
        topic = topics.get(REBALANCE_HISTORY)
        assert topic is not None
        log = topic.partitions[0].log
        assert log.log_end_offset == 3
        assert read_header(log.read(0, 1 << 20, up_to_offset=3, min_one=True)).record_count == 3
        assert log.size_bytes < 5_000
    async with running_topics(tmp_path) as topics:
        assert list(log_of(topics).read()) == entries


async def test_a_start_reads_the_newest_segments_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names, "HISTORY_SEGMENT_BYTES", 1 << 20)
    monkeypatch.setattr(history_topic, "RESTORE_BYTES", 1 << 20)
    async with running_topics(tmp_path) as topics:
        log = log_of(topics)
        for number in range(50):
            await log.append([entry("g", number, random.randbytes(200_000))])
        sequences = [one.sequence for one in log.read()]
    assert sequences == list(range(sequences[0], 50))
    assert 5 <= len(sequences) <= 10


async def test_records_of_others_and_of_later_schemas_are_skipped(tmp_path: Path) -> None:
    strangers = [
        Record(b"v", key=b"g"),
        Record(None, key=b"g", headers=(("schema", b"1"), ("kind", b"x"), ("sequence", b"1"))),
        Record(b"v", key=b"g", headers=(("schema", b"2"), ("kind", b"x"), ("sequence", b"1"))),
        Record(b"v", key=b"g", headers=(("schema", b"1"), ("kind", b"x"), ("sequence", b"?"))),
        Record(b"v", key=b"\xff", headers=(("schema", b"1"), ("kind", b"x"), ("sequence", b"1"))),
    ]
    async with running_topics(tmp_path) as topics:
        log = log_of(topics)
        await log.append([entry("g", 1)])
        topic = topics.get(REBALANCE_HISTORY)
        assert topic is not None
        batch = encode_batch(strangers)
        topic.partitions[0].append(batch, read_header(batch), wall_ms=5)
        await log.append([entry("g", 2)])
        assert [one.sequence for one in log.read()] == [1, 2]


async def test_a_full_disk_loses_entries_with_one_warning_and_recovers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files = SimulatedFileSystem()
    store = memory_store()
    async with running_topics(Path("/data"), files=files, store=store) as topics:
        log = log_of(topics)
        await log.append([entry("g", 1)])
        with caplog.at_level(logging.WARNING, logger="kohort.broker.history"):
            files.fail("pwritev", suffix=".log", number=errno.ENOSPC, times=4)
            for number in range(2, 6):
                await log.append([entry("g", number), entry("h", number)])
            assert log.lost_count == 8
            files.clear_faults()
            await log.append([entry("g", 6)])
        warnings = [one for one in caplog.records if one.name.startswith("kohort.broker.history")]
        assert len(warnings) == 1
        assert [one.sequence for one in log.read()] == [1, 6]
        assert log.lost_count == 8


async def test_a_topic_that_cannot_be_made_is_not_tried_with_every_entry() -> None:
    files = SimulatedFileSystem()
    store = memory_store()
    overrides = ("kohort.max.partitions=1",)
    async with running_topics(Path("/data"), *overrides, files=files, store=store) as topics:
        await topics.changes.create_topic("t", partition_count=1)
        log = log_of(topics)
        for number in range(5):
            await log.append([entry("g", number)])
        assert log.lost_count == 5
        assert topics.get(REBALANCE_HISTORY) is None


async def test_a_damaged_log_restores_what_comes_before_the_damage(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_topics(tmp_path) as topics:
        log = log_of(topics)
        await log.append([entry("g", 1)])
        await log.append([entry("g", 2)])
    file = tmp_path / f"{REBALANCE_HISTORY}-0" / "00000000000000000000.log"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    async with running_topics(tmp_path) as topics:
        rings = Rings(100, 1 << 20)
        await restore(log_of(topics), rings, VirtualClock())
        ring = rings.get("g")
        assert ring is not None
        assert ring.last_sequence == 1
    assert any("cannot be read" in one.getMessage() for one in caplog.records)


async def test_a_rebalance_that_ran_when_the_broker_died_is_unfinished(tmp_path: Path) -> None:
    record = RebalanceRecord(
        group="g",
        sequence=4,
        previous_generation=2,
        previous_state="Stable",
        started_at_ms=7,
        trigger=TRIGGER,
        outcome=RebalanceOutcome.RUNNING,
        members=(MemberTimeline(member_id="m"),),
    )
    text = at_once(text_steps(record))
    async with running_topics(tmp_path) as topics:
        log = log_of(topics)
        await log.append(
            [
                entry("g", 2, text, kind=RUNNING),
                entry("g", 2, text),
                entry("g", 3, at_once(text_steps(AVOIDED)), kind="avoided"),
                entry("g", 4, text, kind=RUNNING),
                entry("broken", 1, b"[", kind=RUNNING),
            ]
        )
        rings = Rings(100, 1 << 20)
        (unfinished,) = await restore(log, rings, VirtualClock())
        ring = rings.get("g")
        assert ring is not None
        assert (ring.last_sequence, len(ring.records)) == (4, 3)
        assert (ring.rebalance_count, ring.avoided_count) == (2, 1)
        restored = parse_text(ring.records[-1].text)
        assert isinstance(restored, RebalanceRecord)
        assert restored.outcome is RebalanceOutcome.UNFINISHED
        assert (unfinished.kind, unfinished.sequence) == ("rebalance", 4)
        # Once it is written, another start finds nothing to finish.
        await log.append([unfinished])
        assert await restore(log, Rings(100, 1 << 20), VirtualClock()) == []
