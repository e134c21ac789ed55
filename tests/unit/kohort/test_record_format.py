"""What the marks of `kohort consume --format` print."""

import pytest

from kohort.cli.record_format import as_date


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
