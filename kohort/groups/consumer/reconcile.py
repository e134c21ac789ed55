"""Moves a member towards its target assignment: a pure function from member to member (KIP-848).

A member revokes partitions before it gets new ones. It stays at its epoch until its own heartbeat
confirms that it no longer owns the partitions to revoke; then it gets those that no other member
owns, and the rest when the others have revoked them.
"""

from collections.abc import Callable, Collection
from collections.abc import Set as AbstractSet

from kohort.groups.consumer.member import NOTHING, Member, MemberState, Owned
from kohort.groups.topics import Partition

IsSubscribed = Callable[[bytes], bool]
"""Whether the member subscribes to the existing topic with this id."""

OwnerOf = Callable[[Partition], str | None]
"""Returns the member that has a partition, assigned or pending revocation; None if it is free."""

_STABLE = MemberState.STABLE
_UNREVOKED = MemberState.UNREVOKED_PARTITIONS
_UNRELEASED = MemberState.UNRELEASED_PARTITIONS


class InvalidStateError(Exception):
    """The member is in a state that this broker does not know, and must join again."""


def reconcile(
    member: Member,
    target: AbstractSet[Partition],
    target_epoch: int,
    owner_of: OwnerOf,
    is_subscribed: IsSubscribed,
    *,
    owned: Collection[Partition] | None,
    subscription_changed: bool,
) -> Member:
    """Return the member after one step towards its target.

    Args:
        member: the member that has sent a heartbeat.
        target: its target assignment.
        target_epoch: the group epoch that the target was computed for.
        owner_of: see `OwnerOf`.
        is_subscribed: see `IsSubscribed`.
        owned: the partitions that the request lists as owned; None if it has no list.
        subscription_changed: whether this heartbeat changes the member's subscription.

    Raises:
        InvalidStateError: its state is unknown, and its list of owned partitions is not empty.
    """
    match member.state:
        case MemberState.STABLE:
            if member.epoch == target_epoch:
                if not subscription_changed:
                    return member
                return _trim(member, is_subscribed, owned)
        case MemberState.UNREVOKED_PARTITIONS:
            if owned is None or not member.pending.keys().isdisjoint(owned):
                return _trim(member, is_subscribed, owned) if subscription_changed else member
        case MemberState.UNKNOWN:
            if owned is None or owned:
                raise InvalidStateError
    return _next(member, target, target_epoch, owner_of, is_subscribed, owned)


def _next(
    member: Member,
    target: AbstractSet[Partition],
    target_epoch: int,
    owner_of: OwnerOf,
    is_subscribed: IsSubscribed,
    owned: Collection[Partition] | None,
) -> Member:
    assigned = member.assigned
    # A topic that was deleted, or is no longer subscribed to, is not in the target.
    topic_ids = {topic_id for topic_id, _ in target}
    subscribed = {topic_id for topic_id in topic_ids if is_subscribed(topic_id)}
    if len(subscribed) != len(topic_ids):
        target = {partition for partition in target if partition[0] in subscribed}
    kept = {partition: epoch for partition, epoch in assigned.items() if partition in target}
    revoked = {partition: epoch for partition, epoch in assigned.items() if partition not in target}
    if revoked and (owned is None or not revoked.keys().isdisjoint(owned)):
        return member._replace(
            previous_epoch=member.epoch, state=_UNREVOKED, assigned=kept, pending=revoked
        )
    is_blocked = False
    for partition in target:
        if partition in kept:
            continue
        owner = owner_of(partition)
        if owner is None or (owner == member.member_id and partition not in assigned):
            kept[partition] = target_epoch
        else:
            is_blocked = True
    return member._replace(
        epoch=target_epoch,
        previous_epoch=member.epoch,
        state=_UNRELEASED if is_blocked else _STABLE,
        assigned=kept,
        pending=NOTHING,
    )


def _trim(
    member: Member, is_subscribed: IsSubscribed, owned: Collection[Partition] | None
) -> Member:
    """Take away the partitions of topics that the member no longer subscribes to; its target may
    still contain them.
    """
    subscribed = {topic_id for topic_id, _ in member.assigned if is_subscribed(topic_id)}
    kept: Owned = {p: epoch for p, epoch in member.assigned.items() if p[0] in subscribed}
    if len(kept) == len(member.assigned):
        return member
    revoked = {p: epoch for p, epoch in member.assigned.items() if p[0] not in subscribed}
    if owned is None or not revoked.keys().isdisjoint(owned):
        return member._replace(
            previous_epoch=member.epoch,
            state=_UNREVOKED,
            assigned=kept,
            pending={**member.pending, **revoked},
        )
    return member._replace(previous_epoch=member.epoch, assigned=kept)
