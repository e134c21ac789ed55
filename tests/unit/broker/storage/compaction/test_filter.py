from collections.abc import Mapping

import pytest

from kohort.broker.core.partition.transactions import AbortedTransaction
from kohort.broker.storage.compaction.filter import (
    AbortedRanges,
    RetentionTerms,
    TransactionPass,
    filler,
    filter_batch,
    note_keys,
)
from kohort.broker.storage.compaction.key_offsets import KeyOffsets
from kohort.protocol.errors import DecodeError
from kohort.protocol.records.batch import (
    BatchHeader,
    CompressionType,
    TimestampType,
    crc_matches,
    read_header,
    restamped,
)
from kohort.protocol.records.builder import assemble, encode_batch
from kohort.protocol.records.record import Record, decode_records, write_record
from tests.support.records.batches import with_block

DAY_MS = 86_400_000
NOW_MS = 1_700_000_000_000
INT64_MAX = (1 << 63) - 1


def terms(
    later: Mapping[bytes, int] | None = None,
    *,
    wall_ms: int = NOW_MS,
    last_offsets: Mapping[int, int] | None = None,
    marked_epochs: Mapping[int, int] | None = None,
    up_to_offset: int = 1000,
    delete_retention_ms: int = DAY_MS,
) -> RetentionTerms:
    """`later`: key -> an offset at which it is written again."""
    offsets = KeyOffsets(1 << 20, offset_span=1000)
    for key, offset in (later or {}).items():
        batch = encode_batch([Record(b"later", key)], base_offset=offset)
        note_keys(offsets, batch, read_header(batch))
    return RetentionTerms(
        offsets,
        up_to_offset,
        wall_ms,
        delete_retention_ms,
        last_offsets or {},
        marked_epochs or {},
    )


def met(*aborted: AbortedTransaction) -> TransactionPass:
    """A pass that begins, over a log with these aborted transactions."""
    return TransactionPass(AbortedRanges(aborted))


def filtered(batch: bytes, using: RetentionTerms) -> tuple[BatchHeader, list[Record]] | None:
    kept = filter_batch(batch, read_header(batch), using, met())
    if kept is None:
        return None
    header = read_header(kept)
    assert header.size_bytes == len(kept)
    assert crc_matches(kept, header)
    return header, decode_records(kept)


def batch_of(*records: Record, **options: object) -> bytes:
    return encode_batch(records, base_offset=100, **options)  # type: ignore[arg-type]


A = Record(b"1", b"a", (("h", b"x"),), timestamp=NOW_MS)
B = Record(b"2", b"b", timestamp=NOW_MS + 7)
C = Record(b"3", b"c", timestamp=NOW_MS + 3)
TOMBSTONE = Record(None, b"t", timestamp=NOW_MS + 5)


def test_a_batch_of_which_nothing_goes_is_the_same_bytes() -> None:
    batch = batch_of(A, B, C)
    assert filter_batch(batch, read_header(batch), terms(), met()) == batch


@pytest.mark.parametrize("kind", [TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME])
def test_a_tombstone_gets_a_horizon_and_no_timestamp_changes(kind: TimestampType) -> None:
    batch = batch_of(A, TOMBSTONE)
    if kind is TimestampType.LOG_APPEND_TIME:
        batch, _ = restamped(batch, read_header(batch), kind, NOW_MS + 1000)
    before = decode_records(batch)
    found = filtered(batch, terms())
    assert found is not None
    header, records = found
    assert header.has_delete_horizon
    assert header.base_timestamp == NOW_MS + DAY_MS
    assert records == before
    assert header.max_timestamp == max(record.timestamp for record in before)


@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.GZIP])
@pytest.mark.parametrize(
    ("timestamp", "delete_retention_ms"),
    [
        (NOW_MS, INT64_MAX),
        (NOW_MS, INT64_MAX - NOW_MS + 1),
        (NOW_MS - INT64_MAX + 60_000, DAY_MS),
        (-INT64_MAX - 1, 0),
    ],
)
def test_a_tombstone_whose_horizon_no_batch_can_hold_stays_without_one(
    timestamp: int, delete_retention_ms: int, codec: CompressionType
) -> None:
    """Kafka's horizon overflows to a negative number, and negative ones are not set."""
    value, tombstone = C._replace(timestamp=timestamp), TOMBSTONE._replace(timestamp=timestamp)
    batch = batch_of(value, tombstone, codec=codec)
    using = terms(delete_retention_ms=delete_retention_ms)
    assert filter_batch(batch, read_header(batch), using, met()) == batch
    # What is written again goes from such a batch, too: it must not outlive what follows it.
    using = terms({b"c": 200}, delete_retention_ms=delete_retention_ms)
    found = filtered(batch, using)
    assert found is not None
    header, records = found
    assert records == [tombstone._replace(offset=101)]
    assert not header.has_delete_horizon


@pytest.mark.parametrize(
    ("timestamp", "delete_retention_ms"),
    [
        (INT64_MAX, DAY_MS),
        (-1, DAY_MS),
        (NOW_MS + DAY_MS - INT64_MAX - 1, DAY_MS),
        (-1, INT64_MAX - NOW_MS),
    ],
)
def test_a_horizon_is_set_as_long_as_a_batch_can_hold_it(
    timestamp: int, delete_retention_ms: int
) -> None:
    batch = batch_of(A, TOMBSTONE._replace(timestamp=timestamp))
    found = filtered(batch, terms(delete_retention_ms=delete_retention_ms))
    assert found is not None
    header, records = found
    assert header.base_timestamp == NOW_MS + delete_retention_ms
    assert records == decode_records(batch)


@pytest.mark.parametrize(
    ("base_timestamp", "delta", "expected"),
    [(INT64_MAX, 1, INT64_MAX), (-INT64_MAX - 1, -1, -INT64_MAX - 1)],
)
def test_deltas_that_lead_out_of_the_type_do_not_prevent_a_batch_from_being_filtered(
    base_timestamp: int, delta: int, expected: int
) -> None:
    """Topics that are not compacted accept such batches, and may become compacted."""
    timestamps = [base_timestamp, base_timestamp + delta, base_timestamp + delta]
    block = bytearray()
    for number, key in enumerate([b"a", b"b", b"t"]):
        value = None if key == b"t" else b"1"
        write_record(block, Record(value, key), timestamps[number] - base_timestamp, number)
    plain = batch_of(A, B, TOMBSTONE)
    header = read_header(plain)._replace(
        base_timestamp=base_timestamp, max_timestamp=base_timestamp
    )
    batch = assemble(header, block)
    found = filtered(batch, terms({b"a": 200, b"t": 200}))
    assert found is not None
    assert (found[0].max_timestamp, [record.key for record in found[1]]) == (expected, [b"b"])
    with_tombstone = filtered(batch, terms({b"a": 200, b"b": 201}))
    assert with_tombstone is not None
    assert [record.key for record in with_tombstone[1]] == [b"t"]


def test_the_last_batch_of_a_producer_stays_though_it_is_empty() -> None:
    batch = batch_of(
        A, B, producer_id=7, producer_epoch=2, base_sequence=50, codec=CompressionType.GZIP
    )
    later = {b"a": 200, b"b": 201}
    found = filtered(batch, terms(later, last_offsets={7: 101}))
    assert found is not None
    header, records = found
    assert records == []
    assert (header.producer_id, header.producer_epoch, header.last_sequence) == (7, 2, 51)
    assert (header.base_offset, header.last_offset) == (100, 101)
    assert filtered(batch, terms(later, last_offsets={7: 300})) is None
    empty = filter_batch(batch, read_header(batch), terms(later, last_offsets={7: 101}), met())
    assert empty is not None
    assert filter_batch(empty, read_header(empty), terms(last_offsets={7: 101}), met()) == empty
    assert filter_batch(empty, read_header(empty), terms(last_offsets={7: 300}), met()) is None


def test_control_batches_of_other_kinds_stay() -> None:
    other = Record(b"value", b"\0\0\0\7")
    batch = batch_of(other, is_control=True, is_transactional=True, producer_id=1, producer_epoch=0)
    assert filter_batch(batch, read_header(batch), terms({b"a": 200}), met()) == batch


def test_records_that_cannot_be_read_are_somebody_elses_decision() -> None:
    batch = with_block(b"nonsense", 1)
    with pytest.raises(DecodeError):
        filter_batch(batch, read_header(batch), terms(), met())


def test_a_filler_is_an_empty_batch_that_covers_its_offsets() -> None:
    batch = filler(100, 250, 3)
    header = read_header(batch)
    assert (header.base_offset, header.next_offset) == (100, 251)
    assert header.partition_leader_epoch == 3
    assert crc_matches(batch, header)
    assert decode_records(batch) == []
    assert filter_batch(batch, header, terms(), met()) is None


@pytest.mark.parametrize("options", [{}, {"producer_id": 7, "producer_epoch": 0}])
def test_a_batch_behind_the_map_stays_exactly_as_it_is(options: dict[str, int]) -> None:
    """What is deleted by a tombstone there is still in the log, so its time has not begun."""
    batch = batch_of(A, TOMBSTONE, Record(b"no key"), **options)
    beyond = terms({b"a": 200}, up_to_offset=100)
    assert filter_batch(batch, read_header(batch), beyond, met()) == batch
    within = filtered(batch, terms({b"a": 200}, up_to_offset=101))
    assert within is not None
    assert [record.key for record in within[1]] == [b"t"]
    marked = filter_batch(batch, read_header(batch), terms(), met())
    assert marked is not None
    late = terms(wall_ms=NOW_MS + 2 * DAY_MS, up_to_offset=100)
    assert filter_batch(marked, read_header(marked), late, met()) == marked


def test_a_batch_that_cannot_be_read_to_its_end_outdates_nothing() -> None:
    whole = batch_of(A, B)
    cut = with_block(whole[61:-1], 2)
    offsets = KeyOffsets(1 << 20, offset_span=1000)
    with pytest.raises(DecodeError):
        note_keys(offsets, cut, read_header(cut))
    assert len(offsets) == 0
