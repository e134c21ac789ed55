import asyncio

import pytest

from kohort import Consumer
from kohort.client.core.errors import HandlerError
from kohort.client.core.records import AnyRecord
from kohort.client.processing.dead_letters import DeadLetter
from kohort.testing import VirtualKafka, run_handler


async def handle(record: AnyRecord) -> None:
    await asyncio.sleep(0.1)
    if record.value == b"bad":
        raise ValueError


def test_outcomes_are_those_of_a_run_with_a_broker() -> None:
    kafka = VirtualKafka()
    buried: list[DeadLetter] = []

    async def bury(letter: DeadLetter) -> None:
        buried.append(letter)

    async def with_broker() -> None:
        for value in (b"good", b"bad"):
            await kafka.produce("t", value)
        async with Consumer(
            bootstrap_servers=kafka.bootstrap_servers, group_id="g", auto_offset_reset="earliest"
        ) as consumer:
            consumer.subscribe(["t"])
            task = asyncio.create_task(consumer.run(handle, retries=2, dead_letter=bury))
            await kafka.group("g").wait(lag=0, timeout=60)
            consumer.end_run()
            await task

    kafka.run(with_broker())
    good, bad = run_handler(handle, [b"good", b"bad"], retries=2, dead_letter="dead")
    assert (good.is_handled, bad.is_handled, len(good.attempts_ms)) == (True, False, 1)
    assert bad.dead_letter is not None
    assert [bad.dead_letter.attempts] == [letter.attempts for letter in buried] == [3]
    assert 1_400 <= bad.attempts_ms[2] - bad.attempts_ms[0] <= 2_050


def test_a_record_that_may_not_be_skipped_fails_the_run() -> None:
    with pytest.raises(HandlerError, match="topic-0@1 could not be handled"):
        run_handler(handle, [b"good", b"bad"], retries=0)
