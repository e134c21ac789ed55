"""Distributes partitions evenly while moving as few of them as possible.

If all members subscribe to the same topics this is arithmetic, in time linear in the number of
partitions. Otherwise it is the optimal semi-matching of Harvey, Ladner, Lovász and Tamir (2006): as
long as there is a chain of moves that takes a partition from a member and gives one to a member
with at least two fewer, apply it. Partitions of one topic are interchangeable, so chains run over
topics, not over partitions.

Optimality matters beyond evenness. A cooperative group reaches its assignment in two rounds, and
the second knows only the partitions kept in the first. If the first round's target was optimal, the
remaining partitions complete it to another optimum, and no third round is needed.
"""

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence

from kohort.client.core.group.assignors.assignor import (
    Assignment,
    GroupMember,
    partitions_of,
    subscribers_by_topic,
)
from kohort.client.core.partitions import TopicPartition


def balanced(
    held: Mapping[str, Sequence[TopicPartition]],
    members: Sequence[GroupMember],
    partition_counts: Mapping[str, int],
) -> Assignment:
    """Return an even assignment that keeps as much of the previous one as possible.

    Args:
        held: the partitions that each member had; no partition twice.
    """
    subscribers = subscribers_by_topic(partition_counts, members)
    taken = {partition for partitions in held.values() for partition in partitions}
    free = [
        partition
        for topic in sorted(subscribers)
        for partition in partitions_of(topic, partition_counts[topic])
        if partition not in taken
    ]
    in_order = [member.member_id for member in sorted(members, key=lambda member: member.order)]
    if all(len(wanting) == len(members) for wanting in subscribers.values()):
        return _share_equally(in_order, held, free)
    balance = _Balance(in_order, subscribers, held)
    balance.give_out(free)
    balance.even_out(set(free))
    balance.even_out(None)
    return balance.assignment(held)


def _share_equally(
    members: Sequence[str],
    held: Mapping[str, Sequence[TopicPartition]],
    free: Iterable[TopicPartition],
) -> Assignment:
    """Return an assignment of members with equal subscriptions: counts differ by at most one."""
    to_give = deque(free)
    count = len(to_give) + sum(map(len, held.values()))
    least, more_count = divmod(count, len(members))
    kept: Assignment = {}
    for member_id in members:
        # `more_count` members get one more than `least`: first those that already have more.
        may_have_more = more_count > 0 and len(held[member_id]) > least
        more_count -= may_have_more
        limit = least + may_have_more
        kept[member_id] = list(held[member_id][:limit])
        to_give.extend(held[member_id][limit:])
    to_give = deque(sorted(to_give))
    # One partition at a time, so that the partitions of one topic are spread.
    hungry = deque(member_id for member_id in members if len(kept[member_id]) < least)
    while hungry:
        member_id = hungry.popleft()
        kept[member_id].append(to_give.popleft())
        if len(kept[member_id]) < least:
            hungry.append(member_id)
    satisfied = (member_id for member_id in members if len(kept[member_id]) == least)
    for member_id, partition in zip(satisfied, list(to_give), strict=False):
        kept[member_id].append(partition)
    return kept


class _Balance:
    """An assignment that is being balanced between members with different subscriptions."""

    def __init__(
        self,
        members: Sequence[str],
        subscribers: Mapping[str, Sequence[GroupMember]],
        held: Mapping[str, Sequence[TopicPartition]],
    ) -> None:
        self._members = members
        self._subscribers = {
            topic: [member.member_id for member in wanting]
            for topic, wanting in subscribers.items()
        }
        self._count = {member_id: len(held[member_id]) for member_id in members}
        self._has: dict[str, dict[str, list[TopicPartition]]] = {
            member_id: {} for member_id in members
        }
        for member_id in members:
            for partition in held[member_id]:
                self._add(member_id, partition)

    def assignment(self, held: Mapping[str, Sequence[TopicPartition]]) -> Assignment:
        """Return the assignment of each member: its number of partitions of each topic, preferring
        those that it held.

        Moves may have exchanged a member's partition for another one of the same topic. Without
        this preference a cooperative member would revoke the first and wait for the second, and the
        next rebalance might reverse that, endlessly.
        """
        shares: Assignment = {}
        free = {tp for has in self._has.values() for ones in has.values() for tp in ones}
        for member_id, has in self._has.items():
            left = {topic: len(ones) for topic, ones in has.items()}
            shares[member_id] = share = []
            for partition in held[member_id]:
                if left.get(partition.topic, 0) > 0:
                    left[partition.topic] -= 1
                    share.append(partition)
            free.difference_update(share)
        to_give: dict[str, deque[TopicPartition]] = {}
        for partition in sorted(free):
            to_give.setdefault(partition.topic, deque()).append(partition)
        for member_id, has in self._has.items():
            share = shares[member_id]
            kept = Counter(partition.topic for partition in share)
            for topic, ones in has.items():
                share.extend(to_give[topic].popleft() for _ in range(len(ones) - kept[topic]))
            share.sort()
        return shares

    def give_out(self, partitions: Iterable[TopicPartition]) -> None:
        """Assign each partition to the subscriber with the fewest, beginning with the topics that
        have the fewest subscribers.
        """
        for partition in sorted(
            partitions, key=lambda partition: (len(self._subscribers[partition.topic]), partition)
        ):
            taker = min(self._subscribers[partition.topic], key=self._count.__getitem__)
            self._add(taker, partition)
            self._count[taker] += 1

    def even_out(self, movable: set[TopicPartition] | None) -> None:
        """Move partitions, only movable ones if given, until no move improves the balance."""
        again = True
        while again:
            again = False
            for member_id in sorted(self._members, key=self._count.__getitem__, reverse=True):
                while self._relieve(member_id, movable):
                    again = True

    def _relieve(self, loaded: str, movable: set[TopicPartition] | None) -> bool:
        """Take a partition from a member by the shortest chain of moves that improves the balance;
        False if there is none.
        """
        limit = self._count[loaded] - 2
        reached_from: dict[str, tuple[str, str]] = {}
        seen_topics: set[str] = set()
        waiting = deque([loaded])
        while waiting:
            giver = waiting.popleft()
            for topic, partitions in sorted(self._has[giver].items()):
                if topic in seen_topics or not _some(partitions, movable):
                    continue
                seen_topics.add(topic)
                for taker in self._subscribers[topic]:
                    if taker == loaded or taker in reached_from:
                        continue
                    reached_from[taker] = (giver, topic)
                    if self._count[taker] <= limit:
                        self._move_along(loaded, taker, reached_from, movable)
                        return True
                    waiting.append(taker)
        return False

    def _move_along(
        self,
        loaded: str,
        last: str,
        reached_from: Mapping[str, tuple[str, str]],
        movable: set[TopicPartition] | None,
    ) -> None:
        self._count[loaded] -= 1
        self._count[last] += 1
        taker = last
        while taker != loaded:
            giver, topic = reached_from[taker]
            partitions = self._has[giver][topic]
            partition = _last(partitions, movable)
            partitions.remove(partition)
            if not partitions:
                del self._has[giver][topic]
            self._add(taker, partition)
            taker = giver

    def _add(self, member_id: str, partition: TopicPartition) -> None:
        self._has[member_id].setdefault(partition.topic, []).append(partition)


def _some(partitions: Sequence[TopicPartition], movable: set[TopicPartition] | None) -> bool:
    return movable is None or not movable.isdisjoint(partitions)


def _last(
    partitions: Sequence[TopicPartition], movable: set[TopicPartition] | None
) -> TopicPartition:
    return next(tp for tp in reversed(partitions) if movable is None or tp in movable)
