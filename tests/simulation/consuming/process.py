"""An application with a consumer: reads in one task or in two, processes, commits, and ends.

It does what the documentation allows, and at the worst moments: its calls are cancelled wherever
they wait, its callbacks are slow or raise, it stops polling for too long, and it ends in every way
there is.
"""

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from kohort.client.consumer.consumer import Consumer
from kohort.client.core.errors import (
    BrokerUnreachableError,
    CommitError,
    ConsumerClosedError,
    ConsumerError,
    FencedInstanceError,
    IllegalStateError,
    OperationTimedOutError,
)
from kohort.client.core.partitions import TopicPartition
from kohort.client.core.records import AnyRecord
from kohort.client.group.listener import Partitions, RebalanceListener
from tests.simulation.consuming.group_host import Author
from tests.simulation.consuming.interrupted import Interrupted
from tests.simulation.consuming.network import PROCESS
from tests.simulation.consuming.records import TOPIC

if TYPE_CHECKING:
    from tests.simulation.consuming.life import Life

WAITS_MAX: Final = 12
"""A call that waits more often is cancelled somewhere before that, if it is to be cancelled."""


COMMITS_LOST: Final = 0.3
"""The part of commits, of those that readers do not wait for, whose first attempt is lost."""

BACKOFFS_MS: Final = (50, 2_000)
"""Between two attempts; the longer one leaves time for a whole rebalance."""


class End(Enum):
    STOP = "stop"
    ERROR = "error"
    """`async with` is left by an exception."""
    HASTY = "hasty"
    """The stop is cancelled."""
    CRASH = "crash"


class CallbackError(Exception):
    """What callbacks raise."""


class Listener(RebalanceListener):
    """Notes what it is told, takes its time, and sometimes fails."""

    def __init__(self, process: "Process") -> None:
        self.held: set[TopicPartition] = set()
        """Told of to the end, and not taken back since."""
        self.told: set[TopicPartition] = set()
        self.begun = 0
        self.ended = 0
        self._process = process

    def on_revoked(self, partitions: Partitions) -> Coroutine[Any, Any, None]:
        self._take_back("revoked", partitions)
        return self._run(partitions, commits=True)

    def on_lost(self, partitions: Partitions) -> Coroutine[Any, Any, None]:
        self._take_back("lost", partitions)
        return self._run(partitions, commits=False)

    def on_assigned(self, partitions: Partitions) -> Coroutine[Any, Any, None]:
        self._begin("assigned", partitions)
        self._process.start_again(partitions)
        assert self.told.isdisjoint(partitions), f"{partitions} assigned twice: {self.told}"
        self.told |= partitions
        return self._run_assigned(partitions)

    def _take_back(self, what: str, partitions: Partitions) -> None:
        self._begin(what, partitions)
        assert self.told >= partitions, f"{what} {partitions}, but it was told of {self.told}"
        self.told -= partitions
        self.held -= partitions

    def _begin(self, what: str, partitions: Partitions) -> None:
        assert self.begun == self.ended, "two callbacks at the same time"
        self.begun += 1
        self._process.note(f"{what} {_numbers(partitions)}")

    async def _run_assigned(self, partitions: Partitions) -> None:
        try:
            await self._process.be_slow()
            # Unless it was taken back meanwhile, by a rule that is checked elsewhere.
            self.held |= self.told & partitions
            self._process.maybe_fail()
        finally:
            self._end()

    async def _run(self, partitions: Partitions, *, commits: bool) -> None:
        try:
            await self._process.be_slow()
            if commits and self._process.commits_when_revoked:
                with suppress(TimeoutError):
                    async with asyncio.timeout(5):
                        await self._process.commit_done(partitions)
            self._process.maybe_fail()
        finally:
            self._end()

    def _end(self) -> None:
        self._process.note("is told")
        self.ended += 1


class Process:
    def __init__(self, life: "Life", number: int, instance: str | None) -> None:
        random = life.random
        backoff_ms = random.choice(BACKOFFS_MS)
        self.number = number
        self.instance = instance
        self.listener = Listener(self)
        self.is_over = False
        self.is_fenced = False
        """It cannot go on, and is to end."""
        self._life = life
        self._random = random
        self._commits_told = self._commits_heard = 0
        """Callbacks of commits that were begun, and that came to their end."""
        self._done: dict[TopicPartition, int] = {}
        """By partition the offset behind what was processed, since it was assigned."""
        self._turns: Counter[TopicPartition] = Counter()
        """How often each partition was assigned."""
        self._is_ending = False
        self._processing = 0
        """Readers that have records in hand."""
        self._reading_whole = False
        """One of two readers reads all partitions, for want of its own; the other one waits."""
        self._in_calls = 0
        self._commits_itself = random.random() < 0.6
        self.commits_when_revoked = random.random() < 0.5
        """True for half of the processes; the others commit as they go."""
        self._reader_count = random.choice([1, 1, 2])
        self._readers: list[asyncio.Task[None]] = []
        self._beside: set[asyncio.Task[None]] = set()
        """Commits that are waited for while the readers read on."""
        self.consumer = Consumer(
            bootstrap_servers=life.bootstrap,
            client_id=f"p{number}",
            group_id="g",
            group_instance_id=instance,
            auto_offset_reset="earliest",
            enable_auto_commit=self._commits_itself,
            auto_commit_interval_ms=random.choice([50, 500, 2_000]),
            partition_assignment_strategy=life.strategy,
            session_timeout_ms=6_000,
            heartbeat_interval_ms=1_000,
            max_poll_interval_ms=9_000,
            max_poll_records=random.choice([1, 5, 100]),
            fetch_max_wait_ms=200,
            request_timeout_ms=3_000,
            default_api_timeout_ms=random.choice([5_000, 15_000]),
            retry_backoff_ms=backoff_ms,
            retry_backoff_max_ms=max(400, backoff_ms),
            metadata_max_age_ms=5_000,
        )

    def __str__(self) -> str:
        commits = "auto" if self._commits_itself else "explicit"
        return f"{self._reader_count} readers, commits are {commits}, instance {self.instance}"

    # From its start to its end.

    async def run(self) -> None:
        PROCESS.set(self.number)
        self.consumer.subscribe([TOPIC], listener=self.listener)
        while not self._is_ending:
            try:
                await self.consumer.start()
            except (BrokerUnreachableError, ConsumerClosedError):
                await asyncio.sleep(0.5)
            else:
                break
        if self._is_ending:
            return
        for number in range(self._reader_count):
            self._readers.append(
                asyncio.create_task(self._read_on(number), name=f"reader of {self.number}")
            )
        await asyncio.gather(*self._readers)

    async def end(self, how: End) -> None:
        """Once: whatever it does at the moment."""
        PROCESS.set(self.number)
        self._is_ending = True
        self.note(f"ends by {how.value}")
        if how in {End.STOP, End.HASTY}:
            await self._until_nothing_is_in_hand()
            await self._stop(hastily=how is End.HASTY)
        else:
            tasks = [*self._readers, *self._beside]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._leave_by_error(crashes=how is End.CRASH)
        listener = self.listener
        if how in {End.STOP, End.ERROR}:
            assert self._commits_told == self._commits_heard, "a commit's callback was cut"
            assert listener.begun == listener.ended, "a callback was cut"
            assert not listener.told, f"it was never told that it lost {listener.told}"
        self.is_over = True

    def check_ending(self) -> None:
        """What it uses was closed, as it should be."""
        assert self._is_ending, "closed without a call"

    async def _until_nothing_is_in_hand(self) -> None:
        while self._processing or self._beside:  # noqa: ASYNC110 - readers do not tell.
            await asyncio.sleep(0.01)

    async def _stop(self, *, hastily: bool) -> None:
        stop = self.consumer.stop()
        if not hastily:
            with suppress(CallbackError):
                await stop
            return
        with suppress(CallbackError):
            await self._interrupted(stop)
        if not self.consumer.health().is_closed:
            # Cancelled before it began.
            with suppress(CallbackError):
                await self.consumer.stop()

    async def _leave_by_error(self, *, crashes: bool) -> None:
        error = ValueError("what went wrong")
        if crashes:
            with suppress(CallbackError):
                await self.consumer.stop(0)
            return
        with suppress(CallbackError):
            await self.consumer.__aexit__(ValueError, error, None)

    # Reading.

    async def _read_on(self, number: int) -> None:
        while not self._is_ending:
            only = self._chosen(number)
            is_whole = only is None and self._reader_count > 1
            if self._reading_whole or (is_whole and (self._in_calls or self._processing)):
                await asyncio.sleep(0.02)
                continue
            self._reading_whole = is_whole
            try:
                await self._read(only or ())
            except ConsumerClosedError:
                self.check_ending()
                return
            except FencedInstanceError:
                # A join that it had given up has come to the broker after a later one.
                assert self.instance is not None
                self.is_fenced = True
                return
            finally:
                if is_whole:
                    self._reading_whole = False
            with suppress(ConsumerClosedError):
                await self._do_something_else()

    def _chosen(self, number: int) -> list[TopicPartition] | None:
        """The partitions of one reader of two; None for all of them."""
        if self._reader_count == 1:
            return None
        assigned = sorted(self.consumer.assignment())
        return [one for one in assigned if one.partition % 2 == number] or None

    async def _read(self, only: Iterable[TopicPartition]) -> None:
        """One call, and what comes of it."""
        self._life.step()
        records: list[AnyRecord] = []
        call = self._call(list(only), records)
        self._in_calls += 1
        try:
            await self._interrupted(call)
        except (CallbackError, IllegalStateError, StopAsyncIteration) as error:
            if isinstance(error, IllegalStateError):
                await asyncio.sleep(0.01)  # Its partitions were taken away.
        finally:
            self._in_calls -= 1
        if not records:
            if self._life.is_calm:
                # What was refused during a rebalance.
                await self.commit_done(self._done.keys() & self.consumer.assignment())
            await asyncio.sleep(self._random.choice([0.01, 0.1, 0.5]))
        else:
            self._processing += 1
            turns = self._turns.copy()
            try:
                await self._process(records, turns)
            finally:
                self._processing -= 1

    async def _call(self, only: list[TopicPartition], found: list[AnyRecord]) -> None:
        """Ask for records, and note them in the moment in which they are returned."""
        consumer = self.consumer
        kind = self._random.randrange(4)
        if kind == 0 or (kind == 1 and only):
            found.append(await consumer.getone(*only))
        elif kind == 1:
            found.append(await anext(consumer))
        elif kind == 2 or only:
            timeout_ms = self._random.choice([0, 20, 300])
            for some in (await consumer.getmany(*only, timeout_ms=timeout_ms)).values():
                found += some
        else:
            for some in (await consumer.poll(self._random.choice([0, 0.02, 0.3]))).values():
                found += some
        if found:
            self._life.note_read(f"p{self.number} reads", found)
        self._life.ledger.handed_out(self.number, found, self.listener.held)

    async def _interrupted(self, call: Coroutine[Any, Any, None]) -> None:
        """Cancelled at some await, or after some time."""
        task = asyncio.current_task()
        assert task is not None
        at, later_s = 1, 0.6
        if not self._life.is_calm and self._random.random() < 0.4:
            at = self._random.randint(1, WAITS_MAX)
            later_s = self._random.choice([0.0, 0.0, 0.001, 0.1])
        interrupted = Interrupted(call, at=at, later_s=later_s)
        try:
            await interrupted
        except asyncio.CancelledError:
            if not interrupted.has_cancelled or task.cancelling() > 1:
                raise
        finally:
            if interrupted.has_cancelled:
                task.uncancel()

    async def _process(self, records: list[AnyRecord], turns: Counter[TopicPartition]) -> None:
        """`turns`: in which the records were returned."""
        if not self._life.is_calm:
            kind = self._random.random()
            if kind < 0.005:
                await asyncio.sleep(11)  # Longer than max_poll_interval_ms.
            elif kind < 0.3:
                await asyncio.sleep(self._random.choice([0, 0.005, 0.05, 0.5]))
        for record in records:
            self._life.ledger.process(record)
            partition = TopicPartition(record.topic, record.partition)
            if turns[partition] == self._turns[partition]:
                self._done[partition] = record.offset + 1
        if not self._commits_itself:
            await self._commit({TopicPartition(one.topic, one.partition) for one in records})

    async def _do_something_else(self) -> None:
        random = self._random
        if self._life.is_calm:
            return
        kind = random.random()
        if kind < 0.02:
            self.consumer.enforce_rebalance("chance")
        elif kind < 0.04:
            assigned = sorted(self.consumer.assignment())
            self.consumer.pause(*assigned[:2])
            await asyncio.sleep(0.05)
            still = self.consumer.assignment()
            self.consumer.resume(*(one for one in assigned if one in still))
        elif kind < 0.05:
            with suppress(ConsumerError):
                await self.consumer.seek_to_committed()

    # Commits.

    async def _commit(self, partitions: Iterable[TopicPartition]) -> None:
        """Commit, and read on before or after that is through."""
        if self._random.random() < 0.5:
            await self.commit_done(partitions)
            return
        task = asyncio.create_task(self.commit_done(partitions), name="commit beside")
        self._beside.add(task)
        if not self._life.is_calm and self._random.random() < COMMITS_LOST:
            # This attempt fails, and the next one may come after the rebalance.
            self._life.lose_connections(self.number)
            self.consumer.enforce_rebalance("chance")
        task.add_done_callback(self._beside.discard)

    async def commit_done(self, partitions: Iterable[TopicPartition]) -> None:
        """Commit what was processed of these, where the consumer does not do it."""
        if self._commits_itself:
            return
        wanted = {one: self._done[one] for one in partitions if one in self._done}
        member = self.consumer.group_metadata()
        author = Author(self.number, member.generation_id, member.member_id)
        for one, offset in wanted.items():
            self._life.ledger.ask(author, one.partition, offset)
        try:
            if self._random.random() < 0.3:
                self.consumer.commit_async(wanted, self._committed)
            else:
                await self.consumer.commit(wanted)
        except (CommitError, OperationTimedOutError, IllegalStateError, ConsumerClosedError):
            pass  # Others have the partitions, or it comes with the next one.

    async def _committed(self, offsets: object, error: Exception | None) -> None:
        assert error is None or isinstance(error, ConsumerError), error
        assert self._commits_told == self._commits_heard, "two callbacks at the same time"
        self._commits_told += 1
        try:
            await self.be_slow()
            self.maybe_fail()
        finally:
            self._commits_heard += 1

    # Callbacks.

    def start_again(self, partitions: Iterable[TopicPartition]) -> None:
        """These are assigned, and others may have committed for them meanwhile."""
        for one in partitions:
            self._done.pop(one, None)
            self._turns[one] += 1

    async def be_slow(self) -> None:
        if not self._life.is_calm:
            await asyncio.sleep(self._random.choice([0, 0, 0.01, 0.5, 2]))

    def maybe_fail(self) -> None:
        if not self._life.is_calm and self._random.random() < 0.05:
            raise CallbackError

    def note(self, what: str) -> None:
        self._life.note(f"p{self.number} {what}")


def _numbers(partitions: Iterable[TopicPartition]) -> list[int]:
    return sorted(one.partition for one in partitions)
