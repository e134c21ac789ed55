"""Any one file of a data directory is taken away while the broker is down: what follows from that.

What can be rebuilt is; records that are gone with a .log are told, in the log and by the number
that the metric shows; what lies behind them is read as before; and no offset is given out again.
"""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import sample

import pytest

from kohort.broker.topics.partition import Partition
from kohort.protocol.records.batch import split_batches
from tests.support.brokers.running_topics import append, running_topics

SETTINGS = ("log.segment.bytes=1048576", "log.flush.interval.messages=1")
BATCH_BYTES = 300_000
BATCHES = 11
"""Three in each segment, one record each; two in the last one."""


@asynccontextmanager
async def running_partition(root: Path, *, stop_cleanly: bool = True) -> AsyncIterator[Partition]:
    async with running_topics(root, *SETTINGS, stop_cleanly=stop_cleanly) as topics:
        topic = topics.get("orders") or await topics.changes.create_topic(
            "orders", partition_count=1
        )
        yield topic.partitions[0]
        topic.partitions[0].start_flush()
        await topic.partitions[0].wait_flushed()
        await topics.disk.write_checkpoints()


def read_offsets(partition: Partition) -> list[int]:
    """Base offsets of the batches from the start to the end, as a consumer finds them."""
    found: list[int] = []
    offset = partition.log.log_start_offset
    while data := partition.reads.read(offset, 1 << 20, min_one=True):
        found += [header.base_offset for header, _ in split_batches(data)]
        offset = found[-1] + 1
    return found


@pytest.mark.parametrize("stop_cleanly", [True, False])
async def test_a_missing_file_loses_no_more_than_it_held_and_that_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, stop_cleanly: bool, long_form: bool
) -> None:
    whole = tmp_path / "whole"
    async with running_partition(whole, stop_cleanly=stop_cleanly) as partition:
        for _ in range(BATCHES):
            append(partition, b"v" * BATCH_BYTES)
        bases = [segment.base_offset for segment in partition.log.segments]
    assert bases == [0, 3, 6, 9]
    held = {
        f"orders-0/{base:020}.log": range(base, behind)
        for base, behind in zip(bases, [*bases[1:], BATCHES], strict=True)
    }
    names = [str(path.relative_to(whole)) for path in whole.rglob("*") if path.is_file()]
    assert {*held, "orders-0/partition.metadata", "metadata.db"} <= {*names}
    others = [name for name in names if name not in held]
    for name in [*held, *(others if long_form else sample(others, 4))]:
        root = tmp_path / "one-less"
        shutil.copytree(whole, root)
        (root / name).unlink()
        caplog.clear()
        gone = held.get(name, range(0))
        async with running_partition(root) as partition:
            assert partition.log.log_end_offset == BATCHES, name
            offsets = [offset for offset in range(BATCHES) if offset not in gone]
            assert read_offsets(partition) == offsets, name
            assert append(partition).base_offset == BATCHES, name
            assert partition.log.lost_offsets == len(gone), name
        told = f"offsets {gone.start} to {gone.stop - 1} are lost" if gone else ""
        assert told in caplog.text, name
        assert bool(gone) == ("are lost" in caplog.text), name
        async with running_partition(root) as partition:
            assert read_offsets(partition) == [*offsets, BATCHES], name
        shutil.rmtree(root)
