"""Collecting the facts of a group that the checks need."""

import struct
from collections.abc import Iterable
from typing import Final

from kohort.broker.console.checks import GroupFacts, MemberFacts, StillFacts
from kohort.broker.console.lag import Position
from kohort.broker.console.recent import HOUR_MS, Recent
from kohort.broker.groups_seen import GroupSeen
from kohort.groups.description import DescribedMember, GroupDescription
from kohort.groups.history.shares import parse_share
from kohort.groups.requests import CONSUMER, Now

MEMBERS_LOOKED_AT: Final = 1_000
"""Maximum number of members checked per group, the oldest first."""

_TOPICS: Final = struct.Struct(">hih")
"""The first fields of an assignment: its version, the number of topics, the length of the first
name."""
_PARTITIONS: Final = struct.Struct(">i")


def facts_of(group: GroupSeen, behind: Iterable[Position], recent: Recent, now: Now) -> GroupFacts:
    """Return the facts of a group and at most `MEMBERS_LOOKED_AT` of its members."""
    described = group.describe()
    members = [_member(described, member) for member in group.describe_members(MEMBERS_LOOKED_AT)]
    still = [
        StillFacts(
            f"{position.topic}-{position.partition}",
            position.lag,
            max(now.wall_ms - position.committed.commit_timestamp_ms, 0),
        )
        for position in behind
        if position.lag
    ]
    causes = [
        rebalance.cause
        for rebalance in recent.rebalances
        if rebalance.at_ms >= now.wall_ms - HOUR_MS
    ]
    return GroupFacts(described.protocol_type, described.is_stable, members, causes, still)


def _member(group: GroupDescription, member: DescribedMember) -> MemberFacts:
    has_partitions = None
    if group.protocol_type == CONSUMER:
        has_partitions = has_any(member.assignment)
    return MemberFacts(
        member.member_id,
        member.instance_id,
        member.session_timeout_ms,
        member.rebalance_timeout_ms,
        member.assignors,
        has_partitions,
    )


def has_any(assignment: bytes) -> bool | None:
    """Return whether a consumer's assignment has a partition, None if it cannot be parsed. Usually
    reads only the first topic, because this is called for all members of all groups.
    """
    if len(assignment) >= _TOPICS.size:
        _, topics, name_bytes = _TOPICS.unpack_from(assignment)
        at = _TOPICS.size + name_bytes
        if topics > 0 and name_bytes >= 0 and at + _PARTITIONS.size < len(assignment):
            (partitions,) = _PARTITIONS.unpack_from(assignment, at)
            if partitions > 0:
                return True
    share = parse_share(assignment)
    return None if share is None else bool(share)
