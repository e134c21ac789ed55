"""Where a share-partition begins, by the reset policy of its group."""

import asyncio
import logging
from collections.abc import Callable

from kohort.broker.config.share import EARLIEST, LATEST
from kohort.broker.runtime.clock import Clock
from kohort.broker.runtime.deferred import Tasks
from kohort.broker.topics.partition import Partition
from kohort.protocol.errors import KafkaError

logger = logging.getLogger(__name__)


class StartOffsets:
    """Determines start offsets; those by time in another thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tasks: Tasks = set()

    def __call__(self, log: Partition, policy: int, on_found: Callable[[int], None]) -> None:
        """Call `on_found` with the start offset, now or later."""
        if policy == EARLIEST:
            on_found(log.log.log_start_offset)
        elif policy == LATEST:
            on_found(log.high_watermark)
        else:
            work = self._find(log, self._clock.wall_ms() - policy, on_found)
            task = asyncio.get_running_loop().create_task(work, name="find a start offset")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _find(self, log: Partition, timestamp: int, on_found: Callable[[int], None]) -> None:
        try:
            found = await log.reads.offset_for_timestamp(timestamp)
        except KafkaError as error:
            logger.warning(
                "Cannot look up the start offset of a share-partition of %r: %s", log, error
            )
            found = None
        on_found(log.high_watermark if found is None else found[0])
