"""Members of a group that handle batches or write exactly once, killed and stopped by seed.

The broker, the consumers and aiokafka's producers are the real ones, on virtual time. A killed
member's requests are dropped from one moment on; one that gets SIGTERM ends its run.
"""

import asyncio
import random
from contextlib import ExitStack
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from kohort import Consumer
from kohort.testing import VirtualKafka

PARTITIONS = 3
RECORDS = 60
"""In each partition."""
SLOTS = 3
EVENTS = 8


class Service:
    """Members that are started again whenever they end; what they have done."""

    def __init__(self, kafka: VirtualKafka, chance: random.Random, *, is_exact: bool) -> None:
        self.kafka = kafka
        self.chance = chance
        self.is_exact = is_exact
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
            partition_assignment_strategy="cooperative-sticky",
            session_timeout_ms=6_000,
            heartbeat_interval_ms=1_000,
            auto_commit_interval_ms=200,
        )
        serve = self.copy if self.is_exact else self.gather
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
        done = sum(first_gap(offsets) for offsets in self.handled.values())
        assert self.is_exact or committed <= done


def first_gap(offsets: list[int]) -> int:
    known = set(offsets)
    return next(offset for offset in range(len(known) + 1) if offset not in known)


@pytest.mark.parametrize("is_exact", [True, False], ids=["exactly once", "batches"])
def test_killed_and_stopped_members_lose_nothing_and_keep_order(
    is_exact: bool, long_form: bool, silent_brokers: None
) -> None:
    del silent_brokers
    for seed in range(50 if long_form else 2):
        kafka = VirtualKafka(seed=seed)

        async def work(kafka: VirtualKafka, seed: int) -> None:
            for topic in ("t", "out"):
                await kafka.create_topic(topic, partitions=PARTITIONS)
            for number in range(PARTITIONS * RECORDS):
                await kafka.produce("t", b"v", partition=number % PARTITIONS)
            service = Service(kafka, random.Random(seed), is_exact=is_exact)
            await service.live()
            for number, offsets in service.handled.items():
                if is_exact:
                    records = await kafka.records("out", partition=number, committed=True)
                    assert [int(record.value or b"") for record in records] == list(range(RECORDS))
                else:
                    assert list(dict.fromkeys(offsets)) == list(range(RECORDS)), "out of order"

        try:
            kafka.run(work(kafka, seed))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        finally:
            kafka.close()
