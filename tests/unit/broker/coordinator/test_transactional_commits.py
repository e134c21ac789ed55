"""Commits in transactions, from the request to the next start."""

import asyncio
from collections.abc import Awaitable

import pytest

from kohort.broker.coordinator.host import CoordinatorConfig
from kohort.broker.coordinator.loading import load_groups
from kohort.broker.core.coordinator_partitions import partition_of
from kohort.broker.runtime.deferred import Deferred
from kohort.groups.config import GroupConfig
from kohort.groups.records import DurableRecord, OffsetRecord, OffsetTombstone, PendingOffset
from kohort.groups.requests import (
    CommitRequest,
    CommitResult,
    CommittedOffset,
    EnclosingTransaction,
    OffsetToCommit,
)
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.testing.virtual_clock import VirtualClock
from tests.support.memory_logs import MemoryOffsetsLog
from tests.support.virtual_time import virtual
from tests.unit.broker.coordinator.harness import Harness, running

NONE = ErrorCode.NONE
A, B = 7, 8
"""Two producers."""
HOME = partition_of("g", 50)


def committing(
    h: Harness,
    offset: int = 1,
    *,
    producer_id: int = A,
    group_id: str = "g",
    generation: int = -1,
    errors: list[ErrorCode] | None = None,
) -> Deferred[CommitResult]:
    """`errors`: what the transaction coordinator says, if anything, when it is asked."""
    request = CommitRequest((OffsetToCommit("t", 0, offset),), generation=generation)
    transaction = EnclosingTransaction(producer_id, 0, lambda: errors[0] if errors else NONE)
    return h.groups.commit_transactional(
        group_id, request, transaction, may_answer_group_not_found=False
    )


def end(h: Harness, log: MemoryOffsetsLog, producer_id: int = A, *, commit: bool = True) -> None:
    """End a transaction as the writer of markers does."""
    log.append_marker(HOME, producer_id, commit=commit)
    h.groups.end_transaction(HOME, producer_id, commit=commit)


def is_unstable(h: Harness, group_id: str = "g") -> bool:
    group = h.groups.host.group(group_id)
    return group is not None and group.offsets.is_unstable("t", 0)


@virtual
async def test_what_commits_holds_at_once_and_after_a_start(clock: VirtualClock) -> None:
    log = MemoryOffsetsLog()
    async with running(clock, log) as h:
        assert (await committing(h, 5)).errors == (NONE,)
        assert (h.offset(), is_unstable(h)) == (None, True)
        end(h, log)
        assert (h.offset(), is_unstable(h)) == (5, False)
    async with running(clock, log) as h:
        assert (h.offset(), is_unstable(h)) == (5, False)


@virtual
async def test_a_start_finds_what_is_still_open_and_whom_to_tell(clock: VirtualClock) -> None:
    log = MemoryOffsetsLog()
    async with running(clock, log) as h:
        await committing(h, 5)
    async with running(clock, log) as h:
        assert (h.offset(), is_unstable(h)) == (None, True)
        end(h, log)
        assert h.offset() == 5


@virtual
async def test_an_end_tells_only_groups_of_that_partition_and_producer(
    clock: VirtualClock,
) -> None:
    other = next(name for name in "abcdef" if partition_of(name, 50) != HOME)
    log = MemoryOffsetsLog()
    async with running(clock, log) as h:
        await committing(h)
        await committing(h, group_id=other)
        h.groups.end_transaction(HOME, B, commit=True)
        end(h, log)
        assert (is_unstable(h), is_unstable(h, other)) == (False, True)
        h.groups.end_transaction(h.groups.offsets_partition(other), A, commit=True)
        assert (h.offset("g"), h.offset(other)) == (1, 1)


@virtual
async def test_a_transaction_that_ends_while_its_commit_waits_is_not_appended_to(
    clock: VirtualClock,
) -> None:
    log = MemoryOffsetsLog()
    errors: list[ErrorCode] = []
    async with running(clock, log) as h:
        log.hold()
        first = h.commit(1)
        await asyncio.sleep(0)
        late = committing(h, 2, errors=errors)
        assert not late.is_done
        errors.append(ErrorCode.INVALID_PRODUCER_EPOCH)
        log.release()
        assert (await first).errors == (NONE,)
        assert (await late).errors == (ErrorCode.INVALID_PRODUCER_EPOCH,)
        assert log.append_count == 1
        assert not is_unstable(h)


async def two_commits_one_append(
    h: Harness, log: MemoryOffsetsLog
) -> tuple[Deferred[CommitResult], Deferred[CommitResult]]:
    """Two commits in transactions, stepped together: the append of the first is under way, that of
    the second has to wait for it.
    """
    log.hold()
    before = h.commit(1)
    await asyncio.sleep(0)
    commits = committing(h, 2), committing(h, 3, producer_id=B)
    log.release()
    log.hold()
    assert (await before).errors == (NONE,)
    await asyncio.sleep(0)
    assert log.append_count == 2
    return commits


class TestWritesThatWaitForAnAppend:
    """Each commit in a transaction is a batch of its own."""

    @virtual
    async def test_a_heartbeat_meanwhile_is_answered(self, clock: VirtualClock) -> None:
        log = MemoryOffsetsLog()
        async with running(clock, log) as h:
            commits = await two_commits_one_append(h, log)
            assert h.classic.heartbeat("g", "m", None, 1) is ErrorCode.UNKNOWN_MEMBER_ID
            assert log.append_count == 2
            log.release()
            assert [(await commit).errors for commit in commits] == [(NONE,), (NONE,)]
            assert log.append_count == 3

    @virtual
    async def test_both_are_answered_when_the_broker_stops(self, clock: VirtualClock) -> None:
        log = MemoryOffsetsLog()
        config = CoordinatorConfig(GroupConfig(), commit_timeout_ms=60_000)
        async with running(clock, log, config) as h:
            commits = await two_commits_one_append(h, log)
            await h.groups.host.close()
            gone = (ErrorCode.NOT_COORDINATOR,)
            assert [(await commit).errors for commit in commits] == [gone, gone]


class SlowlyMade(MemoryOffsetsLog):
    """A log that has to be made first."""

    def __init__(self) -> None:
        super().__init__()
        self.made: asyncio.Future[None] | None = None

    def prepare(self) -> Awaitable[None] | None:
        if self.made is None:
            self.made = asyncio.get_running_loop().create_future()
        return None if self.made.done() else asyncio.shield(self.made)


@virtual
async def test_the_first_commit_waits_for_the_log_and_is_asked_again(clock: VirtualClock) -> None:
    log = SlowlyMade()
    errors: list[ErrorCode] = []
    async with running(clock, log) as h:
        tickets = [committing(h, 1), committing(h, 2, producer_id=B, errors=errors)]
        await asyncio.sleep(0)
        errors.append(ErrorCode.INVALID_TXN_STATE)
        assert log.made is not None
        log.made.set_result(None)
        assert [(await ticket).errors[0] for ticket in tickets] == [NONE, errors[0]]
        assert log.append_count == 1


@virtual
async def test_a_log_that_cannot_be_made_fails_the_commit(clock: VirtualClock) -> None:
    log = SlowlyMade()
    async with running(clock, log) as h:
        ticket = committing(h)
        assert log.made is not None
        log.made.set_exception(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
        with pytest.raises(KafkaError, match="COORDINATOR_NOT_AVAILABLE"):
            await ticket


# What a start makes of a log.


def at(offset: int) -> CommittedOffset:
    return CommittedOffset(offset, -1, "", 99)


def plain(offset: int) -> OffsetRecord:
    return OffsetRecord("g", "t", 0, at(offset))


def pending(offset: int, producer_id: int) -> PendingOffset:
    return PendingOffset("g", "t", 0, at(offset), producer_id, 0)


GONE = OffsetTombstone("g", "t", 0)
COMMIT, ABORT = True, False


@pytest.mark.parametrize(
    ("entries", "left"),
    [
        ([pending(1, A)], [pending(1, A)]),
        ([pending(1, A), (A, COMMIT)], [plain(1)]),
        ([pending(1, A), (A, ABORT)], []),
        ([pending(1, A), (B, COMMIT)], [pending(1, A)]),
        ([plain(1), pending(2, A)], [plain(1), pending(2, A)]),
        ([pending(1, A), plain(2)], [pending(1, A), plain(2)]),
        ([pending(1, A), plain(2), (A, COMMIT)], [plain(2)]),
        ([pending(1, A), pending(2, B), (B, COMMIT)], [pending(1, A), plain(2)]),
        ([pending(1, A), pending(2, B), (B, COMMIT), (A, COMMIT)], [plain(2)]),
        ([pending(1, A), pending(2, B), (A, COMMIT)], [plain(1), pending(2, B)]),
        ([pending(1, A), pending(2, A), (A, COMMIT)], [plain(2)]),
        ([pending(1, A), (A, COMMIT), pending(2, A), (A, ABORT)], [plain(1)]),
        ([pending(1, A), GONE, (A, COMMIT)], []),
        ([plain(1), pending(2, A), (A, COMMIT), GONE], []),
    ],
)
async def test_of_a_key_the_last_record_counts_that_no_abort_takes_back(
    entries: list[DurableRecord | tuple[int, bool]], left: list[DurableRecord]
) -> None:
    log = MemoryOffsetsLog()
    for entry in entries:
        if isinstance(entry, PendingOffset | OffsetRecord | OffsetTombstone):
            log.append(HOME, [entry], wall_ms=99)
        else:
            producer_id, commit = entry  # type: ignore[misc]
            log.append_marker(HOME, producer_id, commit=commit)
    loaded = await load_groups(log, VirtualClock())
    assert loaded.records_by_group.get("g", []) == left
    open_producers = {one.producer_id for one in left if isinstance(one, PendingOffset)}
    assert loaded.pending == {(HOME, producer_id): {"g"} for producer_id in open_producers}
