"""Groups as JSON values, in the shapes that docs/groups.md documents, for the pages of the HTTP
port and the console.
"""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Final, TypeAlias

from kohort.groups.description import DescribedMember, GroupDescription, WaitingFor
from kohort.groups.events import MemberRef
from kohort.groups.history.names import IDS_LISTED, cut_id
from kohort.groups.history.shares import parse_share
from kohort.groups.kinds import GroupKind
from kohort.groups.requests import CONSUMER, Now

Json: TypeAlias = dict[str, Any]

_WITH_PARTITIONS: Final = frozenset({CONSUMER, GroupKind.SHARE.value})
"""Types of groups whose assignments are partitions."""

_PARSED_BYTES_MAX: Final = 32 * 1024
"""The largest assignment that is parsed: of a larger assignment only the size is shown. The
assignment of a thousand partitions has 4 KiB."""


def group_json(group: GroupDescription, totals: tuple[int, int]) -> Json:
    """Return a group's entry in GET /groups; `totals`: numbers of rebalances and of avoided
    rebalances.
    """
    rebalances, avoided = totals
    return {
        "group": group.group_id,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "generation": group.generation,
        "members": group.member_count,
        "rebalances": rebalances,
        "avoided": avoided,
    }


def waiting_json(
    waiting: WaitingFor | None,
    now: Now,
    *,
    with_members: bool,
    may_name: Callable[[str], bool] | None = None,
) -> Json | None:
    """Return what a running rebalance waits for; None if no rebalance is running.

    Args:
        waiting: the result of the group's `describe_waiting`.
        now: the present time.
        with_members: whether the clients of the listed members are included.
        may_name: whether the partitions of a topic may be named; None: no partition is.
    """
    if waiting is None:
        return None
    until_ms = waiting.until_ms
    view: Json = {
        "phase": waiting.phase,
        "since_ms": waiting.since_ms,
        "until_ms": None if until_ms is None else now.wall_ms + until_ms - now.ms,
        "member_ids": _listed(member.member_id for member in waiting.members),
        "member_count": len(waiting.members),
        "pending_ids": _listed(waiting.unused_ids),
        "pending_count": len(waiting.unused_ids),
        "partition_count": waiting.partition_count,
        "blocked_count": waiting.blocked_count,
    }
    if waiting.is_any:
        view["any_of"] = True
    if may_name is not None:
        view["partitions"] = [
            f"{topic}-{number}" for topic, number in waiting.partitions if may_name(topic)
        ]
    if with_members:
        view["members"] = [_client_json(member) for member in waiting.members[:IDS_LISTED]]
        for client, heard_ms in zip(view["members"], waiting.heard_ms, strict=False):
            client["silent_ms"] = max(now.ms - heard_ms, 0)
        for client, end_ms in zip(view["members"], waiting.session_ends_ms, strict=False):
            client["session_until_ms"] = now.wall_ms + end_ms - now.ms
    return view


def _listed(ids: Iterable[str]) -> list[str]:
    return [cut_id(member_id) for member_id in islice(ids, IDS_LISTED)]


def _client_json(member: DescribedMember | MemberRef) -> Json:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "host": member.client_host,
    }


def member_json(
    group: GroupDescription,
    member: DescribedMember,
    is_visible: Callable[[str], bool] = lambda _: True,
) -> Json:
    """Return the entry of a member. `assignment` has the partitions of visible topics, by topic;
    null if it cannot be parsed or is too large.
    """
    is_leader = group.leader_id == member.member_id
    return {
        **_client_json(member),
        "role": "leader" if is_leader else "follower",
        "session_timeout_ms": member.session_timeout_ms,
        "rebalance_timeout_ms": member.rebalance_timeout_ms,
        "protocols": list(member.assignors),
        "assignment": _assignment(group, member.assignment, is_visible),
        "assignment_bytes": len(member.assignment),
    }


def _assignment(
    group: GroupDescription, assignment: bytes, is_visible: Callable[[str], bool]
) -> dict[str, list[int]] | None:
    if group.protocol_type not in _WITH_PARTITIONS or len(assignment) > _PARSED_BYTES_MAX:
        return None
    share = parse_share(assignment)
    if share is None:
        return None
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(share):
        if is_visible(topic):
            by_topic.setdefault(topic, []).append(partition)
    return by_topic
