"""The assignors of consumer groups, which produce the same results as Kafka's (KIP-848).

An assignor is a pure function: ordered members and topics in, partitions by member out. Ties go to
the member, or topic, that comes first. It runs in steps, because an assignment for thousands of
members takes longer than other requests should wait.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias

from kohort.groups.steps import FEW, SOME, Steps

Assigned: TypeAlias = Mapping[bytes, Sequence[int]]
"""Partition numbers by topic id."""


class AssignorMember(NamedTuple):
    member_id: str
    instance_id: str | None
    topics: frozenset[bytes]
    """Ids of the existing topics that the member subscribes to."""
    assigned: Assigned
    """The member's present target assignment."""


class Assign(Protocol):
    def __call__(
        self,
        members: Sequence[AssignorMember],
        topics: Mapping[bytes, int],
        *,
        homogeneous: bool,
    ) -> Steps[dict[str, dict[bytes, list[int]]]]:
        """Return each member's partition numbers by topic id, ascending or in order of assignment.

        Args:
            members: ordered; ties between members go to the first.
            topics: partition counts of the subscribed topics by topic id, ordered as well.
            homogeneous: whether all members have the same subscription.
        """
        ...


def subscribers_of_topics(
    members: Sequence[AssignorMember], topics: Iterable[bytes]
) -> Steps[dict[bytes, list[int]]]:
    """Return for each topic the indexes of its subscribers in `members`, ascending.

    Topics with the same subscribers share one list: thousands of members usually have few different
    subscriptions, and separate lists would need memory for every pair of topic and member.
    """
    places_by_subscription: dict[frozenset[bytes], list[int]] = {}
    for place, member in enumerate(members):
        places_by_subscription.setdefault(member.topics, []).append(place)
        yield
    subscriptions_by_topic: dict[bytes, list[int]] = {topic_id: [] for topic_id in topics}
    for index, subscription in enumerate(places_by_subscription):
        for topic_id in subscription:
            subscriptions_by_topic[topic_id].append(index)
        yield
    places = list(places_by_subscription.values())
    shared: dict[tuple[int, ...], list[int]] = {}
    subscribers: dict[bytes, list[int]] = {}
    for topic_id, indexes in subscriptions_by_topic.items():
        key = tuple(indexes)
        if key not in shared:
            shared[key] = sorted([place for index in indexes for place in places[index]])
        subscribers[topic_id] = shared[key]
        yield
    return subscribers


def assign_ranges(
    members: Sequence[AssignorMember], topics: Mapping[bytes, int], *, homogeneous: bool
) -> Steps[dict[str, dict[bytes, list[int]]]]:
    """Assign adjoining partitions of each topic, whatever the present targets. Topics with the same
    number of partitions are divided in the same way, so that one member gets all records with the
    same key.

    Static members come first, by instance id, then dynamic ones, by member id; so a static member
    keeps its partitions when its process restarts.
    """
    del homogeneous
    ordered = sorted(
        members,
        key=lambda member: (
            member.instance_id is None,
            member.member_id if member.instance_id is None else member.instance_id,
        ),
    )
    assigned: dict[str, dict[bytes, list[int]]] = {member.member_id: {} for member in members}
    subscribers = yield from subscribers_of_topics(ordered, topics)
    for topic_id, partition_count in topics.items():
        places = subscribers[topic_id]
        if not places:
            continue
        share, extra = divmod(partition_count, len(places))
        begin = 0
        for number, place in enumerate(places):
            end = begin + share + (number < extra)
            if end == begin:
                break
            assigned[ordered[place].member_id][topic_id] = list(range(begin, end))
            begin = end
            if number % SOME == 0:
                yield
    return assigned


ROUNDS_MAX: Final = 16
"""Maximum number of passes over all topics: balancing one may make another uneven again."""

_SIGNS: Final = 1 << 127 | 1 << 63
"""The sign bits of both halves of a topic id, which Kafka compares as signed numbers."""


def assign_uniformly(
    members: Sequence[AssignorMember], topics: Mapping[bytes, int], *, homogeneous: bool
) -> Steps[dict[str, dict[bytes, list[int]]]]:
    """Balance members' partition counts over all topics; members keep theirs if possible.

    There are two algorithms, as in Kafka: one for members that all have the same subscription, and
    one for the general case.
    """
    if not members:
        return {}
    if homogeneous:
        return (yield from _assign_homogeneous(members, topics))
    return (yield from assign_heterogeneous(members, topics))


def _assign_homogeneous(
    members: Sequence[AssignorMember], topics: Mapping[bytes, int]
) -> Steps[dict[str, dict[bytes, list[int]]]]:
    subscribed = {t: topics[t] for t in topics if t in members[0].topics}
    unassigned = yield from _find_unassigned(members, subscribed)
    least, extra = divmod(sum(subscribed.values()), len(members))
    result: dict[str, dict[bytes, list[int]]] = {}
    unfilled: list[tuple[str, int]] = []
    for number, member in enumerate(members):
        quota = least
        has_extra = extra > 0
        quota += has_extra
        kept: dict[bytes, list[int]] = {}
        for topic_id, partitions in member.assigned.items():
            if topic_id not in subscribed:
                continue
            if len(partitions) <= quota:
                kept[topic_id] = list(partitions)
                quota -= len(partitions)
                continue
            if quota:
                kept[topic_id] = list(partitions[:quota])
            unassigned += [(topic_id, partition) for partition in partitions[quota:]]
            quota = 0
        # This member keeps less than its quota: leave the extra partition to a later member, which
        # may then keep one more of its own.
        if quota and has_extra and len(members) - number > extra:
            quota -= 1
            has_extra = False
        if quota:
            unfilled.append((member.member_id, quota))
        extra -= has_extra
        result[member.member_id] = kept
        if number % SOME == 0:
            yield
    begin = 0
    for member_id, quota in unfilled:
        kept = result[member_id]
        for topic_id, partition in unassigned[begin : begin + quota]:
            kept.setdefault(topic_id, []).append(partition)
        begin += quota
        yield
    return result


def _find_unassigned(
    members: Sequence[AssignorMember], topics: Mapping[bytes, int]
) -> Steps[list[tuple[bytes, int]]]:
    taken: dict[bytes, set[int]] = {topic_id: set() for topic_id in topics}
    for number, member in enumerate(members):
        for topic_id, partitions in member.assigned.items():
            if topic_id in taken:
                taken[topic_id].update(partitions)
        if number % SOME == 0:
            yield
    unassigned: list[tuple[bytes, int]] = []
    for topic_id, count in topics.items():
        for begin in range(0, count, FEW * 10):
            unassigned += [
                (topic_id, partition)
                for partition in range(begin, min(begin + FEW * 10, count))
                if partition not in taken[topic_id]
            ]
            yield
    return unassigned


def assign_heterogeneous(
    members: Sequence[AssignorMember], topics: Mapping[bytes, int]
) -> Steps[dict[str, dict[bytes, list[int]]]]:
    """Assign partitions to members with different subscriptions.

    Members keep partitions of topics that they still subscribe to. Each other partition goes, topic
    by topic, to the subscriber with the fewest partitions. Then partitions move from the most to
    the least loaded subscribers of a topic as long as that makes the group more even.
    """
    work = _Work(members, (yield from subscribers_of_topics(members, topics)))
    yield from work.keep_assigned(topics)
    ordered = yield from work.in_order()
    yield from work.assign_rest(ordered)
    yield from work.balance(ordered)
    return (yield from work.result())


class _Work:
    """The state of one computation. Members are represented by their indexes."""

    def __init__(
        self, members: Sequence[AssignorMember], subscribers: Mapping[bytes, Sequence[int]]
    ) -> None:
        self._members = members
        self._loads = [0] * len(members)
        self._subscribers = subscribers
        self._owners: dict[bytes, list[int]] = {}
        """The owner of each partition, -1 if it has none yet."""

    def keep_assigned(self, topics: Mapping[bytes, int]) -> Steps[None]:
        """Keep each member's partitions of topics that it subscribes to."""
        self._owners = {topic_id: [-1] * count for topic_id, count in topics.items()}
        for number, member in enumerate(self._members):
            for topic_id, partitions in member.assigned.items():
                if topic_id in member.topics:
                    self._loads[number] += len(partitions)
                    owners = self._owners[topic_id]
                    for partition in partitions:
                        owners[partition] = number
            if number % SOME == 0:
                yield

    def in_order(self) -> Steps[list[bytes]]:
        """Return the topics by descending number of partitions per subscriber."""
        topic_ids = [topic_id for topic_id, numbers in self._subscribers.items() if numbers]
        topic_ids.sort(key=lambda topic_id: int.from_bytes(topic_id, "big") ^ _SIGNS)
        yield
        topic_ids.sort(key=lambda topic_id: len(self._subscribers[topic_id]))
        yield
        topic_ids.sort(
            key=lambda topic_id: -len(self._owners[topic_id]) / len(self._subscribers[topic_id])
        )
        yield
        return topic_ids

    def assign_rest(self, ordered: Sequence[bytes]) -> Steps[None]:
        """Give partitions without an owner to the least loaded subscribers of their topic."""
        for topic_id in ordered:
            owners = self._owners[topic_id]
            rest = [partition for partition, owner in enumerate(owners) if owner < 0]
            yield
            if not rest:
                continue
            least = _Least(self._sorted_subscribers(topic_id), self._loads.__getitem__)
            for count, partition in enumerate(rest):
                self._give(owners, partition, least.take())
                if count % FEW == 0:
                    yield

    def balance(self, ordered: Sequence[bytes]) -> Steps[None]:
        """Move partitions until no topic can be balanced better."""
        shared = [topic_id for topic_id in ordered if len(self._subscribers[topic_id]) > 1]
        for _ in range(ROUNDS_MAX):
            moved = 0
            for topic_id in shared:
                moved += yield from self._balance_topic(topic_id)
                yield
            if not moved:
                break

    def _balance_topic(self, topic_id: bytes) -> Steps[int]:
        members = self._sorted_subscribers(topic_id)
        if self._loads[members[-1]] - self._loads[members[0]] <= 1:
            return 0
        owners = self._owners[topic_id]
        owned: dict[int, list[int]] = {}
        for partition, owner in enumerate(owners):
            owned.setdefault(owner, []).append(partition)
        least = _Least(members, self._loads.__getitem__)
        most = _Most(members, self._loads.__getitem__, lambda number: bool(owned.get(number)))
        moved = 0
        while True:
            receiver = least.take()
            giver = most.take(least.level)
            if giver is None:
                return moved
            partition = owned[giver].pop()
            self._loads[giver] -= 1
            owned.setdefault(receiver, []).append(partition)
            self._give(owners, partition, receiver)
            if moved % FEW == 0:
                yield
            moved += 1

    def _give(self, owners: list[int], partition: int, number: int) -> None:
        owners[partition] = number
        self._loads[number] += 1

    def _sorted_subscribers(self, topic_id: bytes) -> list[int]:
        """Return the subscribers in ascending order of load, then of index: the sort is stable."""
        return sorted(self._subscribers[topic_id], key=self._loads.__getitem__)

    def result(self) -> Steps[dict[str, dict[bytes, list[int]]]]:
        assigned: list[dict[bytes, list[int]]] = [{} for _ in self._members]
        for topic_id, owners in self._owners.items():
            for partition, owner in enumerate(owners):
                if owner >= 0:
                    assigned[owner].setdefault(topic_id, []).append(partition)
            yield
        names = [member.member_id for member in self._members]
        return dict(zip(names, assigned, strict=True))


class _Least:
    """Selects the member with the least load, round robin. Of the members, sorted by load, those
    before `_end` have the same load. When each of them has received a partition, `_end` moves past
    the members that already had the new load.
    """

    def __init__(self, members: Sequence[int], load: Callable[[int], int]) -> None:
        self._members = members
        self._load = load
        self._end = 0
        self._next = 0
        self.level = load(members[0]) - 1

    def take(self) -> int:
        """Return the next member that receives a partition."""
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
    """Selects the member with the most load, round robin from `_end` down to `_begin`. Members
    without a partition of the topic cannot give one: they are swapped to a place after `_end`.
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
        """Return the next member that gives a partition away; None if giving it to a member with
        load `least_level` would not make the group more even.
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


ASSIGNORS: Final[Mapping[str, Assign]] = {"uniform": assign_uniformly, "range": assign_ranges}
"""Assignors by the name that members request."""
