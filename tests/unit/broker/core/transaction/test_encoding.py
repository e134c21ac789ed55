"""Records of __transaction_state, byte for byte as Kafka 4.4.0 writes them."""

import pytest

from kohort.broker.core.transaction.records import (
    TransactionRecord,
    TransactionTombstone,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from kohort.broker.core.transaction.requests import ClientVersion, TopicPartition
from kohort.broker.core.transaction.states import TransactionState
from kohort.protocol.codec import encode_versioned
from kohort.protocol.errors import DecodeError
from kohort.protocol.messages.transaction_log import PartitionsSchema, TransactionLogValue
from tests.support.transactions.driven_id import ORDERS, V1, S, stored

NAME = "t-rnueam"
KEY = "0000 0008 742d726e7565616d"
TOPIC = TopicPartition("a-ngsfzb", 0)


def by_kafka(
    state: TransactionState,
    epoch: int,
    partitions: tuple[TopicPartition, ...],
    times: tuple[int, int],
    version: int,
) -> TransactionRecord:
    return TransactionRecord(
        NAME, 198, 198, -1, epoch, 45_000, state, partitions, *times, ClientVersion(version)
    )


@pytest.mark.parametrize(
    ("record", "value"),
    [
        (
            by_kafka(S.EMPTY, 0, (), (0x1A2028A01BF, -1), 0),
            (
                "0001 00000000000000c6 0000 0000afc8 00 00 000001a2028a01bf ffffffffffffffff"
                "01 00 08 00000000000000c6"
            ),
        ),
        (
            by_kafka(S.ONGOING, 0, (TOPIC,), (0x1A2028A01C6, 0x1A2028A01C6), 2),
            (
                "0001 00000000000000c6 0000 0000afc8 01 02 09 612d6e6773667a62 02 00000000 00"
                "000001a2028a01c6 000001a2028a01c6 02 00 08 00000000000000c6 02 02 0002"
            ),
        ),
        (
            by_kafka(S.COMPLETE_ABORT, 1, (), (0x1A2028A01C9, 0x1A2028A01C6), 2),
            (
                "0001 00000000000000c6 0001 0000afc8 05 01 000001a2028a01c9 000001a2028a01c6"
                "02 00 08 00000000000000c6 02 02 0002"
            ),
        ),
    ],
)
def test_what_kafka_has_written(record: TransactionRecord, value: str) -> None:
    assert encode_key(record) == bytes.fromhex(KEY)
    assert encode_value(record) == bytes.fromhex(value)
    assert decode_key(bytes.fromhex(KEY)) == NAME
    assert decode_value(NAME, bytes.fromhex(value)) == record


def test_a_tombstone_has_no_value() -> None:
    assert encode_value(TransactionTombstone(NAME)) is None
    assert encode_key(TransactionTombstone(NAME)) == bytes.fromhex(KEY)


def test_the_layout_before_tags_is_read() -> None:
    value = TransactionLogValue(
        producer_id=9,
        producer_epoch=1,
        transaction_timeout_ms=1_000,
        transaction_status=1,
        transaction_partitions=[PartitionsSchema(topic="orders", partition_ids=[2, 2])],
        transaction_last_update_timestamp_ms=5,
        transaction_start_timestamp_ms=4,
    )
    assert decode_value("t", encode_versioned(value, 0)) == TransactionRecord(
        "t", 9, -1, -1, 1, 1_000, S.ONGOING, (ORDERS,), 5, 4, V1
    )


@pytest.mark.parametrize("key", ["", "00", "0001 0001 61", "ffff 0001 61"])
def test_an_unknown_kind_of_record_is_left_alone(key: str) -> None:
    assert decode_key(bytes.fromhex(key)) is None


def test_what_does_not_parse_is_told() -> None:
    with pytest.raises(DecodeError):
        decode_key(bytes.fromhex("0000 0008 74"))
    good = encode_value(stored(S.ONGOING))
    assert good is not None
    for bad in (
        good[:-1],
        b"\x00\x09" + good[2:],
        good[:2] + b"\xff" * 8 + good[10:],
        good[:10] + b"\xff\xff" + good[12:],
        good[:16] + b"\x06" + good[17:],
        good[:16] + b"\x07" + good[17:],
        b"",
    ):
        with pytest.raises(DecodeError):
            decode_value("t", bad)
