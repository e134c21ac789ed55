"""Reads the assigned partitions ahead of the user, from all brokers at the same time.

What arrives waits, as bytes, until it is taken; records are made of it only then. How much may wait
is bounded (`FetchConfig.prefetch_bytes_limit`), so a consumer that does not poll stops reading. The
same bounds what is inflated of batches that were begun.

What to ask whom is decided in `kohort.client.core.fetch.plan`, where everybody stands is kept in
`kohort.client.core.fetch.positions`, and what waits is in `kohort.client.core.fetch.buffers`.
`kohort.client.fetch.sending` sends the requests, `kohort.client.fetch.answers` reads what comes
back, `kohort.client.fetch.troubles` knows what went wrong. Here is when all of them have their
turn.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from typing import Final, TypeAlias

from kohort.client.clock import now_ms
from kohort.client.core.fetch.batches import NO_DESERIALISERS, IsolationLevel, ReadOptions
from kohort.client.core.fetch.buffers import FetchBuffers, Only, Records
from kohort.client.core.fetch.config import FetchConfig
from kohort.client.core.fetch.plan import FetchLimits, FetchPlan
from kohort.client.core.fetch.positions import Positions
from kohort.client.core.offsets import OffsetAndMetadata, OffsetSpec
from kohort.client.core.partitions import TopicPartition
from kohort.client.core.records import AnyRecord
from kohort.client.deserialising import Awaiting, Deserialisers
from kohort.client.fetch.answers import FetchAnswers
from kohort.client.fetch.leader_checks import PositionChecks
from kohort.client.fetch.memory import have_freed_memory_kept
from kohort.client.fetch.resets import OffsetResets, TopicIds, begin_anew
from kohort.client.fetch.sending import FetchSender
from kohort.client.fetch.sources import FetchSources
from kohort.client.fetch.troubles import Troubles
from kohort.client.net.cluster import Cluster

__all__ = [
    "CommittedLookup",
    "Deserialisers",
    "FetchConfig",
    "Fetcher",
    "IsolationLevel",
    "Records",
]

logger = logging.getLogger(__name__)

RECEIVING_ROUNDS_MAX: Final = 32
"""So that nobody who sends without end keeps records that are here from being handed out."""

CommittedLookup: TypeAlias = Callable[
    [Collection[TopicPartition]],
    Awaitable[Mapping[TopicPartition, OffsetAndMetadata | None]],
]
"""Asks the group for committed offsets; None for a partition without one."""


class Fetcher:
    """That of one consumer, on one event loop. `take` and `next_record` never wait.

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
        self._plan = FetchPlan(
            FetchLimits(
                config.fetch_max_bytes,
                config.max_partition_fetch_bytes,
                config.prefetch_bytes_limit,
            )
        )
        self._changed = asyncio.Event()
        self._sources = FetchSources(
            cluster, rack=config.client_rack, lifetime_ms=config.metadata_max_age_ms
        )
        self.troubles = Troubles(
            self._sources, positions, self._plan, config, on_due=self._changed.set
        )
        awaiting = None
        if deserialisers.are_awaited:
            awaiting = Awaiting(deserialisers, on_made=self._changed.set)
        self._buffers = FetchBuffers(
            positions,
            inflated_bytes_limit=config.prefetch_bytes_limit,
            on_less=self._has_less,
            on_failed=self.troubles.fail,
            awaiting=awaiting,
        )
        answers = FetchAnswers(
            positions,
            self._plan,
            self._buffers,
            self.troubles,
            self._sources,
            ReadOptions(config.check_crcs, config.inflated_bytes_limit, deserialisers, awaiting),
            default_reset=self._default_reset,
            on_metadata_wanted=on_metadata_wanted,
            on_readable=self._changed.set,
        )
        self._sender = FetchSender(
            cluster,
            positions,
            self._plan,
            self._buffers,
            answers,
            self.troubles,
            self._sources,
            config,
            on_metadata_wanted=on_metadata_wanted,
            on_answered=self._pump,
        )
        self._topic_ids = TopicIds()
        self._resets = OffsetResets(
            cluster,
            positions,
            config,
            on_metadata_wanted=on_metadata_wanted,
            on_found=self.wake,
            on_failed=self.troubles.failed,
        )
        self._checks = PositionChecks(
            cluster,
            positions,
            config,
            default_reset=self._default_reset,
            on_metadata_wanted=on_metadata_wanted,
            on_changed=self.wake,
            on_failed=self.troubles.fail,
            on_unheard=self.troubles.unheard,
        )
        self._timer: asyncio.TimerHandle | None = None
        self._is_running = False
        self._is_fetching = True

    # For the consumer.

    def start(self) -> None:
        """Begin to fetch whatever has a position."""
        have_freed_memory_kept()
        self._is_running = True
        self.assignment_changed()

    async def stop_fetching(self) -> None:
        """Ask for no more records. Positions are found as before, for who asks for one."""
        self._is_fetching = False
        await self._sender.close()

    async def close(self) -> None:
        """Give up requests under way and forget all that waits. May be called twice."""
        self._is_running = False
        self._stop_timer()
        await asyncio.gather(self._sender.close(), self._resets.close(), self._checks.close())
        self._buffers.clear()
        self.troubles.clear()
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
        self.troubles.raise_due(only)
        taken = self._buffers.take(max_records, only)
        if not taken:
            self.troubles.raise_due(only)
        return taken

    def next_record(self) -> AnyRecord | None:
        """As `take(1)`, for reading one by one: the position moves by this record only.

        None: there is none here; `wait` for it.
        """
        record = self._buffers.next_record()
        if record is None:
            self.troubles.raise_due()
        return record

    def asked(self, only: Only) -> None:
        """Who reads `only` (None: all) asks for more: what it has been given is processed."""
        self._buffers.asked(only)

    def processed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The positions up to which records are processed, as far as can be told: all that were
        returned, but for those that a reader was given last.
        """
        return self._buffers.processed()

    @property
    def waiting_bytes(self) -> int:
        """What was fetched and not taken yet."""
        return self._plan.waiting_bytes

    async def wait(self, timeout_s: float, only: Only = None) -> bool:
        """Until there is something to take (records or an error; of the partitions `only` if it is
        given), or `wake` is called.

        Lets others have the loop in any case, so that who always finds records does not keep the
        next ones from being received.

        Returns:
            whether there is something.
        """
        if self._has_something(only):
            await asyncio.sleep(0)
            return True
        self._changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        return self._has_something(only)

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
        """Something has changed (a position, a pause, the metadata); whoever waits returns."""
        self._buffers.drop_outdated()
        self._pump()
        self._changed.set()

    def assignment_changed(self) -> None:
        """Forget what was fetched of partitions that are gone, and fetch those that came."""
        assigned = self._positions.assigned
        self._plan.set_partitions(assigned)
        self.troubles.keep_only(assigned)
        self._sources.keep_only(assigned)
        self.wake()

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
        default_reset = self._default_reset()
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
                    self.troubles.raise_due()
        except TimeoutError:
            return False
        return True

    def _has_something(self, only: Only) -> bool:
        return self.troubles.are_due(only) or self._buffers.has_readable(only)

    def _has_less(self, partition: TopicPartition, byte_count: int) -> None:
        if self._plan.set_waiting(partition, byte_count) and not self._plan.is_saturated:
            self._pump()

    def _pump(self) -> None:
        """Send what is to be sent now."""
        if not self._is_running:
            return
        self._notice_new_topics()
        self._resets.begin()
        if self._checks.begin():
            self._buffers.drop_outdated()
        if not self._is_fetching:
            return
        began_ms = now_ms()
        plan = self._plan.next(began_ms, self._sources.node, self._is_readable)
        wakes = [] if plan.wake_ms is None else [plan.wake_ms]
        if plan.leaderless:
            wakes += self.troubles.unserved(plan.leaderless, began_ms)
            self._on_metadata_wanted()
        for fetch in plan.fetches:
            self._plan.sent(fetch.node_id, began_ms)
            self._sender.begin(fetch)
        self._stop_timer()
        if wakes:
            wait_s = max(1, min(wakes) - began_ms) / 1000
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._pump)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _is_readable(self, partition: TopicPartition) -> bool:
        state = self._positions.find(partition)
        return state is not None and state.is_readable

    # Positions.

    def _default_reset(self) -> OffsetSpec | None:
        return self._config.auto_offset_reset.spec_at(time.time_ns() // 1_000_000)

    def _notice_new_topics(self) -> None:
        for topic in self._topic_ids.changed(self._cluster, self._positions.assigned):
            logger.warning("%s was deleted and created again; auto_offset_reset decides", topic)
            errors = begin_anew(self._positions, topic, self._default_reset())
            self._buffers.drop_outdated()
            for partition, error in errors.items():
                self.troubles.fail(partition, error)
