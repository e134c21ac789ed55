"""An assignor of your own, and a rebalance when what it goes by has changed (KIP-568).

    python examples/weighted_workers.py localhost:9092 jobs workers 1

The last argument is this worker's weight: partitions are shared out in proportion. A new weight on
standard input (a line with a number) makes the group assign them again.
"""

import asyncio
import sys
from collections.abc import Collection, Mapping, Sequence

from kohort import Assignor, Consumer, GroupMember, RebalanceListener, TopicPartition


class Weighted(Assignor):
    """Each partition goes to the member that has the fewest for its weight."""

    name = "weighted"

    def __init__(self, weight: int) -> None:
        self.weight = weight

    def user_data(self, topics: Collection[str]) -> bytes:
        """What the leader is told of this member."""
        return str(self.weight).encode()

    def assign(
        self, partition_counts: Mapping[str, int], members: Sequence[GroupMember]
    ) -> dict[str, list[TopicPartition]]:
        shares: dict[str, list[TopicPartition]] = {one.member_id: [] for one in members}
        weights = {one.member_id: max(1, int(one.user_data or 1)) for one in members}
        ordered = sorted(members, key=lambda one: one.order)
        for topic, count in sorted(partition_counts.items()):
            for index in range(count):
                takers = [one.member_id for one in ordered if topic in one.topics]
                if takers:
                    least = min(takers, key=lambda one: (len(shares[one]) + 1) / weights[one])
                    shares[least].append(TopicPartition(topic, index))
        return shares


class Tell(RebalanceListener):
    def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        print(f"{len(partitions)} partitions", flush=True)


async def main(bootstrap: str, topic: str, group: str, weight: str) -> None:
    assignor = Weighted(int(weight))
    consumer = Consumer(
        bootstrap_servers=bootstrap, group_id=group, partition_assignment_strategy=assignor
    )
    consumer.subscribe([topic], listener=Tell())
    lines: asyncio.Queue[str] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin, lambda: lines.put_nowait(sys.stdin.readline()))
    async with consumer:
        while True:
            await consumer.poll(timeout=0.2)
            if lines.empty():
                continue
            if not (line := lines.get_nowait()):
                break  # The end of the input is the end of the work.
            assignor.weight = int(line)
            consumer.enforce_rebalance(f"weight is {assignor.weight} now", state_changed=True)


asyncio.run(main(*sys.argv[1:5]))
