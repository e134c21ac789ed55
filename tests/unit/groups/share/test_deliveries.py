"""Deliveries that were recorded on Apache Kafka 4.4: each time everything is read, and what the
case names is released; the rest remains locked.
"""

import gzip
import json
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Final

from kohort.groups.share.window import (
    AcknowledgeType,
    AcquireMode,
    LogBatch,
    Window,
    WindowSettings,
)
from kohort.protocol.messages.share_acknowledge import AcknowledgementBatch

ROUNDS_RECORDED: Final = 160
"""Longer lives were cut."""

CASES = Path(__file__).parent / "cases" / "deliveries.json.gz"
MEMBER = "member"


def deliveries(case: dict[str, Any]) -> list[list[list[int]]]:
    """Return the acquired ranges of all rounds."""
    borders = list(accumulate(case["batches"], initial=0))
    log = [LogBatch(first, after - 1) for first, after in pairwise(borders)]
    settings = WindowSettings(
        delivery_count_limit=case["limit"], max_record_locks=case["max_record_locks"]
    )
    window = Window(settings, 0)
    rounds: list[list[list[int]]] = []
    for released in [*case["released"], []][:ROUNDS_RECORDED]:
        acquisition = window.acquire(
            MEMBER,
            0,
            [batch for batch in log if batch.last_offset >= window.position],
            max_records=case["max_records"],
            batch_size=case["batch_size"],
            mode=AcquireMode(case["mode"]),
        )
        if acquisition.ranges:
            rounds.append([list(acquired) for acquired in acquisition.ranges])
        batches = [
            AcknowledgementBatch(
                first_offset=first,
                last_offset=last,
                acknowledge_types=[AcknowledgeType.RELEASE],
            )
            for first, last, count in acquisition.ranges
            if [first, last, count] in released
        ]
        assert window.acknowledge(MEMBER, 0, batches) is None
        write = window.take_write()
        if write is not None:
            window.written(write)
    return rounds


def test_a_window_delivers_what_kafka_delivered() -> None:
    cases = json.loads(gzip.decompress(CASES.read_bytes()))
    assert len(cases) == 160
    for case in cases:
        assert deliveries(case) == case["rounds"], case
