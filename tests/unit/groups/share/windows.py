"""Steps of windows for tests."""

from collections.abc import Sequence

from kohort.groups.share.states import StateBatch
from kohort.groups.share.window import (
    AcknowledgementError,
    AcquiredRange,
    AcquireMode,
    LogBatch,
    Window,
)
from kohort.protocol.messages.share_acknowledge import AcknowledgementBatch

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)


def log(*batches: int, first: int = 0) -> list[LogBatch]:
    """Return adjacent batches of the given lengths."""
    result: list[LogBatch] = []
    for length in batches:
        result.append(LogBatch(first, first + length - 1))
        first += length
    return result


def acquire(
    window: Window,
    batches: Sequence[LogBatch],
    member: str = "a",
    *,
    now_ms: int = 0,
    max_records: int = 500,
    batch_size: int = 500,
    record_limit: bool = False,
) -> list[AcquiredRange]:
    """Acquire from a log, which is read at the window's position."""
    acquisition = window.acquire(
        member,
        now_ms,
        [batch for batch in batches if batch.last_offset >= window.position],
        max_records=max_records,
        batch_size=batch_size,
        mode=AcquireMode.RECORD_LIMIT if record_limit else AcquireMode.BATCH_OPTIMIZED,
    )
    return list(acquisition.ranges)


def batch(first: int, last: int, *types: int) -> AcknowledgementBatch:
    return AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=list(types))


def acknowledge(
    window: Window, *batches: AcknowledgementBatch, member: str = "a", now_ms: int = 0
) -> AcknowledgementError | None:
    """Acknowledge, durably."""
    error = window.acknowledge(member, now_ms, batches)
    store(window)
    return error


def store(window: Window) -> list[StateBatch] | None:
    """Make the changes durable; return their state batches, None if there are none."""
    write = window.take_write()
    if write is None:
        return None
    window.written(write)
    return list(write.change.batches)
