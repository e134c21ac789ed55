"""Reads the assigned partitions ahead of the user, from all brokers at the same time.

What arrives waits, as bytes, until it is taken; records are made of it only then. How much may wait
is bounded (`prefetch_bytes_limit`), so a consumer that does not poll stops reading. The same bounds
what is inflated of batches that were begun.

All that is decided here is decided by `kohort.client.core.fetch.state`: what to ask which broker
for, what an answer means, what readers get. Around it are the connections, a task for each request,
one timer, and what looks up offsets and asks new leaders (`resets`, `leader_checks`).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeAlias

from kohort.client.clock import now_ms, wall_ms
from kohort.client.core.fetch.buffers import Only, Records
from kohort.client.core.fetch.config import FetchConfig
from kohort.client.core.fetch.deserialisers import NO_DESERIALISERS, Deserialisers
from kohort.client.core.fetch.plan import PlannedFetch
from kohort.client.core.fetch.positions import Positions
from kohort.client.core.fetch.state import Effect, FetchState
from kohort.client.core.fetch.wire import SentFetch
from kohort.client.core.offsets import OffsetAndMetadata
from kohort.client.core.partitions import TopicPartition
from kohort.client.core.records import AnyRecord
from kohort.client.deserialising import Awaiting
from kohort.client.fetch.leader_checks import PositionChecks
from kohort.client.fetch.resets import OffsetResets
from kohort.client.net.cluster import FETCHING, Cluster
from kohort.client.net.connection import Connection
from kohort.client.net.errors import DisconnectedError
from kohort.protocol.messages.fetch import FetchRequest

logger = logging.getLogger(__name__)

RECEIVING_ROUNDS_MAX: Final = 32
"""So that a broker that sends without end does not keep records from being handed out."""

LARGE_BLOCK_BYTES: Final = 16 << 20

CommittedLookup: TypeAlias = Callable[
    [Collection[TopicPartition]],
    Awaitable[Mapping[TopicPartition, OffsetAndMetadata | None]],
]
"""Asks the group for committed offsets; None for a partition without one."""


class _UnderWay(NamedTuple):
    """A request that was sent."""

    connection: Connection
    sent: SentFetch
    answer: asyncio.Future[Any]


class Fetcher:
    """The fetching of one consumer, on one event loop. `take` and `next_record` never wait.

    `positions` may be changed by the consumer at any time (seek, pause, ...); it calls `wake`
    afterwards, or `assignment_changed` after `Positions.set_assigned`.
    """

    def __init__(
        self,
        cluster: Cluster,
        positions: Positions,
        config: FetchConfig,
        deserialisers: Deserialisers = NO_DESERIALISERS,
        *,
        on_metadata_wanted: Callable[[], None],
    ) -> None:
        """`on_metadata_wanted` is called, with a backoff in between, when a partition has no known
        leader or the wrong one. It returns at once, and has the metadata refreshed and `wake`
        called after that (without that call it takes a backoff longer).
        """
        self._cluster = cluster
        self._positions = positions
        self._config = config
        self._on_metadata_wanted = on_metadata_wanted
        self._changed = asyncio.Event()
        self.state = FetchState(
            positions,
            cluster,
            config,
            random=random.random,
            deserialisers=deserialisers,
            maker=Awaiting(deserialisers, on_made=self._changed.set)
            if deserialisers.are_awaited
            else None,
        )
        self._resets = OffsetResets(
            cluster,
            positions,
            config,
            on_metadata_wanted=on_metadata_wanted,
            on_found=self.wake,
            on_failed=self.state.report_failure,
        )
        self._checks = PositionChecks(
            cluster,
            positions,
            self.state,
            config,
            on_metadata_wanted=on_metadata_wanted,
            on_changed=self.wake,
        )
        self._tasks: set[asyncio.Task[None]] = set()
        """One for each request that has no answer."""
        self._timer: asyncio.TimerHandle | None = None
        self._is_running = False
        self._is_fetching = True

    # For the consumer.

    def start(self) -> None:
        """Begin to fetch whatever has a position."""
        keep_freed_memory()
        self._is_running = True
        self.assignment_changed()

    async def stop_fetching(self) -> None:
        """Ask for no more records. Positions are found as before, for callers that ask for one."""
        self._is_fetching = False
        await self._give_up_requests()

    async def close(self) -> None:
        """Give up requests under way and forget all that waits. May be called twice."""
        self._is_running = False
        self._stop_timer()
        await asyncio.gather(self._give_up_requests(), self._resets.close(), self._checks.close())
        self.state.clear()
        self._changed.set()

    def take(self, max_records: int, only: Only = None) -> Records:
        """Records that are here, in order within each partition, `max_records` at most in all; of
        the partitions `only` if it is given.

        Positions move past them. Empty if there are none, which may be although `wait` returned:
        what came was not for users (markers, aborted transactions).

        Raises:
            RecordError: the next record of a partition cannot be given out, because its batch is
                corrupt or too large, or its deserialiser raises; the position stays. Seek past it
                to go on.
            OffsetOutOfRangeError: and no policy for it.
            AuthorizationError: the topic may not be read.

        Such an error is raised once, and never instead of records that were there before it. If it
        lasts it comes again, because the partition is fetched again.
        """
        self._raise_error(only)
        taken = self.state.take(max_records, only)
        if self.state.effects:
            self._pump()
        if not taken:
            self._raise_error(only)
        return taken

    def next_record(self) -> AnyRecord | None:
        """Take one record: the position moves by this one only. Raises as `take`.

        None: there is none here; `wait` for it.
        """
        record = self.state.next_made()
        if record is None:
            record = self.state.next_record()
            if self.state.effects:
                self._pump()
            if record is None:
                self._raise_error()
        return record

    def asked(self, only: Only) -> None:
        """More is asked for by a reader of `only` (None: all): what it was given is processed."""
        self.state.asked(only)

    def processed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The positions up to which records are processed, as far as can be told: all that were
        returned, but for those that a reader was given last.
        """
        return self.state.processed()

    @property
    def waiting_bytes(self) -> int:
        """What was fetched and not taken yet."""
        return self.state.waiting_bytes

    async def wait(self, timeout_s: float, only: Only = None) -> bool:
        """Until there is something to take (records or an error; of the partitions `only` if it is
        given), or `wake` is called.

        Lets others have the loop in any case, so that who always finds records does not keep the
        next ones from being received.

        Returns:
            whether there is something.
        """
        if self.state.has_something(only):
            await asyncio.sleep(0)
            return True
        self._changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        return self.state.has_something(only)

    async def breathe(self) -> None:
        """Let others have the loop, and whatever has arrived be received.

        A round of the loop receives what the system has of an answer, and makes room for more of
        it: an answer of a megabyte is here after about ten. Without them it would not come in
        while records are handed out, and who hands them out would wait for it afterwards.
        """
        for _ in range(RECEIVING_ROUNDS_MAX):
            had = self._cluster.received_bytes
            await asyncio.sleep(0)
            if self._cluster.received_bytes == had:
                break

    def wake(self) -> None:
        """Something has changed (a position, a pause, the metadata); waiters return."""
        self.state.drop_outdated()
        self._pump()
        self._changed.set()

    def assignment_changed(self) -> None:
        """Forget what was fetched of partitions that are gone, and fetch those that came."""
        self.state.set_assigned()
        self._pump()
        self._changed.set()

    async def update_positions(self, committed: CommittedLookup | None) -> None:
        """See that all partitions get a position.

        Waits for `committed` (None: there is no group to ask, reset at once). Resets go on in the
        background, and are fetched as soon as they are found; `wait_positions` waits for them.
        Quick if nothing is missing: may be called in every poll.

        Raises:
            NoOffsetError: there is no committed offset and no policy.
            whatever `committed` raises.
        """
        missing = self._positions.missing_position()
        if not missing:
            return
        fences = {one: self._positions.state(one).fence for one in missing}
        found = await committed(missing) if committed is not None else {}
        default_reset = self.state.default_reset(wall_ms())
        try:
            for partition, fence in fences.items():
                # One that went and came back may have been committed by others after this answer.
                if self._positions.has_fence(partition, fence):
                    self._positions.committed_found(partition, found.get(partition), default_reset)
        finally:
            self.wake()

    async def wait_positions(
        self, partitions: Collection[TopicPartition], timeout_s: float
    ) -> bool:
        """Until these have a position, or are not assigned any more; False if the time was over.

        Raises:
            AuthorizationError, OffsetOutOfRangeError: as `take` does.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while not self._positions.are_known(partitions):
                    self._changed.clear()
                    await self._changed.wait()
                    self._raise_error()
        except TimeoutError:
            return False
        return True

    # Requests.

    def _pump(self) -> None:
        """Send what is to be sent now, and do what else has come up."""
        if self._is_running:
            self._send_planned()
        state = self.state
        for note in state.notes:
            logger.log(logging.WARNING if note.is_warning else logging.DEBUG, "%s", note.text)
        state.notes.clear()
        if Effect.TELL in state.effects:
            self._changed.set()
        is_refresh_wanted = Effect.REFRESH in state.effects
        state.effects.clear()
        if is_refresh_wanted:
            self._on_metadata_wanted()

    def _send_planned(self) -> None:
        state, began_ms = self.state, now_ms()
        state.notice_new_topics(began_ms, wall_ms())
        self._resets.begin()
        if self._checks.begin():
            state.drop_outdated()
        if not self._is_fetching:
            return
        for fetch in state.next_fetches(began_ms):
            self._begin(fetch)
        self._stop_timer()
        if state.next_deadline_ms is not None:
            wait_s = max(1, state.next_deadline_ms - began_ms) / 1000
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._pump)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _begin(self, fetch: PlannedFetch) -> None:
        """Have it sent, and its answer taken.

        Where there is a connection it is sent at once: a task would begin when the loop has time,
        and who handles records may keep it until those that are here have run out.
        """
        address = self._cluster.broker(fetch.node_id)
        connection = None if address is None else self._cluster.connected(address, FETCHING)
        under_way: _UnderWay | None = None
        if connection is not None:
            # Met again by the task, whatever it is: there it is told to who polls, and the broker
            # does not stay marked as busy.
            with suppress(Exception):
                under_way = self._send(fetch, connection)
        name = f"fetch from broker {fetch.node_id}"
        task = asyncio.get_running_loop().create_task(self._fetch(fetch, under_way), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _send(self, fetch: PlannedFetch, connection: Connection) -> _UnderWay | None:
        """Send it; None if there is nothing to ask any more."""
        sent = self.state.ask(fetch, connection.versions.best(FetchRequest), now_ms())
        if sent is None:
            return None
        return _UnderWay(connection, sent, connection.send(sent.request, version=sent.version))

    async def _fetch(self, fetch: PlannedFetch, under_way: _UnderWay | None) -> None:
        began_ms = now_ms()
        try:
            if under_way is None:
                address = self._cluster.broker(fetch.node_id)
                if address is None:
                    raise DisconnectedError("newer metadata does not have this broker any more")
                under_way = self._send(fetch, await self._cluster.connection(address, FETCHING))
            if under_way is not None:
                connection, sent, future = under_way
                timeout_ms = self._config.request_timeout_ms + self._config.fetch_max_wait_ms
                answer = await connection.answer(future, FetchRequest, timeout_ms)
                self.state.answered(sent, answer, now_ms(), wall_ms())
        except DisconnectedError as error:
            logger.debug("fetching from broker %d: %s", fetch.node_id, error)
            self.state.failed(fetch, began_ms, now_ms())
        except Exception as failure:  # noqa: BLE001 - whatever it is, who polls is told.
            self.state.broke(fetch, failure, began_ms, now_ms())
        finally:
            self.state.ended(fetch)
        self._pump()

    async def _give_up_requests(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Errors.

    def _raise_error(self, only: Only = None) -> None:
        error = self.state.take_error(only, now_ms())
        if error is not None:
            raise error


def keep_freed_memory() -> None:
    """Keep the C library from giving back what every answer takes again.

    Answers, blocks and records come and go by the megabyte. glibc returns free memory above twice
    the largest block that was ever freed, 256 KiB to begin with, and the system clears it again
    page by page: half of the time of reading records of 1 kB. So such a block is freed here. It is
    never touched, so it costs nothing; with another C library it does nothing.
    """
    # Not a bytearray, which is filled with zeros by hand: 4,096 pages, and 31 ms of the loop.
    bytes(LARGE_BLOCK_BYTES)
