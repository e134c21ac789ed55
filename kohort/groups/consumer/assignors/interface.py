"""The inputs and results of assignors."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from kohort.groups.steps import Steps

Assigned: TypeAlias = Mapping[bytes, Sequence[int]]
"""Partition numbers by topic id."""


class AssignorMember(NamedTuple):
    member_id: str
    instance_id: str | None
    topics: frozenset[bytes]
    """Ids of the existing topics that it subscribes to."""
    assigned: Assigned
    """Its present target assignment."""


class Assign(Protocol):
    def __call__(
        self,
        members: Sequence[AssignorMember],
        topics: Mapping[bytes, int],
        *,
        homogeneous: bool,
    ) -> Steps[dict[str, dict[bytes, list[int]]]]:
        """Return the partitions of each member by topic id, ascending or in order of assignment.

        Args:
            members: in the order in which ties are decided.
            topics: the number of partitions of each subscribed topic by its id, in order.
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
