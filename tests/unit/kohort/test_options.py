"""Options that commands share."""

import argparse

import pytest

from kohort.cli import whole_parser
from kohort.cli.options import duration_ms, seconds


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("10m", 600_000),
        ("PT10M", 600_000),
        ("1d2h3m4.5s", 93_784_500),
        ("P1DT2H3M4.5S", 93_784_500),
        ("7d", 604_800_000),
        ("600", 600_000),
        ("0.5", 500),
    ],
)
def test_a_duration_is_short_or_of_iso_8601_or_a_number_of_seconds(
    text: str, expected_ms: int
) -> None:
    assert duration_ms(text) == expected_ms


@pytest.mark.parametrize("text", ["", "P", "PT", ".", "m", "10m1h", "P10M", "-1m", "1.5m"])
def test_invalid_durations_are_rejected(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="10m, 1h30m"):
        duration_ms(text)


def test_seconds_are_a_number_or_a_duration() -> None:
    assert seconds("0.5") == 0.5
    assert seconds("2m") == 120
    for text in ("0", "0s", "2h", "nan"):
        with pytest.raises(argparse.ArgumentTypeError):
            seconds(text)


def test_the_address_is_that_of_the_environment_unless_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KOHORT_BOOTSTRAP_SERVER", "kafka.example:9092")
    parser = whole_parser()
    for command in (["topics", "list"], ["consume", "t"], ["groups", "why", "g"]):
        options = parser.parse_args(command)
        assert options.bootstrap_server == "kafka.example:9092"
        options = parser.parse_args([*command, "-b", "other:9092"])
        assert options.bootstrap_server == "other:9092"


def test_port_and_data_of_the_broker_are_overrides_in_their_order() -> None:
    def overrides(*options: str) -> object:
        return whole_parser().parse_args(["serve", *options]).override

    assert overrides() == []
    assert overrides("--override", "num.partitions=3", "--port", "9192", "--data", "/tmp/k") == [
        "num.partitions=3",
        "listeners=PLAINTEXT://localhost:9192",
        "log.dirs=/tmp/k",
    ]
    with pytest.raises(SystemExit):
        overrides("--port", "65536")
