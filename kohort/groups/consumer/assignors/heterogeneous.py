"""The general case of the uniform assignor: members with different subscriptions.

Members keep what they still subscribe to. What is left goes, topic by topic, to the subscriber with
the least partitions. Then partitions move from the most to the least loaded subscribers of a topic
as long as that makes the group more even.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from kohort.groups.consumer.assignors.interface import AssignorMember
from kohort.groups.steps import SOME, Steps

ROUNDS_MAX: Final = 16
"""Balancing one topic may make another uneven; it ends after this many rounds over all topics."""

_HALF: Final = 8
"""Bytes of each half of a topic id; Kafka compares both as signed numbers."""


def assign_heterogeneous(
    members: Sequence[AssignorMember], topics: Mapping[bytes, int]
) -> Steps[dict[str, dict[bytes, list[int]]]]:
    """Assign partitions of topics that not all members subscribe to."""
    work = _Work(members, topics)
    yield from work.keep_assigned()
    yield from work.assign_rest()
    yield from work.balance()
    return {
        member.member_id: {topic_id: owned for topic_id, owned in kept.items() if owned}
        for member, kept in zip(members, work.assigned, strict=True)
    }


class _Work:
    """The state of one computation. Members are numbers: their places in the sequence."""

    def __init__(self, members: Sequence[AssignorMember], topics: Mapping[bytes, int]) -> None:
        self._members = members
        self._topics = topics
        self.assigned: list[dict[bytes, list[int]]] = []
        self._loads = [0] * len(members)
        """Partitions of each member."""
        self._subscribers: dict[bytes, list[int]] = {topic_id: [] for topic_id in topics}
        self._owners: dict[bytes, list[int]] = {}
        """The owner of each partition, -1 if it has none yet."""

    def keep_assigned(self) -> Steps[None]:
        """Leave to members what they have of the topics that they subscribe to."""
        self._owners = {topic_id: [-1] * count for topic_id, count in self._topics.items()}
        for number, member in enumerate(self._members):
            for topic_id in member.topics:
                self._subscribers[topic_id].append(number)
            kept: dict[bytes, list[int]] = {}
            for topic_id, partitions in member.assigned.items():
                if topic_id in member.topics:
                    kept[topic_id] = list(partitions)
                    self._loads[number] += len(partitions)
                    owners = self._owners[topic_id]
                    for partition in partitions:
                        owners[partition] = number
            self.assigned.append(kept)
            if number % SOME == 0:
                yield

    def assign_rest(self) -> Steps[None]:
        """Give partitions without an owner to the least loaded subscribers of their topic."""
        rest = {
            topic_id: unassigned
            for topic_id, owners in self._owners.items()
            if self._subscribers[topic_id]
            and (unassigned := [p for p, owner in enumerate(owners) if owner < 0])
        }
        for topic_id in self._in_order(rest):
            least = _Least(self._sorted_subscribers(topic_id), self._load)
            for partition in rest[topic_id]:
                self._give(topic_id, partition, least.take())
            yield

    def balance(self) -> Steps[None]:
        """Move partitions until no topic can be balanced better."""
        shared = [topic_id for topic_id, of_topic in self._subscribers.items() if len(of_topic) > 1]
        ordered = self._in_order(shared)
        for _ in range(ROUNDS_MAX):
            moved = 0
            for topic_id in ordered:
                moved += self._balance_topic(topic_id)
                yield
            if not moved:
                break

    def _balance_topic(self, topic_id: bytes) -> int:
        """Move partitions of one topic; returns how many."""
        members = self._sorted_subscribers(topic_id)
        if self._loads[members[-1]] - self._loads[members[0]] <= 1:
            return 0
        owned: dict[int, list[int]] = {}
        for partition, owner in enumerate(self._owners[topic_id]):
            owned.setdefault(owner, []).append(partition)
        least = _Least(members, self._load)
        most = _Most(members, self._load, lambda number: bool(owned.get(number)))
        moved = 0
        while True:
            receiver = least.take()
            giver = most.take(least.level)
            if giver is None:
                return moved
            partition = owned[giver].pop()
            self.assigned[giver][topic_id].remove(partition)
            self._loads[giver] -= 1
            owned.setdefault(receiver, []).append(partition)
            self._give(topic_id, partition, receiver)
            moved += 1

    def _give(self, topic_id: bytes, partition: int, number: int) -> None:
        self.assigned[number].setdefault(topic_id, []).append(partition)
        self._owners[topic_id][partition] = number
        self._loads[number] += 1

    def _load(self, number: int) -> int:
        return self._loads[number]

    def _sorted_subscribers(self, topic_id: bytes) -> list[int]:
        return sorted(self._subscribers[topic_id], key=lambda number: (self._loads[number], number))

    def _in_order(self, topic_ids: Sequence[bytes] | Mapping[bytes, object]) -> list[bytes]:
        """Sort topics by partitions per subscriber, the most first."""

        def key(topic_id: bytes) -> tuple[float, int, int, int]:
            count = len(self._subscribers[topic_id])
            return (
                -self._topics[topic_id] / count,
                count,
                int.from_bytes(topic_id[:_HALF], "big", signed=True),
                int.from_bytes(topic_id[_HALF:], "big", signed=True),
            )

        return sorted(topic_ids, key=key)


class _Least:
    """Takes members in turn, always one of those with the least load: all members of a range at the
    front have the same load; when each has got a partition, the range is widened by those that have
    that load already.
    """

    def __init__(self, members: Sequence[int], load: Callable[[int], int]) -> None:
        self._members = members
        self._load = load
        self._end = 0
        self._next = 0
        self.level = load(members[0]) - 1

    def take(self) -> int:
        """Return the next member, which gets a partition."""
        if self._next == self._end:
            self.level += 1
            while self._end < len(self._members) and (
                self._load(self._members[self._end]) == self.level
            ):
                self._end += 1
            self._next = 0
        self._next += 1
        return self._members[self._next - 1]


class _Most:
    """Takes members in turn from the end, always one of those with the most load that own
    partitions of the topic. Members that own none are swapped out of the range.
    """

    def __init__(
        self, members: list[int], load: Callable[[int], int], has_any: Callable[[int], bool]
    ) -> None:
        self._members = members
        self._load = load
        self._has_any = has_any
        self._begin = self._end = len(members)
        self._next = self._begin - 1
        self._level = load(members[-1]) + 1

    def take(self, least_level: int) -> int | None:
        """Return the next member, which gives a partition to one with `least_level`; None if that
        would not make the group more even.
        """
        members = self._members
        while True:
            if self._next < self._begin:
                self._level -= 1
                while self._begin and self._load(members[self._begin - 1]) == self._level:
                    self._begin -= 1
                self._next = self._end - 1
            if self._level - least_level <= 1:
                return None
            if self._next < self._begin:
                continue
            number = members[self._next]
            if self._has_any(number):
                self._next -= 1
                return number
            self._end -= 1
            members[self._next], members[self._end] = members[self._end], members[self._next]
            self._next -= 1
