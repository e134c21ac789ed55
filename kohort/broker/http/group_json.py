"""Groups as JSON, for the pages of the HTTP port; the shapes are documented in docs/groups.md.

Records of the history already are JSON texts (docs/rebalance-history.md) and are passed through.
"""

import json
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Final, TypeAlias

from kohort.groups.classic.group import ClassicGroup
from kohort.groups.classic.member import Member
from kohort.groups.history.limits import IDS_LISTED, cut_id
from kohort.groups.history.sentence import sentence
from kohort.groups.history.shares import parse_share
from kohort.groups.history.text import parse_text
from kohort.groups.requests import CONSUMER, Now

Json: TypeAlias = dict[str, Any]

MEMBERS_BEGIN: Final = b',"members":['
"""Marks the beginning of a record's members. They come last, and this text cannot occur inside a
value, where its quotation marks would be escaped."""

_PARSED_BYTES_MAX: Final = 32 * 1024
"""The largest assignment that is parsed: for larger ones only the size is given. One of a thousand
partitions has 4 KiB."""


def group_json(group: ClassicGroup, now: Now, totals: tuple[int, int]) -> Json:
    """Return a group's entry in GET /groups; `totals` are its numbers of rebalances and of avoided
    ones.
    """
    rebalances, avoided = totals
    told: Json = {
        "group": group.group_id,
        "state": group.state.value,
        "protocol_type": group.protocol_type,
        "generation": group.generation,
        "members": len(group.roster),
        "rebalances": rebalances,
        "avoided": avoided,
    }
    waiting = waiting_json(group, now)
    if waiting is not None:
        told["waiting"] = waiting
    return told


def waiting_json(group: ClassicGroup, now: Now) -> Json | None:
    """Return the members that a running rebalance waits for; None if no rebalance runs."""
    ids, until_ms = group.waiting_for()
    if until_ms is None and not ids:
        return None
    member_ids = [one for one in ids if one in group.roster]
    pending_ids = [one for one in ids if one not in group.roster]
    return {
        "phase": group.phase,
        "since_ms": group.state_timestamp_ms,
        "until_ms": None if until_ms is None else now.wall_ms + until_ms - now.ms,
        "member_ids": _some(member_ids),
        "member_count": len(member_ids),
        "pending_ids": _some(pending_ids),
        "pending_count": len(pending_ids),
    }


def _some(ids: Iterable[str]) -> list[str]:
    return [cut_id(one) for one in islice(ids, IDS_LISTED)]


def waiting_members(group: ClassicGroup, waiting: Json) -> list[Json]:
    """Return the listed members that it waits for."""
    found = [group.roster.get(member_id) for member_id in waiting["member_ids"]]
    return [_who(member) for member in found if member is not None]


def _who(member: Member) -> Json:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "host": member.client_host,
    }


def member_json(
    group: ClassicGroup, member: Member, is_seen: Callable[[str], bool] = lambda _: True
) -> Json:
    """Return one member. `assignment` is partitions by topic, of those that are seen, null if it is
    not known to be a consumer's.
    """
    is_leader = group.roster.leader_id == member.member_id
    return {
        **_who(member),
        "role": "leader" if is_leader else "follower",
        "session_timeout_ms": member.session_timeout_ms,
        "rebalance_timeout_ms": member.rebalance_timeout_ms,
        "protocols": [name for name, _ in member.protocols],
        "assignment": _assignment(group, member.assignment, is_seen),
        "assignment_bytes": len(member.assignment),
    }


def _assignment(
    group: ClassicGroup, assignment: bytes, is_seen: Callable[[str], bool]
) -> dict[str, list[int]] | None:
    if group.protocol_type != CONSUMER or len(assignment) > _PARSED_BYTES_MAX:
        return None
    share = parse_share(assignment)
    if share is None:
        return None
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(share):
        if is_seen(topic):
            by_topic.setdefault(topic, []).append(partition)
    return by_topic


def with_sentence(text: bytes) -> bytes:
    """Return a record's text with the field "sentence" before all others.

    The sentence does not depend on the members, which may be a thousand and are not parsed.
    """
    made = sentence(parse_text(without_members(text)))
    return b'{"sentence":%b,%b' % (json.dumps(made).encode(), text[1:])


def without_members(text: bytes) -> bytes:
    """Return a record's text without its members."""
    head, found, _ = text.partition(MEMBERS_BEGIN)
    return head + b"}" if found else text
