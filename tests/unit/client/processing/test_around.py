"""`around`: a function around each attempt."""

import json
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

from kohort import ConsumerRecord
from kohort.testing import VirtualKafka
from tests.unit.client.processing.members import fill, member

Record = ConsumerRecord[Any, Any]


async def test_each_attempt_runs_within_it_with_its_context(virtual_kafka: VirtualKafka) -> None:
    trace: ContextVar[str] = ContextVar("trace", default="none")
    events: list[str] = []
    await fill(virtual_kafka, [b"0", b"1"])

    async def around(record: Record, handle: Callable[[Record], Awaitable[object]]) -> None:
        token = trace.set(f"trace {record.value}")
        try:
            await handle(record)
        except OSError:
            events.append("failed")
            raise
        finally:
            trace.reset(token)

    async with member(virtual_kafka, value_deserializer=json.loads) as consumer:

        def handle(record: Record) -> None:
            events.append(trace.get())
            if len(events) == 1:
                raise OSError("once")
            if record.offset == 1:
                consumer.end_run()

        await consumer.run(handle, around=around, retry_backoff_ms=1)
    assert events == ["trace 0", "failed", "trace 0", "trace 1"]
