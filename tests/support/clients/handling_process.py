"""A process that runs handlers on a topic, and writes down what they did, until it is killed.

`python -m tests.support.clients.handling_process BOOTSTRAP TOPIC GROUP DEAD_TOPIC FILE SETTINGS`

FILE is appended to, entry by entry, so that what was written is there whatever becomes of the
process. SIGTERM ends it in good order. What fails is told by a record's value: `fails` says how.
"""

import asyncio
import json
import logging
import os
import signal
import struct
import sys
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any, Final, NamedTuple

from kohort import Consumer, ConsumerRecord, RebalanceListener, TopicPartition

ENTRY: Final = struct.Struct(">iqq")
TAKEN_OVER: Final = -1
KEYS: Final = 97
POISON_EVERY: Final = 1_000
WEAK_EVERY: Final = 50


class Entry(NamedTuple):
    """One that was handled; or, with TAKEN_OVER as its offset, a partition that came."""

    partition: int
    offset: int
    number: int
    """The record's value."""


def is_poison(number: int) -> bool:
    """Whether each attempt fails."""
    return number % POISON_EVERY == 13


def is_weak(number: int) -> bool:
    """Whether the first attempt in each process fails."""
    return number % WEAK_EVERY == 7


def entries(path: Path) -> list[Entry]:
    """What has been written; of the last one all or nothing counts."""
    data = path.read_bytes() if path.exists() else b""
    whole = len(data) - len(data) % ENTRY.size
    return [Entry(*one) for one in ENTRY.iter_unpack(data[:whole])]


class Ledger(RebalanceListener):
    """Writes entries."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, entry: Entry) -> None:
        os.write(self._file, ENTRY.pack(*entry))

    def on_assigned(self, partitions: AbstractSet[TopicPartition]) -> None:
        for one in partitions:
            self.write(Entry(one.partition, TAKEN_OVER, 0))


async def main(
    bootstrap: str, topic: str, group: str, dead_topic: str, path: str, given: str
) -> None:
    settings: dict[str, Any] = json.loads(given)
    ledger = Ledger(path)
    weak: set[int] = set()

    async def handle(record: ConsumerRecord[bytes, int]) -> None:
        number = record.value
        if settings["work_s"] or number % 5 == 0:
            await asyncio.sleep(settings["work_s"])
        if is_poison(number):
            raise LookupError(f"poison {number}")
        if is_weak(number) and number not in weak:
            weak.add(number)
            raise ConnectionError(f"weak {number}")
        ledger.write(Entry(record.partition, record.offset, number))

    consumer = Consumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        value_deserializer=int,
        **settings["consumer"],
    )
    consumer.subscribe([topic], listener=ledger)
    async with consumer:
        await consumer.run(
            handle, dead_letter=dead_topic, stop_on=(signal.SIGTERM,), **settings["run"]
        )
    print("ended", flush=True)


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    asyncio.run(main(*sys.argv[1:7]))
