"""Repairs indexes of aborted transactions in another thread before they are used."""

import asyncio
from concurrent.futures import Executor
from typing import Final

from kohort.broker.storage.log.log import PartitionLog
from kohort.protocol.errors import KafkaError

ATTEMPTS: Final = 3
"""A rebuilt index is checked once more; and segments may be compacted meanwhile."""


async def repair_indexes(log: PartitionLog, offset: int, executor: Executor) -> None:
    """Return when all indexes from an offset on are quick to query.

    Indexes that cannot be read or rebuilt stay as they are; using them raises the error.
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
