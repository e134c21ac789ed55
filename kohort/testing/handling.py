"""`run_handler`: what `Consumer.run` does with a handler, without a broker, on virtual time.

Only the consumer is simulated; use `virtual_kafka` to test rebalances and failed commits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Unpack

from kohort.client.core.fetch.buffers import Records
from kohort.client.core.offsets import OffsetAndMetadata
from kohort.client.core.partitions import TopicPartition
from kohort.client.core.records import AnyRecord, ConsumerRecord
from kohort.client.processing.attempts import Attempts, is_awaitable
from kohort.client.processing.dead_letters import CallerSink, DeadLetter
from kohort.client.processing.figures import Counts
from kohort.client.processing.options import Handler, RunSettings, check_handler, options_from
from kohort.client.processing.runner import Runner
from kohort.client.processing.source import CommitDone, Positions
from kohort.protocol.records.batch import TimestampType
from kohort.testing.virtual_clock import VirtualClock, VirtualClockLoop

PARTITION: Final = TopicPartition("topic", 0)


@dataclass(slots=True)
class Handled:
    """The outcome of one record."""

    record: AnyRecord
    attempts_ms: list[int] = field(default_factory=list)
    """When each attempt began, in virtual time since the start."""
    is_handled: bool = False
    dead_letter: DeadLetter | None = None


def run_handler(
    handler: Handler,
    records: Iterable[bytes | tuple[bytes | None, bytes | None]],
    **options: Unpack[RunSettings],
) -> list[Handled]:
    """Run a handler over records of one partition, with the options of `Consumer.run`.

    `records`: values, or keys and values. Dead letters are in the result, and written nowhere.

    Raises:
        HandlerError, ConfigError: as `Consumer.run`.
    """
    check_handler(handler)
    chosen = options_from(options)
    assert chosen.producer is None, "run_handler has no transactions"
    results = [Handled(_record(given, offset)) for offset, given in enumerate(records)]
    clock = VirtualClock(monotonic_ms=0)

    async def observed(record: AnyRecord) -> None:
        result = results[record.offset]
        result.attempts_ms.append(clock.monotonic_ms())
        answer = handler(record)
        if is_awaitable(answer):
            await answer
        result.is_handled = True

    async def bury(letter: DeadLetter) -> None:
        results[letter.record.offset].dead_letter = letter

    async def run() -> None:
        source = _Source([result.record for result in results])
        source.runner = Runner(
            source,
            chosen,
            Attempts(
                observed,
                read_key=None,
                read_value=None,
                timeout_ms=chosen.handler_timeout_ms,
                around=chosen.around,
            ),
            None if chosen.dead_letter is None else CallerSink(bury),
            Counts(),
            group_id="group",
            commit_interval_ms=5_000,
            clock=asyncio.get_running_loop().time,
        )
        await source.runner.run()

    with asyncio.Runner(loop_factory=lambda: VirtualClockLoop(clock)) as runner:
        runner.run(run())
    return results


def _record(given: bytes | tuple[bytes | None, bytes | None], offset: int) -> AnyRecord:
    key, value = given if isinstance(given, tuple) else (None, given)
    key_size, value_size = (-1 if part is None else len(part) for part in (key, value))
    kind = TimestampType.CREATE_TIME
    return ConsumerRecord(*PARTITION, offset, 0, kind, key, value, key_size, value_size)


class _Source:
    """Supplies the given records to a `Runner`, and ends the run when all records are done."""

    assigned: Collection[TopicPartition] = (PARTITION,)
    is_lost = False
    can_commit = True
    delay_max_s = 60.0
    runner: Runner

    def __init__(self, records: list[AnyRecord]) -> None:
        self._records = records
        self._position = 0
        self._changed = asyncio.Event()

    @property
    def positions(self) -> Positions:
        return {PARTITION: OffsetAndMetadata(self._position)}

    async def poll(
        self, timeout_s: float, take: Callable[[], Any], only: frozenset[TopicPartition] | None
    ) -> object:
        del only
        self._changed.clear()
        if found := take():
            return found
        if self.runner.committable()[PARTITION].offset == len(self._records):
            self.runner.end()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        return None

    def take(self, count: int, only: frozenset[TopicPartition] | None) -> Records:
        records = self._records[self._position : self._position + count]
        if not records or (only is not None and PARTITION not in only):
            return {}
        self._position += len(records)
        return {PARTITION: records}

    def wake(self) -> None:
        self._changed.set()

    def commit_soon(self, offsets: Positions, on_done: CommitDone) -> None:
        del offsets
        on_done(None)

    async def commit(self, offsets: Positions, timeout_s: float) -> None: ...

    async def confirm(self, timeout_s: float) -> bool:
        del timeout_s
        return True

    def skip(self, partition: TopicPartition, offset: int) -> None: ...

    def go_back(self, offsets: Positions) -> None: ...
