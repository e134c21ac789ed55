"""Compares the stored generations of a classic group: the settings of members, and the changes
between two generations.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from kohort.groups.history.shares import Share, parse_share
from kohort.groups.records import GroupRecord, StoredMember
from kohort.groups.requests import CONSUMER
from kohort.protocol.codec import decode_versioned
from kohort.protocol.errors import DecodeError
from kohort.protocol.messages.consumer_protocol import ConsumerProtocolSubscription


class MemberSettings(NamedTuple):
    """The timeouts and the rebalance protocol (`mode`) of a member's last join."""

    session_timeout_ms: int
    rebalance_timeout_ms: int
    mode: str | None
    """eager or cooperative; None if the stored generations do not show it."""


def settings_of(old: GroupRecord, new: GroupRecord) -> dict[str, MemberSettings]:
    """Return the settings of all members, by id; those in `new` override those in `old`."""
    held = {member.member_id: bool(parse_share(member.assignment)) for member in old.members}
    settings = {}
    for record in (old, new):
        for member in record.members:
            mode = None
            if record is new and record.protocol_type == CONSUMER and held.get(member.member_id):
                subscription = parse_subscription(member.subscription)
                # An eager member revokes all partitions before it joins, so that it owns none.
                is_eager = subscription is not None and not subscription.owned
                mode = "eager" if is_eager else "cooperative"
            settings[member.member_id] = MemberSettings(
                member.session_timeout_ms, member.rebalance_timeout_ms, mode
            )
    return settings


class Subscription(NamedTuple):
    topics: frozenset[str]
    user_data: bytes
    owned: Share


def parse_subscription(metadata: bytes) -> Subscription | None:
    """Parse a consumer's subscription; None if `metadata` is something else."""
    try:
        parsed, _ = decode_versioned(ConsumerProtocolSubscription, metadata, newer_is_readable=True)
    except DecodeError:
        return None
    owned = frozenset(
        (listed.topic, index) for listed in parsed.owned_partitions for index in listed.partitions
    )
    return Subscription(frozenset(parsed.topics), parsed.user_data or b"", owned)


class Resubscription(NamedTuple):
    """A member that subscribes to other topics than before."""

    member: StoredMember
    before: frozenset[str]
    after: frozenset[str]


@dataclass(frozen=True, slots=True)
class Difference:
    """The changes between two stored generations."""

    gone: tuple[StoredMember, ...]
    new: tuple[StoredMember, ...]
    kept: tuple[tuple[StoredMember, StoredMember], ...]
    """Members of both generations, each as (before, after)."""
    resubscribed: tuple[Resubscription, ...]
    losers: tuple[StoredMember, ...]
    """Members from which the old generation revoked partitions. In a cooperative group they rejoin
    at once, so that these partitions get a new owner."""
    grown_topics: tuple[str, ...]
    """Topics that have more partitions: the highest assigned partition number has increased."""
    lost_topics: tuple[str, ...]
    """Topics that no longer have an assigned partition."""
    other_data: tuple[StoredMember, ...]
    """Members whose user data for the assignor has changed."""
    protocol_changed: bool

    @property
    def same_members(self) -> bool:
        return not self.gone and not self.new


_NO_SUBSCRIPTION: Final = Subscription(frozenset(), b"", frozenset())


def difference(old: GroupRecord, new: GroupRecord) -> Difference:
    before = {member.member_id: member for member in old.members}
    after = {member.member_id: member for member in new.members}
    kept = tuple([(before[key], member) for key, member in after.items() if key in before])
    is_consumers = new.protocol_type == CONSUMER
    resubscribed, other_data = [], []
    losers = []
    for one, other in kept if is_consumers else ():
        was = parse_subscription(one.subscription) or _NO_SUBSCRIPTION
        now = parse_subscription(other.subscription) or _NO_SUBSCRIPTION
        if was.topics != now.topics:
            resubscribed.append(Resubscription(other, was.topics, now.topics))
        elif was.user_data != now.user_data:
            other_data.append(other)
        held = parse_share(one.assignment) or frozenset()
        if was.owned - held:
            losers.append(other)
    grown, lost = _topics(old, new) if is_consumers else ((), ())
    return Difference(
        gone=tuple([member for key, member in before.items() if key not in after]),
        new=tuple([member for key, member in after.items() if key not in before]),
        kept=kept,
        resubscribed=tuple(resubscribed),
        losers=tuple(losers),
        grown_topics=grown,
        lost_topics=lost,
        other_data=tuple(other_data),
        protocol_changed=bool(old.members) and old.protocol_name != new.protocol_name,
    )


def _topics(old: GroupRecord, new: GroupRecord) -> tuple[tuple[str, ...], tuple[str, ...]]:
    before, after = _highest(old), _highest(new)
    grown = [topic for topic, index in after.items() if topic in before and index > before[topic]]
    lost = [topic for topic in before if topic not in after]
    return tuple(sorted(grown)), tuple(sorted(lost))


def _highest(record: GroupRecord) -> dict[str, int]:
    highest: dict[str, int] = {}
    for member in record.members:
        for topic, index in parse_share(member.assignment) or ():
            highest[topic] = max(highest.get(topic, -1), index)
    return highest
