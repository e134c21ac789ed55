"""Records of the state topic, compared with those of Apache Kafka 4.4."""

import gzip
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kohort.groups.share.state_log import (
    SharePartitionKey,
    StateRecord,
    StateReplay,
    StateWriter,
    StoredState,
    initialized,
    tombstone,
)
from kohort.groups.share.states import RecordState, StateBatch, joined, overlay
from kohort.groups.share.window import Window, WindowSettings
from kohort.protocol.codec import encode_versioned
from kohort.protocol.errors import DecodeError
from kohort.protocol.messages.share_state_log import ShareUpdateValue
from kohort.protocol.messages.share_state_log import StateBatch as ShareStateBatch
from tests.unit.groups.share.windows import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    acknowledge,
    acquire,
    batch,
    log,
    store,
)

KEY = SharePartitionKey("group", bytes(range(16)), 3)


def recorded(scene: str, state_partition: int) -> list[dict[str, Any]]:
    """Return Kafka's records of one partition of the state topic."""
    cases = json.loads(gzip.decompress((CASES / "records.json.gz").read_bytes()))
    return [
        case
        for case in cases
        if case["scene"].startswith(scene) and case.get("state_partition") == state_partition
    ]


CASES = Path(__file__).parent / "cases"


def bytes_of(case: dict[str, Any]) -> tuple[bytes, bytes | None]:
    value = case["value"]
    return bytes.fromhex(case["key"]), None if value is None else bytes.fromhex(value)


def fields_of(state: StoredState) -> tuple[object, ...]:
    return (
        state.snapshot_epoch,
        state.state_epoch,
        state.start_offset,
        state.delivery_complete_count,
        state.create_ms,
        state.write_ms,
        state.batches,
    )


def write_next(
    window: Window, writer: StateWriter, wall_ms: int = 0, updates_per_snapshot: int = 500
) -> StateRecord:
    """Encode the changes of a window, which are then durable."""
    write = window.take_write()
    assert write is not None
    record = writer.record(write, window, wall_ms, updates_per_snapshot=updates_per_snapshot)
    window.written(write)
    return record


def test_the_same_steps_write_the_bytes_that_kafka_writes() -> None:
    first, *updates, altered, deleted = [bytes_of(case) for case in recorded("join", 46)]
    replay = StateReplay()
    key = replay.apply(*first)
    assert key is not None
    record, state = initialized(key, -1, 2, replay.states[key].create_ms)
    assert (record.key, record.value) == first

    window = Window(WindowSettings(), 0)
    writer = StateWriter(key, state)
    acquire(window, log(10))
    window.acknowledge("a", 0, [batch(0, 4, ACCEPT, RELEASE, REJECT, GAP, ACCEPT)])
    records = [write_next(window, writer)]
    window.release_all("a")
    records.append(write_next(window, writer))
    assert [(record.key, record.value) for record in records] == updates

    replay.apply(*altered)
    record = writer.altered(7, 8, replay.states[key].create_ms)
    assert (record.key, record.value) == altered
    assert (tombstone(key).key, tombstone(key).value) == deleted
    replay.apply(*deleted)
    assert not replay.states


def test_every_501st_write_is_a_snapshot_as_in_kafka() -> None:
    first, update, last_update, snapshot = [bytes_of(case) for case in recorded("500", 43)]
    replay = StateReplay()
    key = replay.apply(*first)
    assert key is not None
    replay.apply(*snapshot)
    writer = StateWriter(key, initialized(key, -1, 2, 0)[1])
    window = Window(WindowSettings(), 0)
    acquire(window, log(600), max_records=600)
    records: list[StateRecord] = []
    for offset in range(1, 504):
        window.acknowledge("a", 0, [batch(offset, offset, ACCEPT)])
        records.append(write_next(window, writer, replay.states[key].write_ms))
    assert (records[0].key, records[0].value) == update
    assert (records[499].key, records[499].value) == last_update
    assert (records[500].key, records[500].value) == snapshot
    assert [record.is_snapshot for record in records] == [False] * 500 + [True, False, False]


def test_a_replay_restores_what_kafka_wrote() -> None:
    replay = StateReplay()
    for case in recorded("join", 46)[:3]:
        replay.apply(*bytes_of(case))
    (state,) = replay.states.values()
    assert (state.start_offset, state.delivery_complete_count, state.update_count) == (1, 3, 2)
    assert state.batches == [(1, 1, 0, 1), (2, 3, 4, 1), (4, 4, 2, 1), (5, 9, 0, 1)]


def test_an_overlay_is_what_it_is_offset_by_offset() -> None:
    """The higher count wins, then the higher state."""
    random = Random(5)
    states = (RecordState.AVAILABLE, RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)
    for _ in range(300):
        batches: list[StateBatch] = []
        expected: dict[int, tuple[int, RecordState]] = {}
        start = 0
        for _ in range(random.randint(1, 8)):
            first = random.randint(0, 20)
            last = first + random.choice([0, 2, 9])
            value = random.randint(1, 3), random.choice(states)
            start += random.choice([0, 0, 3])
            overlay(batches, [StateBatch(first, last, value[1], value[0])], start)
            for offset in range(first, last + 1):
                expected[offset] = max(expected.get(offset, value), value)
        restored = {
            offset: (count, state)
            for first, last, state, count in batches
            for offset in range(first, last + 1)
        }
        assert restored == {offset: expected[offset] for offset in expected if offset >= start}
        assert batches == joined(sorted(batches))


def test_the_hash_of_a_key_is_of_its_name() -> None:
    key = SharePartitionKey("g", bytes.fromhex("279a4d8de6b946d08d388ce6a2347dbb"), 0)
    assert str(key) == "g:J5pNjea5RtCNOIzmojR9uw:0"


def test_holes_are_available_again_and_come_first() -> None:
    """Offsets 2, 3 and 9 were accepted, 5 and 6 released; all others were with a member."""
    batches = [
        StateBatch(2, 3, RecordState.ACKNOWLEDGED, 1),
        StateBatch(5, 6, RecordState.AVAILABLE, 1),
        StateBatch(9, 9, RecordState.ACKNOWLEDGED, 1),
    ]
    window = Window(WindowSettings(), 0, batches)
    assert (window.start_offset, window.end_offset, window.delivery_complete_count) == (0, 9, 3)
    expected = [(0, 1, 1), (4, 4, 1), (5, 6, 2), (7, 8, 1), (10, 19, 1)]
    assert acquire(window, log(20)) == expected


def test_finished_offsets_at_the_front_move_the_start() -> None:
    batches = [
        StateBatch(3, 4, RecordState.ACKNOWLEDGED, 1),
        StateBatch(5, 5, RecordState.ARCHIVED, 5),
    ]
    window = Window(WindowSettings(), 3, batches)
    assert (window.start_offset, window.end_offset, window.delivery_complete_count) == (6, 5, 0)


def test_an_update_without_a_snapshot_is_applied_and_counted() -> None:
    replay = StateReplay()
    key = replay.apply(*bytes_of(recorded("join", 46)[1]))
    assert key is not None
    assert replay.states[key].start_offset == 0
    assert replay.updates_without_snapshot == 1


def test_an_update_without_a_start_keeps_it() -> None:
    replay = StateReplay()
    record, _ = initialized(KEY, 7, 1, 0)
    replay.apply(record.key, record.value)
    update = ShareUpdateValue(
        snapshot_epoch=0,
        leader_epoch=0,
        start_offset=-1,
        state_batches=[
            ShareStateBatch(first_offset=7, last_offset=8, delivery_state=0, delivery_count=1)
        ],
    )
    replay.apply(b"\0\1" + record.key[2:], encode_versioned(update, 0))
    assert replay.states[KEY].start_offset == 7
    assert replay.states[KEY].batches == [(7, 8, 0, 1)]


def test_a_restored_writer_goes_on_counting_updates() -> None:
    window = Window(WindowSettings(), 0)
    acquire(window, log(2))
    window.release_all("a")
    writer = StateWriter(KEY, StoredState(0, 1, 0, 0, 0, 0, 0, update_count=500))
    assert write_next(window, writer).is_snapshot


@pytest.mark.parametrize("damage", ["truncated", "a state that is never written"])
def test_damaged_records_are_rejected(damage: str) -> None:
    key, value = bytes_of(recorded("join", 46)[1])
    assert value is not None
    first_state = 2 + 4 + 4 + 8 + 1 + 16
    bad = (
        value[:-1]
        if damage == "truncated"
        else value[:first_state] + b"\1" + value[first_state + 1 :]
    )
    with pytest.raises(DecodeError):
        StateReplay().apply(key, bytes(bad))


def test_records_of_an_unknown_type_are_skipped() -> None:
    assert StateReplay().apply(b"\0\2" + bytes(20), b"") is None


def test_a_cold_share_partition_is_written_once() -> None:
    window = Window(WindowSettings(), 0)
    writer = StateWriter(KEY, initialized(KEY, 0, 1, 0)[1])
    acquire(window, log(10))
    acknowledge_and_encode(window, writer, wall_ms=1_000)
    assert writer.cold_snapshot(window, 300_999, interval_ms=300_000) is None
    record = writer.cold_snapshot(window, 301_000, interval_ms=300_000)
    assert record is not None
    replay = StateReplay()
    replay.apply(record.key, record.value)
    assert fields_of(replay.states[KEY]) == (1, 1, 0, 1, 0, 301_000, [(1, 1, 2, 1)])
    assert writer.cold_snapshot(window, 900_000, interval_ms=300_000) is None
    restored = StateWriter(KEY, replay.states[KEY])
    assert restored.cold_snapshot(window, 900_000, interval_ms=300_000) is None
    window.release_all("a")
    update = write_next(window, restored, 901_000)
    replay.apply(update.key, update.value)
    restored_again = StateWriter(KEY, replay.states[KEY])
    assert restored_again.cold_snapshot(window, 1_201_000, interval_ms=300_000) is not None
    assert restored.cold_snapshot(window, 1_201_000, interval_ms=300_000) is not None


def acknowledge_and_encode(window: Window, writer: StateWriter, *, wall_ms: int) -> None:
    window.acknowledge("a", 0, [batch(1, 1, ACCEPT)])
    write_next(window, writer, wall_ms)


def test_the_write_after_a_failed_one_is_a_snapshot() -> None:
    window = Window(WindowSettings(), 0)
    writer = StateWriter(KEY, initialized(KEY, 0, 1, 0)[1])
    acquire(window, log(10))
    window.on_deadline(30_000)
    lost = window.take_write()
    assert lost is not None
    writer.record(lost, window, 0, updates_per_snapshot=500)
    writer.failed()
    window.failed(lost, 30_000)
    assert acquire(window, log(10), max_records=1, record_limit=True) == [(0, 0, 2)]
    window.acknowledge("a", 0, [batch(0, 0, ACCEPT)])
    record = write_next(window, writer)
    replay = StateReplay()
    replay.apply(record.key, record.value)
    assert fields_of(replay.states[KEY])[6] == [(0, 0, 2, 2), (1, 9, 0, 1)]


def test_a_snapshot_has_acquired_records_as_they_were_before_their_delivery() -> None:
    window = Window(WindowSettings(), 0)
    acquire(window, log(4))
    acknowledge(window, batch(0, 1, RELEASE))
    acquire(window, log(8))
    assert window.stored_batches() == [(0, 1, 0, 1)]
    assert store(window) is None


def test_a_state_beyond_the_log_is_cut_to_it() -> None:
    batches = [StateBatch(2, 9, RecordState.ACKNOWLEDGED, 1)]
    state = StoredState(0, 1, 0, 0, 8, 0, 0, batches)
    assert state.clamped(0, 10) is state
    assert fields_of(state.clamped(0, 6))[2:] == (0, 4, 0, 0, [(2, 5, 2, 1)])
    assert fields_of(state.clamped(4, 10))[2:] == (4, 6, 0, 0, [(4, 9, 2, 1)])
    assert fields_of(state.clamped(12, 14))[2:] == (12, 0, 0, 0, [])
    assert fields_of(StoredState(0, 1, 0, 7, 0, 0, 0).clamped(0, 5))[2:4] == (5, 0)
