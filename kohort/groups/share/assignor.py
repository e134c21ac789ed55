"""The assignor `simple`: partitions may be shared, so that each member has some.

If all members subscribe to the same topics, all partitions are distributed together, otherwise
those of each topic among its subscribers. With n members and k partitions, each partition gets
s = ceil(n / k) members, and the members share these s * k places evenly. Members keep what they
have as far as possible. Kafka's choice of the partitions that move depends on the order of its hash
tables; here members are ordered by id and partitions by (topic id, number), and a member gives up
its last partitions first.
"""

from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Final

from kohort.groups.steps import FEW, Steps
from kohort.groups.topics import Partition

NAME: Final = "simple"


def assign(
    subscriptions: Mapping[str, frozenset[bytes]],
    assignable: Mapping[bytes, Iterable[int]],
    current: Mapping[str, frozenset[Partition]],
) -> Steps[dict[str, frozenset[Partition]]]:
    """Return the target assignment of each member.

    Args:
        subscriptions: ids of the topics that each member subscribes to.
        assignable: the partitions of each topic that may be assigned.
        current: the present target assignment of each member.
    """
    members = sorted(subscriptions)
    targets: dict[str, set[Partition]] = {member: set() for member in members}
    topics = sorted(frozenset().union(*subscriptions.values()))
    if len(set(subscriptions.values())) <= 1:
        problems = [(members, topics)]
    else:
        problems = [
            ([m for m in members if topic in subscriptions[m]], [topic]) for topic in topics
        ]
    for takers, topic_ids in problems:
        partitions = [
            (topic_id, number)
            for topic_id in topic_ids
            for number in sorted(assignable.get(topic_id, ()))
        ]
        if takers and partitions:
            yield from _distribute(takers, partitions, current, targets)
    return {member: frozenset(target) for member, target in targets.items()}


def _distribute(
    members: Sequence[str],
    partitions: Sequence[Partition],
    current: Mapping[str, frozenset[Partition]],
    targets: dict[str, set[Partition]],
) -> Steps[None]:
    """Distribute partitions among members; add them to the targets."""
    n, k = len(members), len(partitions)
    sharing = -(-n // k)
    counts = dict.fromkeys(partitions, 0)
    missing: list[tuple[str, int]] = []
    for i, member in enumerate(members):
        wanted = -(-sharing * k * (i + 1) // n) + (-sharing * k * i // n)
        kept = sorted(p for p in current.get(member, ()) if p in counts)
        target = targets[member]
        for partition in kept:
            if wanted and counts[partition] < sharing:
                counts[partition] += 1
                target.add(partition)
                wanted -= 1
        if wanted:
            missing.append((member, wanted))
        yield
    # The partition with the fewest members is assigned first. In total, partitions have as many
    # free places as members still need.
    free = [(count, partition) for partition, count in counts.items() if count < sharing]
    heapify(free)
    for member, places in missing:
        target = targets[member]
        skipped: list[tuple[int, Partition]] = []
        wanted = places
        while wanted and free:
            count, partition = heappop(free)
            if partition in target:
                skipped.append((count, partition))
                continue
            target.add(partition)
            wanted -= 1
            if count + 1 < sharing:
                heappush(free, (count + 1, partition))
            if wanted % FEW == 0:
                yield
        for entry in skipped:
            heappush(free, entry)
