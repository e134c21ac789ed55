"""Indexes of aborted transactions are made good by another thread before they are asked."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from typing import Final

from kohort.broker.storage.log.log import PartitionLog
from kohort.protocol.errors import KafkaError

ATTEMPTS: Final = 3
"""A rebuilt index is looked at once more; and segments may be compacted meanwhile."""


async def repair_indexes(log: PartitionLog, offset: int, executor: Executor) -> None:
    """Return when no index from an offset on takes long to ask.

    What cannot be read or rebuilt stays as it is: whoever needs it is told.
    """
    loop = asyncio.get_running_loop()
    for _ in range(ATTEMPTS):
        try:
            repairs = [log.aborted.repair(segment) for segment in log.aborted.unready(offset)]
            if not repairs:
                return
            for repair in repairs:
                await loop.run_in_executor(executor, repair.run)
                repair.take_over()
        except KafkaError:
            return
