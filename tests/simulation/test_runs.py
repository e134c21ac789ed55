"""Members of a group that handle records or batches, or write exactly once, killed and stopped by
seed.

The broker, the consumers and aiokafka's producers are the real ones, on virtual time. A killed
member's requests are dropped from one moment on; one that gets SIGTERM ends its run. Commits are
late, lost or refused. Handlers of records fail, hang, and cannot handle some of them at all.
"""

import asyncio
import random
from collections import Counter
from contextlib import ExitStack
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from kohort import Consumer
from kohort.testing import VirtualKafka
from kohort.testing.kit.faults import FaultParts

PARTITIONS = 3
RECORDS = 60
"""In each partition."""
KEYS = 3
SLOTS = 3
EVENTS = 8
FAULTS: list[FaultParts] = [
    {"drop": True, "times": 1},
    {"delay_ms": 3_000, "times": 1},
    {"error": "REBALANCE_IN_PROGRESS", "times": 1},
]
"""What happens to a commit."""
POISON = frozenset({7, 8, 31})
"""The offsets of records that no handler of records takes; they become dead letters."""


class Service:
    """Members that are started again whenever they end; what they have done."""

    def __init__(self, kafka: VirtualKafka, chance: random.Random, kind: str) -> None:
        self.kafka = kafka
        self.chance = chance
        self.kind = kind
        self.strategy = chance.choice(["cooperative-sticky", "range"])
        self.handled: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
        """Offsets whose handler returned, by partition; again if they were handled again."""
        self.faults = ExitStack()
        self.started = 0
        self.ended: list[asyncio.Task[None]] = []
        self.members = [self.start(slot) for slot in range(SLOTS)]

    def start(self, slot: int) -> tuple[asyncio.Task[None], Consumer, str]:
        self.started += 1
        name = f"member-{slot}-{self.started}"
        consumer = Consumer(
            "t",
            bootstrap_servers=self.kafka.bootstrap_servers,
            client_id=name,
            group_id="g",
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            partition_assignment_strategy=self.strategy,
            session_timeout_ms=6_000,
            heartbeat_interval_ms=1_000,
            auto_commit_interval_ms=200,
        )
        serve = {"exactly once": self.copy, "batches": self.gather}.get(self.kind, self.serve)
        return asyncio.create_task(serve(consumer, name, slot), name=name), consumer, name

    async def copy(self, consumer: Consumer, name: str, slot: int) -> None:
        async def handle(record: Any) -> None:  # noqa: ANN401 - its key and value are bytes.
            await producer.send("out", b"%d" % record.offset, partition=record.partition)
            await self.work()  # If it fails, the transaction is aborted.

        producer = AIOKafkaProducer(
            bootstrap_servers=self.kafka.bootstrap_servers,
            client_id=name,
            transactional_id=f"slot-{slot}",
            transaction_timeout_ms=60_000,
        )
        try:
            await producer.start()
            async with consumer:
                await consumer.run(handle, retries=None, retry_backoff_ms=5, producer=producer)
        finally:
            await producer.stop()

    async def serve(self, consumer: Consumer, name: str, slot: int) -> None:
        del name, slot

        async def handle(record: Any) -> None:  # noqa: ANN401 - as above.
            if record.offset in POISON:
                raise ValueError("never")
            await (asyncio.sleep(60) if self.chance.random() < 0.02 else self.work())
            self.handled[record.partition].append(record.offset)

        async with consumer:
            await consumer.run(
                handle,
                ordering="key" if self.kind == "records by key" else "partition",
                retries=None,
                retry_on=lambda error: not isinstance(error, ValueError),
                retry_backoff_ms=5,
                handler_timeout_ms=2_000,
                dead_letter="dead",
            )

    async def gather(self, consumer: Consumer, name: str, slot: int) -> None:
        del name, slot

        async def handle(records: list[Any]) -> None:
            await self.work()
            for record in records:
                self.handled[record.partition].append(record.offset)

        async with consumer:
            await consumer.run_batches(
                handle, max_records=8, max_wait_ms=50, retries=None, retry_backoff_ms=5
            )

    async def work(self) -> None:
        await asyncio.sleep(self.chance.choice([0.01, 0.1, 0.4]))
        if self.chance.random() < 0.05:
            raise OSError("once")

    def kill(self, slot: int) -> None:
        task, _, name = self.members[slot]
        self.faults.enter_context(self.kafka.fault("*", client_id=name, drop=True))
        task.cancel()
        self.ended.append(task)
        self.members[slot] = self.start(slot)

    async def terminate(self, slot: int) -> None:
        await self.end(slot)
        self.members[slot] = self.start(slot)

    async def end(self, slot: int) -> None:
        task, consumer, _ = self.members[slot]
        while not task.done():
            consumer.end_run()  # Without effect while it is starting.
            await asyncio.wait([task], timeout=1)
        task.result()

    async def live(self) -> None:
        """Let it all happen, then wait until everything is done."""
        for _ in range(EVENTS):
            await asyncio.sleep(self.chance.choice([0.2, 1.0, 4.0]))
            slot = self.chance.randrange(SLOTS)
            fault = self.chance.choice(FAULTS)
            with self.kafka.fault("OffsetCommit", **fault):
                await asyncio.sleep(self.chance.choice([0.0, 1.0]))
            if self.chance.random() < 0.5:
                self.kill(slot)
            else:
                await self.terminate(slot)
            self.check_commits()
        await self.kafka.group("g").wait(lag=0, timeout=600)
        for slot in range(SLOTS):
            await self.end(slot)
        # Killed members that are still closing their clients are heard again: they are fenced.
        self.faults.close()
        await asyncio.gather(*self.ended, return_exceptions=True)

    def check_commits(self) -> None:
        committed = PARTITIONS * RECORDS - self.kafka.group("g").lag
        lettered = POISON if self.kind.startswith("records") else frozenset()
        done = sum(first_gap([*offsets, *lettered]) for offsets in self.handled.values())
        assert self.kind == "exactly once" or committed <= done

    async def check(self) -> None:
        """Everything was handled, and first handled in order."""
        for number, offsets in self.handled.items():
            first = list(dict.fromkeys(offsets))
            if self.kind == "batches":
                assert first == list(range(RECORDS)), "out of order"
                continue
            if self.kind == "exactly once":
                assert await self.values("out", number) == list(range(RECORDS))
                continue
            assert sorted(first) == [one for one in range(RECORDS) if one not in POISON]
            keys = range(KEYS) if self.kind == "records by key" else [None]
            for key in keys:
                of_key = [one for one in first if key is None or one % KEYS == key]
                assert of_key == sorted(of_key), "out of order"
        if self.kind.startswith("records"):
            letters = Counter(await self.values("dead", None))
            assert letters.keys() == POISON
            assert min(letters.values()) >= PARTITIONS

    async def values(self, topic: str, partition: int | None) -> list[int]:
        records = await self.kafka.records(topic, partition=partition, committed=True)
        return [int(record.value or b"") for record in records]


def first_gap(offsets: list[int]) -> int:
    known = set(offsets)
    return next(offset for offset in range(len(known) + 1) if offset not in known)


@pytest.mark.parametrize(
    "kind", ["exactly once", "batches", "records by key", "records by partition"]
)
def test_killed_and_stopped_members_lose_nothing_and_keep_order(
    kind: str, long_form: bool, silent_brokers: None
) -> None:
    del silent_brokers
    for seed in range(50 if long_form else 2):
        kafka = VirtualKafka(seed=seed)

        async def work(kafka: VirtualKafka, seed: int) -> None:
            for topic in ("t", "out", "dead"):
                await kafka.create_topic(topic, partitions=PARTITIONS)
            for number in range(PARTITIONS * RECORDS):
                offset = number // PARTITIONS
                await kafka.produce(
                    "t", str(offset), key=str(offset % KEYS), partition=number % PARTITIONS
                )
            service = Service(kafka, random.Random(seed), kind)
            await service.live()
            await service.check()

        try:
            kafka.run(work(kafka, seed))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        finally:
            kafka.close()
