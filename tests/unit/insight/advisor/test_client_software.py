"""The software of a group's clients: recognized in records, and what it lacks."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kohort.insight.advisor.advice import advise
from kohort.insight.advisor.client_software import libraries_of, software_of
from kohort.insight.advisor.grid import grid
from kohort.insight.advisor.prediction import predict
from kohort.insight.advisor.reading import read_trace
from kohort.insight.advisor.trace import Trace
from tests.interop.lives.life import load

JAVA = ("apache-kafka-java", "4.4.0")
OLD_JAVA = ("apache-kafka-java", "2.3.1")
PYTHON = ("confluent-kafka-python", "2.16.1-rdkafka-2.16.0")
NOTHING = ("unknown", "unknown")
"""What aiokafka states."""


def trace_of(*software: tuple[str, str]) -> Trace:
    """A recorded life of dynamic, eager members, as if they had these clients in turn."""
    life = load(Path(__file__).parent / "lives-of-librdkafka.json.gz")[0]
    by_client: dict[str, tuple[str, str]] = {}

    def stating(member: dict[str, Any]) -> dict[str, Any]:
        if not software:
            return member
        client = "-".join(member["member_id"].split("-")[:2])
        name, version = by_client.setdefault(client, software[len(by_client) % len(software)])
        return member | {"client_software_name": name, "client_software_version": version}

    records = [
        record | {"members": [stating(member) for member in record.get("members", ())]}
        for record in life.records
    ]
    trace = read_trace("g", records)
    assert trace is not None
    return trace


def tried(trace: Trace) -> set[str]:
    """The changes among the settings that are tried."""
    names = ("static", "cooperative", "consumer", "states_reasons")
    return {name for setting in grid(trace) for name in names if getattr(setting, name)}


@pytest.mark.parametrize(
    ("name", "version", "expected"),
    [
        ("apache-kafka-java", "3.9.1", ("java", (3, 9, 1))),
        ("librdkafka", "2.12.0-RC1", ("librdkafka", (2, 12, 0))),
        ("confluent-kafka-python", "2.16.1-rdkafka-2.16.0", ("librdkafka", (2, 16, 0))),
        ("confluent-kafka-go", "v2.3.0-librdkafka-2.3.0", ("librdkafka", (2, 3, 0))),
        ("kohort-python", "0.1.0", ("kohort", (0, 1, 0))),
        ("unknown", "unknown", ("aiokafka", ())),
        ("kgo", "unknown", ("kgo", ())),
        (None, None, ("", ())),
        ("apache-kafka-java", "9" * 5_000, ("java", (999_999_999,))),
    ],
)
def test_wrappers_are_known_by_the_library_that_they_wrap(
    name: str | None, version: str | None, expected: tuple[str, tuple[int, ...]]
) -> None:
    assert software_of(name, version) == expected


@pytest.mark.parametrize(
    ("software", "expected"),
    [
        ([], {"static", "cooperative", "consumer"}),
        ([PYTHON], {"static", "cooperative", "consumer"}),
        ([PYTHON, JAVA], {"static", "cooperative", "consumer"}),
        ([PYTHON, OLD_JAVA], {"static"}),
        ([PYTHON, NOTHING], {"static"}),
        ([PYTHON, ("librdkafka", "1.3.0")], set()),
        # An unknown version, or another library, excludes nothing.
        ([("apache-kafka-java", "unknown"), ("kgo", "1.0")], {"static", "cooperative", "consumer"}),
    ],
)
def test_what_a_client_of_the_group_lacks_is_not_tried(
    software: Sequence[tuple[str, str]], expected: set[str]
) -> None:
    assert tried(trace_of(*software)) == expected


def test_the_advice_says_what_was_not_tried() -> None:
    trace = trace_of(PYTHON, PYTHON, NOTHING)
    assert libraries_of(trace.software) == ("librdkafka", "aiokafka")
    advice = advise(trace, [predict(trace, trace.recorded)])
    assert sum("aiokafka" in line for line in advice.unranked) == 2
