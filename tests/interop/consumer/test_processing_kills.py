"""Members that handle a topic while they are killed, stopped and started: nothing is lost.

Each process writes down what it handled before the record may be committed. So at any moment what
is committed must be in one of their files, or among the dead letters.
"""

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import TopicPartition as Place

from kohort import TopicPartition
from kohort.client.processing.dead_letters import PREFIX
from tests.interop.consumer.members import Members, Topics
from tests.support.clients.handling_process import (
    KEYS,
    TAKEN_OVER,
    Entry,
    entries,
    is_poison,
)

PARTITIONS = 6
MEMBERS = 3
TIMEOUT_S = 1_800


@dataclass(frozen=True, slots=True)
class Form:
    records: int
    troubles: int
    session_timeout_ms: int
    work_s: float
    """What a handler waits for."""


SHORT = Form(3_000, 2, 2_000, 0.005)
LONG = Form(1_000_000, 25, 6_000, 0.0)

FORMS = [
    pytest.param(SHORT, id="short"),
    pytest.param(LONG, id="long", marks=[pytest.mark.long, pytest.mark.timeout(TIMEOUT_S + 600)]),
]


class Troop:
    """Processes that handle one topic."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._folder = folder
        self._arguments = arguments
        self.paths: list[Path] = []
        self.processes: list[tuple[subprocess.Popen[str], Path]] = []

    def start(self) -> None:
        path = self._folder / f"handled-{len(self.paths)}"
        bootstrap, topic, group, dead_topic, settings = self._arguments
        module = "tests.support.clients.handling_process"
        process = subprocess.Popen(
            [sys.executable, "-m", module, bootstrap, topic, group, dead_topic, path, settings],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.processes.append((process, path))
        self.paths.append(path)

    def end_one(self, how: signal.Signals) -> None:
        """The oldest of those that are running."""
        process, path = self.processes.pop(0)
        assert process.poll() is None, "it ended by itself"
        process.send_signal(how)
        said, _ = process.communicate(timeout=120)
        if how is signal.SIGTERM and entries(path):
            # It was past its start, and ends in good order.
            assert said == "ended\n"

    def entries(self) -> list[list[Entry]]:
        return [entries(path) for path in self.paths]

    def close(self) -> None:
        for process, _ in self.processes:
            process.kill()
            process.communicate()


class DeadLetters:
    """Reads what is among them."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._reader = ConfluentConsumer(
            {"bootstrap.servers": bootstrap, "group.id": "nobody", "enable.auto.commit": False}
        )
        self._reader.assign([Place(topic, 0, 0)])
        self._at = 0
        self.origins: Counter[tuple[int, int]] = Counter()

    def read(self) -> set[tuple[int, int]]:
        """To the end that there is now; partition and offset of each."""
        _, end = self._reader.get_watermark_offsets(Place(self._topic, 0), timeout=30)
        while self._at < end:
            message = self._reader.poll(30)
            assert message is not None, "a dead letter does not come"
            assert message.error() is None
            told = dict(cast("list[tuple[str, bytes]]", message.headers()))
            self.origins[int(told[f"{PREFIX}partition"]), int(told[f"{PREFIX}offset"])] += 1
            assert told[f"{PREFIX}message"] == b"poison " + (message.value() or b"")
            assert told[f"{PREFIX}attempts"] == b"2"
            self._at = (message.offset() or 0) + 1
        return set(self.origins)

    def close(self) -> None:
        self._reader.close()


@pytest.mark.parametrize("form", FORMS)
async def test_what_is_committed_was_handled_through_kills_and_restarts(
    form: Form, bootstrap: str, topics: Topics, members: Members, tmp_path: Path
) -> None:
    topic, dead_topic = topics.create(PARTITIONS), topics.create()
    keyed = ((str(number % KEYS), str(number)) for number in range(form.records))
    await asyncio.to_thread(topics.fill_keyed, topic, keyed)
    settings = {
        "work_s": form.work_s,
        "consumer": {
            "session_timeout_ms": form.session_timeout_ms,
            "heartbeat_interval_ms": 200,
            "partition_assignment_strategy": "cooperative-sticky",
            "max_poll_interval_ms": 30_000,
        },
        "run": {
            "ordering": "key",
            "concurrency": 32,
            "retries": 1,
            "retry_backoff_ms": 5,
            "commit_interval_ms": 100,
        },
    }
    observer = await members.start()
    places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    ends = await observer.end_offsets(places)
    assert sum(ends.values()) == form.records
    troop = Troop(tmp_path, bootstrap, topic, members.group, dead_topic, json.dumps(settings))
    letters = DeadLetters(bootstrap, dead_topic)
    began_s = time.monotonic()
    try:
        for _ in range(MEMBERS):
            troop.start()
        troubles, committed = 0, dict.fromkeys(places, 0)
        while committed != ends:
            await asyncio.sleep(0.05)
            assert time.monotonic() < began_s + TIMEOUT_S
            found = await observer.committed_offsets(places)
            committed = {one: at.offset if at else 0 for one, at in found.items()}
            is_due = sum(committed.values()) * (form.troubles + 1) > (troubles + 1) * form.records
            if troubles < form.troubles and is_due and committed != ends:
                # Read after the commits were: it has them all.
                await asyncio.to_thread(check_committed, committed, troop, letters)
                how = signal.SIGTERM if troubles % 3 == 1 else signal.SIGKILL
                await asyncio.to_thread(troop.end_one, how)
                troop.start()
                troubles += 1
        took_s = time.monotonic() - began_s
        while troop.processes:
            await asyncio.to_thread(troop.end_one, signal.SIGTERM)
        written = await asyncio.to_thread(check_committed, ends, troop, letters)
    finally:
        troop.close()
        letters.close()
    check_order(written)
    numbers = Counter(entry.number for its in written for entry in its if entry.offset >= 0)
    poison = {number for number in range(form.records) if is_poison(number)}
    assert set(numbers) == set(range(form.records)) - poison
    assert len(letters.origins) == len(poison)
    print(
        f"\n{form.records} records in {took_s:.0f} s, {troubles} members killed or stopped,"
        f" {numbers.total() - len(numbers)} handled again, {len(poison)} dead letters,"
        f" {letters.origins.total() - len(poison)} of them written again"
    )


def check_committed(
    committed: dict[TopicPartition, int], troop: Troop, letters: DeadLetters
) -> list[list[Entry]]:
    """Each record before these offsets was handled, or is a dead letter."""
    written = troop.entries()
    known = letters.read()
    known.update((entry.partition, entry.offset) for its in written for entry in its)
    for place, offset in committed.items():
        missing = [at for at in range(offset) if (place.partition, at) not in known]
        assert not missing, f"{place} is committed to {offset} without {missing[:10]}"
    return written


def check_order(written: list[list[Entry]]) -> None:
    """Between two takings-over of a partition each key's records are handled in order, once."""
    for its in written:
        last: dict[int, dict[int, int]] = defaultdict(dict)
        for entry in its:
            if entry.offset == TAKEN_OVER:
                last[entry.partition].clear()
                continue
            key = entry.number % KEYS
            assert last[entry.partition].get(key, -1) < entry.offset, entry
            last[entry.partition][key] = entry.offset
