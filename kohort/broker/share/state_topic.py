"""The topic __share_group_state as a log of changes to share-partitions.

The records of one event loop iteration are appended together, as one batch per partition of the
topic, because an append costs more than most of the changes. The topic is created with the first
record. It is not compacted: `prune` removes the records that precede the latest snapshots of all
share-partitions.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from kohort.broker.runtime.clock import Clock
from kohort.broker.runtime.slices import Slice
from kohort.broker.topics.internal_log import InternalLog
from kohort.protocol.errors import EncodeError, ErrorCode, KafkaError
from kohort.protocol.records.builder import make_batch
from kohort.protocol.records.record import Record

logger = logging.getLogger(__name__)

BATCH_BYTES: Final = 512 * 1024
"""Maximum total size of the values in a batch; a larger record gets a batch of its own."""

CLOSE_WAIT_S: Final = 5.0
"""How long `close` waits for appends in progress."""

OnWritten: TypeAlias = Callable[[KafkaError | None, int], None]
"""Called once when a record is durable, with its offset; or with the error, if it is not in the
log and never will be."""


class _Staged(NamedTuple):
    key: bytes
    value: bytes | None
    on_written: OnWritten


class StateTopic:
    def __init__(self, log: InternalLog, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._staged: dict[int, list[_Staged]] = {}
        self._flush_handle: asyncio.Handle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_preparing = False
        self._is_closed = False

    @property
    def partition_count(self) -> int:
        return self._log.partition_count

    def write(self, partition: int, key: bytes, value: bytes | None, on_written: OnWritten) -> None:
        """Append a record at the end of this loop iteration; without `value`, a tombstone."""
        if self._is_closed:
            on_written(KafkaError(ErrorCode.NOT_COORDINATOR), -1)
            return
        self._staged.setdefault(partition, []).append(_Staged(key, value, on_written))
        if self._flush_handle is None and not self._is_preparing:
            self._flush_handle = asyncio.get_running_loop().call_soon(self._flush)

    def prepare(self) -> Awaitable[None] | None:
        """Create the topic; return None if it exists already. Raises KafkaError."""
        return self._log.prepare()

    def flush(self) -> None:
        """Append the staged records now."""
        if self._flush_handle is not None:
            self._flush_handle.cancel()
            self._flush()

    def read(self, partition: int) -> Iterator[Record]:
        """Yield all durable records, in order. Raises KafkaError if the rest cannot be read."""
        return self._log.read(partition)

    def end_offset(self, partition: int) -> int:
        """Return the offset after the last durable record."""
        opened = self._log.on_disk(partition)
        return 0 if opened is None else opened.high_watermark

    def prune(self, partition: int, offset: int) -> None:
        """Delete all records below an offset. Raises KafkaError."""
        self._log.delete_before(partition, offset)

    async def close(self) -> None:
        """Append the staged records, and wait for appends in progress."""
        self._is_closed = True
        self.flush()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_WAIT_S)
        for task in self._tasks:
            task.cancel()

    def _flush(self) -> None:
        self._flush_handle = None
        preparing = self._log.prepare()
        if preparing is not None:
            self._is_preparing = True
            self._start_task(self._flush_when(preparing), "create the share groups' log")
            return
        staged, self._staged = self._staged, {}
        for partition, records in staged.items():
            self._append(partition, records)

    async def _flush_when(self, prepared: Awaitable[None]) -> None:
        try:
            await prepared
        except KafkaError as error:
            logger.warning("Cannot create __share_group_state: %s", error)
            staged, self._staged = self._staged, {}
            for records in staged.values():
                _report(records, error, -1)
        else:
            # In slices, because the first append to a partition creates its files.
            time_slice = Slice(self._clock)
            while self._staged:
                partition = next(iter(self._staged))
                self._append(partition, self._staged.pop(partition))
                await time_slice.pause()
        finally:
            self._is_preparing = False

    def _append(self, partition: int, records: Sequence[_Staged]) -> None:
        for batch in _batches(records):
            self._append_batch(partition, batch)

    def _append_batch(self, partition: int, staged: Sequence[_Staged]) -> None:
        wall_ms = self._clock.wall_ms()
        try:
            batch = make_batch(
                [Record(record.value, record.key, timestamp=wall_ms) for record in staged]
            )
            waiting = self._log.append(partition, batch, wall_ms=wall_ms)
        except EncodeError as error:
            _report(staged, KafkaError(ErrorCode.INVALID_RECORD, str(error)), -1)
        except KafkaError as error:
            _report(staged, error, -1)
        else:
            offset = self._log.end_offset(partition) - len(staged)
            if waiting is None:
                _report(staged, None, offset)
            else:
                self._start_task(_wait(waiting, staged, offset), "append state of share groups")

    def _start_task(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _wait(waiting: Awaitable[None], staged: Sequence[_Staged], offset: int) -> None:
    try:
        await waiting
    except KafkaError as error:
        _report(staged, error, -1)
    else:
        _report(staged, None, offset)


def _report(staged: Sequence[_Staged], error: KafkaError | None, offset: int) -> None:
    for number, record in enumerate(staged):
        try:
            record.on_written(error, -1 if error is not None else offset + number)
        except Exception:
            logger.exception("Internal error after storing a change of a share-partition")


def _batches(staged: Sequence[_Staged]) -> Iterator[Sequence[_Staged]]:
    """Divide records into batches of at most `BATCH_BYTES`."""
    batch: list[_Staged] = []
    size = 0
    for record in staged:
        if batch and size + len(record.value or b"") > BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(record)
        size += len(record.value or b"")
    if batch:
        yield batch
