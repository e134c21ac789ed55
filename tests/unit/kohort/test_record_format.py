"""What the marks of `kohort consume --format` print."""

import pytest

from kohort.cli.records import as_date, parse_format, value_line
from kohort.client.core.records import ConsumerRecord
from kohort.protocol.records.batch import TimestampType


@pytest.mark.parametrize(
    ("timestamp", "date"),
    [
        (0, b"1970-01-01T00:00:00.000Z"),
        (1_700_000_000_001, b"2023-11-14T22:13:20.001Z"),
        (253_402_300_799_000, b"9999-12-31T23:59:59.000Z"),
        (253_402_300_799_999, b"9999-12-31T23:59:59.999Z"),
        (253_402_300_800_000, b"253402300800000"),
        (2**63 - 1, b"9223372036854775807"),
        (-1, b"null"),
    ],
)
def test_dates_are_exact_to_the_millisecond_up_to_the_year_9999(
    timestamp: int, date: bytes
) -> None:
    assert as_date(timestamp) == date


def test_each_mark_prints_its_field() -> None:
    headers = (("a", b"1"), ("b", None))
    record = ConsumerRecord(
        "t", 3, 41, 1_000, TimestampType.CREATE_TIME, None, b"value", -1, 5, headers
    )
    form = parse_format("%t|%p|%o|%T|%d|%k|%K|%s|%S|%h|%%\\t\\\\")
    date = b"1970-01-01T00:00:01.000Z"
    expected = (b"t", b"3", b"41", b"1000", date, b"null", b"-1", b"value", b"5", b"a=1,b=null")
    assert form(record) == b"|".join((*expected, b"%\t\\"))
    assert value_line(record) == b"value\n"
