"""Deliveries that were recorded on Apache Kafka 4.4: each time everything is read, and what the
case names is released; the rest remains locked.
"""

import gzip
import json
from pathlib import Path
from typing import Any, Final

from kohort.groups.share.window import AcquiredRange, Window, WindowSettings
from tests.unit.groups.share.windows import RELEASE, acknowledge, acquire, batch, log

ROUNDS_RECORDED: Final = 160
"""Longer lives were cut."""

CASES = Path(__file__).parent / "cases" / "deliveries.json.gz"


def deliveries(case: dict[str, Any]) -> list[list[AcquiredRange]]:
    """Return the acquired ranges of all rounds."""
    settings = WindowSettings(
        delivery_count_limit=case["limit"], max_record_locks=case["max_record_locks"]
    )
    window = Window(settings, 0)
    rounds: list[list[AcquiredRange]] = []
    for released in [*case["released"], []][:ROUNDS_RECORDED]:
        ranges = acquire(
            window,
            log(*case["batches"]),
            max_records=case["max_records"],
            batch_size=case["batch_size"],
            record_limit=case["mode"] == 1,
        )
        if ranges:
            rounds.append(ranges)
        batches = [batch(first, last, RELEASE) for first, last, _ in released]
        assert acknowledge(window, *batches) is None
    return rounds


def test_a_window_delivers_what_kafka_delivered() -> None:
    cases = json.loads(gzip.decompress(CASES.read_bytes()))
    assert len(cases) == 160
    for case in cases:
        expected = [[tuple(acquired) for acquired in ranges] for ranges in case["rounds"]]
        assert deliveries(case) == expected, case
