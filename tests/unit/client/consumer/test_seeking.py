import asyncio
from types import SimpleNamespace
from typing import cast

from kohort.client.consumer.seeking import seek_to_committed
from kohort.client.core.fetch.positions import Positions
from kohort.client.core.offsets import OffsetAndMetadata
from kohort.client.core.partitions import TopicPartition
from kohort.client.engine.engine import Engine

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


async def test_a_partition_that_was_revoked_and_reassigned_meanwhile_is_not_moved() -> None:
    positions = Positions()
    positions.set_assigned([A, B])
    committed = {A: OffsetAndMetadata(3), B: OffsetAndMetadata(4)}
    answer = asyncio.get_running_loop().create_future()

    async def fetch(_: list[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        await answer
        return committed

    engine = SimpleNamespace(
        positions=positions,
        check_assigned=lambda _: None,
        group_commits=lambda: SimpleNamespace(committed=fetch),
        wake=lambda: None,
    )
    seeking = asyncio.create_task(seek_to_committed(cast("Engine", engine), []))
    await asyncio.sleep(0)
    positions.set_assigned([B])
    positions.set_assigned([A, B])
    positions.seek(A, 7)
    positions.seek(B, 8)
    answer.set_result(None)
    assert await seeking == committed
    assert positions.position(A) == 7
    assert positions.position(B) == 4
