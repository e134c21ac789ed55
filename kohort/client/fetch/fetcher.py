"""Reads the assigned partitions ahead of the user, from all brokers concurrently.

Responses are kept as bytes until they are taken; only then are records created from them.
`prefetch_bytes_limit` bounds them, so a consumer that does not poll stops reading. The same number
of bytes again may be held for decompressed batches that are partly read.

`kohort.client.core.fetch.state` makes all decisions: what to request from which broker, what a
response means, what readers get. `Fetcher` has the connections, a task per request and one timer,
and the components that look up offsets (`offset_lookup`) and validate positions with new leaders
(`position_checks`).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeAlias

from kohort.client.clock import loop_ms, wall_ms
from kohort.client.core.fetch.buffers import PartitionFilter, Records
from kohort.client.core.fetch.config import FetchConfig
from kohort.client.core.fetch.deserialisers import NO_DESERIALISERS, Deserialisers
from kohort.client.core.fetch.plan import PlannedFetch
from kohort.client.core.fetch.positions import Positions
from kohort.client.core.fetch.state import Effect, FetchState
from kohort.client.core.fetch.wire import SentFetch
from kohort.client.core.offsets import OffsetAndMetadata
from kohort.client.core.partitions import TopicPartition
from kohort.client.core.records import AnyRecord
from kohort.client.deserialising import DeserialisingTasks
from kohort.client.fetch.offset_lookup import OffsetResets
from kohort.client.fetch.position_checks import PositionChecks
from kohort.client.net.cluster import FETCHING, Cluster
from kohort.client.net.connection import BrokerConnection
from kohort.client.net.errors import DisconnectedError
from kohort.protocol.messages.fetch import FetchRequest

logger = logging.getLogger(__name__)

RECEIVING_ITERATIONS_MAX: Final = 32
"""Limits the iterations of `Fetcher.let_loop_receive`. Otherwise a broker that sends continuously
would keep the user from getting records."""

LARGE_BLOCK_BYTES: Final = 16 << 20
"""Size of the block that `keep_freed_memory` frees: larger than any block of a consumer, and below
32 MiB, the maximum of glibc's mmap threshold."""

CommittedLookup: TypeAlias = Callable[
    [Collection[TopicPartition]],
    Awaitable[Mapping[TopicPartition, OffsetAndMetadata | None]],
]
"""Fetches committed offsets from the group; None for a partition without one."""


class _UnderWay(NamedTuple):
    connection: BrokerConnection
    sent: SentFetch
    answer: asyncio.Future[Any]


class Fetcher:
    """Fetches for one consumer, on one event loop. `take` and `next_record` never wait.

    The consumer may change `positions` at any time (seek, pause, ...); it calls `wake` afterwards,
    or `assignment_changed` after `Positions.set_assigned`.
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
        """`on_metadata_wanted` is called, with a backoff in between, when a partition's leader is
        unknown or wrong. It must return at once, have the metadata refreshed in the background, and
        have `wake` called afterwards; without `wake` the partition is reconsidered only when its
        backoff ends.
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
            background=DeserialisingTasks(deserialisers, on_made=self._changed.set)
            if deserialisers.have_coroutines
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
        """One task per request in flight."""
        self._timer: asyncio.TimerHandle | None = None
        self._is_running = False
        self._is_fetching = True

    # Called by the consumer.

    def start(self) -> None:
        keep_freed_memory()
        self._is_running = True
        self.assignment_changed()

    async def stop_fetching(self) -> None:
        """Send no more fetch requests. Position lookups continue for callers that need one."""
        self._is_fetching = False
        await self._give_up_requests()

    async def close(self) -> None:
        """Cancel requests in flight and drop all fetched data. May be called twice."""
        self._is_running = False
        self._stop_timer()
        await asyncio.gather(self._give_up_requests(), self._resets.close(), self._checks.close())
        self.state.clear()
        self._changed.set()

    def take(self, max_records: int, only: PartitionFilter = None) -> Records:
        """Take records that have arrived, in order within each partition: at most `max_records` in
        total, from the partitions `only` if given.

        Positions move past them. The result may be empty even after `wait` returned True, if
        everything that arrived was internal (transaction markers) or aborted.

        Raises:
            RecordError: the next record of a partition cannot be returned, because its batch is
                corrupt or too large, or its deserialiser raises; the position stays. Seek past it
                to continue.
            OffsetOutOfRangeError: the position is not in the log, and there is no reset policy.
            AuthorizationError: reading the topic is not allowed.

        Records before the error are returned first. Each error is raised once; the partition is
        then fetched again, so a persisting error is raised again.
        """
        self._raise_error(only)
        taken = self.state.take(max_records, only)
        if self.state.effects:
            self._pump()
        if not taken:
            self._raise_error(only)
        return taken

    def next_record(self) -> AnyRecord | None:
        """Take one record, and move the position past it. None if none has arrived; then call
        `wait`.

        Raises whatever `take` raises.
        """
        record = self.state.next_made()
        if record is None:
            record = self.state.next_record()
            if self.state.effects:
                self._pump()
            if record is None:
                self._raise_error()
        return record

    async def wait(self, timeout_s: float, only: PartitionFilter = None) -> bool:
        """Wait until there are records or an error to take (from the partitions `only` if given),
        until `wake` is called, or for `timeout_s`.

        Yields to the loop even if data is available: a caller that always finds records would
        otherwise keep the loop from receiving more.

        Returns:
            whether there is something to take.
        """
        if self.state.has_something(only):
            await asyncio.sleep(0)
            return True
        self._changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        return self.state.has_something(only)

    async def let_loop_receive(self) -> None:
        """Yield to the loop until nothing new arrives, for at most RECEIVING_ITERATIONS_MAX
        iterations.

        One iteration receives what the kernel has buffered of a response, and so makes room for
        more; a response of a megabyte takes about ten. Without these iterations nothing would be
        received while a caller takes the available records, and it would have to wait afterwards.
        """
        for _ in range(RECEIVING_ITERATIONS_MAX):
            had = self._cluster.received_bytes
            await asyncio.sleep(0)
            if self._cluster.received_bytes == had:
                break

    def wake(self) -> None:
        """Apply changes to positions, pauses or metadata, and let `wait` return."""
        self.state.drop_outdated()
        self._pump()
        self._changed.set()

    def assignment_changed(self) -> None:
        """Drop fetched data of revoked partitions, and start to fetch newly assigned ones."""
        self.state.set_assigned()
        self._pump()
        self._changed.set()

    async def update_positions(self, committed: CommittedLookup | None) -> None:
        """Give a position to every partition that has none: its committed offset, or else that of
        the reset policy.

        Waits only for `committed`; None means that there is no group, so that all partitions are
        reset. Resets are looked up in the background, and a partition is fetched as soon as its
        position is known; `wait_positions` waits for them. Costs next to nothing if no position is
        missing, so it may be called in every poll.

        Raises:
            NoOffsetError: there is no committed offset and no reset policy.
            Exception: whatever `committed` raises.
        """
        missing = self._positions.missing_position()
        if not missing:
            return
        fences = {tp: self._positions.state(tp).fence for tp in missing}
        stored = await committed(missing) if committed is not None else {}
        default_reset = self.state.default_reset(wall_ms())
        try:
            for partition, fence in fences.items():
                # If the partition was revoked and reassigned meanwhile, another member may have
                # committed after this response.
                if self._positions.has_fence(partition, fence):
                    self._positions.committed_found(partition, stored.get(partition), default_reset)
        finally:
            self.wake()

    async def wait_positions(
        self, partitions: Collection[TopicPartition], timeout_s: float
    ) -> bool:
        """Wait until each of these partitions has a position or is no longer assigned; False on
        timeout.

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
        """Send the requests that are due; execute the effects that `self.state` requests."""
        if self._is_running:
            self._send_due()
        state = self.state
        for note in state.notes:
            logger.log(logging.WARNING if note.is_warning else logging.DEBUG, "%s", note.text)
        state.notes.clear()
        if Effect.WAKE_READERS in state.effects:
            self._changed.set()
        is_refresh_wanted = Effect.REFRESH in state.effects
        state.effects.clear()
        if is_refresh_wanted:
            self._on_metadata_wanted()

    def _send_due(self) -> None:
        state, began_ms = self.state, loop_ms()
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
        """Send a planned fetch, and start the task that waits for its response.

        If there is a connection, the request is sent here and not by the task: the task starts in
        the next loop iteration, and a user that handles records without awaiting delays this
        iteration until all available records are handled.
        """
        address = self._cluster.broker(fetch.node_id)
        connection = None if address is None else self._cluster.connected(address, FETCHING)
        under_way: _UnderWay | None = None
        if connection is not None:
            # Errors are not handled here: `under_way` stays None, so the task tries to send again.
            # If that fails too, the task has the next poll raise the error, and frees the broker
            # for other requests (`on_request_finished`).
            with suppress(Exception):
                under_way = self._send(fetch, connection)
        name = f"fetch from broker {fetch.node_id}"
        task = asyncio.get_running_loop().create_task(self._fetch(fetch, under_way), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _send(self, fetch: PlannedFetch, connection: BrokerConnection) -> _UnderWay | None:
        """Build and send the request; None if there is nothing to fetch any more."""
        sent = self.state.build_request(fetch, connection.versions.best(FetchRequest), loop_ms())
        if sent is None:
            return None
        return _UnderWay(connection, sent, connection.send(sent.request, version=sent.version))

    async def _fetch(self, fetch: PlannedFetch, under_way: _UnderWay | None) -> None:
        began_ms = loop_ms()
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
                self.state.on_response(sent, answer, loop_ms(), wall_ms())
        except DisconnectedError as error:
            logger.debug("fetching from broker %d: %s", fetch.node_id, error)
            self.state.on_broker_unreachable(fetch, began_ms, loop_ms())
        except Exception as failure:  # noqa: BLE001 - raised by the next poll.
            self.state.on_fetch_error(fetch, failure, began_ms, loop_ms())
        finally:
            self.state.on_request_finished(fetch)
        self._pump()

    async def _give_up_requests(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Errors.

    def _raise_error(self, only: PartitionFilter = None) -> None:
        error = self.state.take_error(only, loop_ms())
        if error is not None:
            raise error


def keep_freed_memory() -> None:
    """Make the C library keep freed memory for the next response.

    Responses and records are allocated and freed by the megabyte. glibc allocates blocks above its
    mmap threshold (initially 128 KiB) from the system and returns them when they are freed; it also
    returns free memory at the end of the heap above twice that threshold. The system then zeroes
    the same pages again for each response: half of the time of reading 1 kB records.

    Freeing a block above the threshold makes glibc raise the threshold to its size. So the
    statement below allocates a large block and frees it at once, on purpose. The block is never
    written to, so it takes up no memory. With another C library this has no effect.
    """
    # Not a bytearray: zeroing its pages would block the loop for 31 ms.
    bytes(LARGE_BLOCK_BYTES)
