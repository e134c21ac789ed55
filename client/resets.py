"""Looks up the offsets of partitions that are to begin at an end of their log, or at a time.

It goes on in the background for as long as it takes, so that partitions that have a position can be
read meanwhile.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from client.core.backoff import Backoff
from client.core.errors import ConsumerError
from client.core.offsets import UNKNOWN_EPOCH
from client.core.positions import Positions
from client.fetch_config import FetchConfig
from client.net.cluster import Cluster
from client.offset_lookup import look_up


class OffsetResets:
    """Those of one consumer."""

    def __init__(
        self,
        cluster: Cluster,
        positions: Positions,
        config: FetchConfig,
        *,
        on_metadata_wanted: Callable[[], None],
        on_found: Callable[[], None],
        on_failed: Callable[[BaseException], None],
    ) -> None:
        """`on_found`: positions may have come. `on_failed`: to be told to the user."""
        self._cluster = cluster
        self._positions = positions
        self._config = config
        self._on_metadata_wanted = on_metadata_wanted
        self._on_found = on_found
        self._on_failed = on_failed
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """See that whatever awaits a reset is looked up."""
        if self._task is None and self._positions.awaiting_reset():
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(self._run(), name="look up offsets")
            self._task.add_done_callback(self._ended)

    async def close(self) -> None:
        """Give up."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if task.cancelled():
            return
        if (failure := task.exception()) is not None:
            # Nothing that was to be expected. It begins again when something else happens.
            self._on_failed(failure)
        else:
            self._on_found()

    async def _run(self) -> None:
        """Until all that await it have a position."""
        config = self._config
        backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, random.random)
        while specs := self._positions.awaiting_reset():
            try:
                found, failed = await look_up(
                    self._cluster, specs, config.isolation_level, config.request_timeout_ms
                )
            except ConsumerError as error:
                # To be told, and to be tried again, as a fetch that is refused.
                self._on_failed(error)
                found, failed = {}, dict.fromkeys(specs, error.code)
            for partition, offset in found.items():
                if offset is None:
                    self._positions.reset_found(partition, specs[partition], None, UNKNOWN_EPOCH)
                else:
                    at, _, epoch = offset
                    self._positions.reset_found(partition, specs[partition], at, epoch)
            if found:
                self._on_found()
            if failed:
                self._on_metadata_wanted()
                await asyncio.sleep(backoff.fail() / 1000)
