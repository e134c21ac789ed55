"""``kohort groups list``, ``describe`` and ``delete``: the groups of a cluster as they are now."""

import argparse
import time
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, Final

from kohort.admin.cluster import Cluster, RefusedError
from kohort.admin.group_changes import delete_group, delete_offsets, delete_start_offsets
from kohort.admin.group_overview import RECENT_S, overview
from kohort.admin.groups import (
    SHARE,
    Group,
    Position,
    committed_offsets,
    describe_group,
    groups_of,
    share_offsets,
)
from kohort.admin.offsets import TopicPartition
from kohort.cli import patterns
from kohort.cli.admin_http import Json
from kohort.cli.commands import Commands
from kohort.cli.errors import (
    NotFoundError,
    RefusedCommandError,
    UnavailableError,
    UsageError,
    no_group,
)
from kohort.cli.groups.from_files import add_from, groups_in_files
from kohort.cli.groups.history import local_clock
from kohort.cli.groups.share import share_group, share_partition_lines
from kohort.cli.options import add_kafka, cluster_of, print_json, print_result, print_rows
from kohort.cli.output import table
from kohort.cli.partitions import PARTITIONS, split_partitions
from kohort.formats.text import counted, shown
from kohort.groups.history.names import AVOIDED
from kohort.groups.history.sentence import record_cause
from kohort.groups.history.wording import short_id
from kohort.protocol.errors import DecodeError, ErrorCode

_TITLES: Final = {
    "group": "GROUP",
    "state": "STATE",
    "type": "TYPE",
    "members": "MEMBERS",
    "lag": "LAG",
    "rebalances_in_last_hour": "REBALANCES IN 1 H",
    "protocol_type": "PROTOCOL TYPE",
}

_UNDESCRIBED: Final = "streams"
"""The group type that `describe_group` does not support."""

_HEAD_OF_HISTORY: Final = ("GROUP", "TYPE", "MEMBERS", "REBALANCES", "IN 1 H", "LAST", "BECAUSE")


def add_list(commands: Commands) -> None:
    parser = commands.add("list", "all groups", _list)
    add_kafka(parser)
    add_from(parser)


def add_describe(commands: Commands) -> None:
    parser = commands.add("describe", "members, partitions and lag of groups", _describe)
    parser.add_argument("groups", metavar="GROUP", nargs="*", help=f"{patterns.HELP} (all groups)")
    add_kafka(parser)


def add_delete(commands: Commands) -> None:
    parser = commands.add("delete", "delete groups without members, with their offsets", _delete)
    parser.add_argument("groups", metavar="GROUP", nargs="+")
    add_kafka(parser)


def add_delete_offsets(commands: Commands) -> None:
    parser = commands.add(
        "delete-offsets",
        "delete committed offsets of topics that no member reads",
        _delete_offsets,
    )
    parser.add_argument("group", metavar="GROUP")
    parser.add_argument(
        "--topic",
        action="append",
        required=True,
        metavar=PARTITIONS,
        help="all partitions of a topic, or these; repeatable",
    )
    add_kafka(parser)


def _list(options: argparse.Namespace) -> None:
    if options.files:
        _list_files(options)
        return
    with cluster_of(options) as cluster:
        try:
            groups = overview(cluster)
        except DecodeError as error:
            raise UnavailableError(f"the rebalance history cannot be read: {error}") from error
    data = [
        {
            "group": group.listed.group_id,
            "state": group.listed.group_state or None,
            "type": group.listed.group_type or None,
            "protocol_type": group.listed.protocol_type or None,
            "members": group.members,
            "lag": group.lag,
            "rebalances_in_last_hour": group.rebalances,
        }
        for group in groups
    ]
    print_rows(options, "groups", _TITLES, data, "no groups")


def _list_files(options: argparse.Namespace) -> None:
    """List the groups of history files, with their rebalances: files have no states and lags."""
    now_ms = int(time.time() * 1000)
    clock_text = local_clock(now_ms)
    data: list[dict[str, Any]] = []
    rows: list[tuple[Any, ...]] = []
    for group, records in sorted(groups_in_files(options).items()):
        rebalances = [record for record in records if record.get("kind") != AVOIDED]
        times = [record.get("started_at_ms") or record["at_ms"] for record in rebalances]
        since_ms = now_ms - RECENT_S * 1000
        recent = sum(at_ms >= since_ms for at_ms in times)
        last = rebalances[-1] if rebalances else {}
        at_ms, members = times[-1] if times else None, last.get("members_after")
        data.append(
            {
                "group": group,
                "type": last.get("group_type"),
                "members": members,
                "rebalances": len(rebalances),
                "rebalances_in_last_hour": recent,
                "last_at_ms": at_ms,
                "last_trigger": last.get("trigger"),
            }
        )
        when = None if at_ms is None else clock_text(at_ms)
        because = record_cause(last) if last else None
        kind = last.get("group_type")
        rows.append((group, kind, members, len(rebalances), recent, when, because))
    lines = table(_HEAD_OF_HISTORY, rows) if rows else iter(["no groups"])
    print_result(options, {"groups": data}, lines)


def _describe(options: argparse.Namespace) -> None:
    groups: list[Group] = []
    shares: dict[str, Json] = {}
    with cluster_of(options) as cluster:
        for group_id in patterns.matching(options.groups, lambda: _group_ids(cluster)):
            group = describe_group(cluster, group_id)
            if group is not None:
                groups.append(group)
                if group.kind == SHARE and (share := share_group(options, cluster, group_id)):
                    shares[group_id] = share
            elif group_id in options.groups:
                raise no_group(group_id)
    is_single = len(options.groups) == 1 and options.groups[0] == groups[0].group_id
    described = [_group_json(group, shares.get(group.group_id)) for group in groups]
    data = described[0] if is_single else {"groups": described}
    print_result(options, data, _groups_lines(groups, shares) if groups else ["no groups"])


def _group_ids(cluster: Cluster) -> list[str]:
    return [
        group.group_id
        for broker in cluster.brokers()
        for group in groups_of(cluster, broker)
        if group.group_type != _UNDESCRIBED
    ]


def _groups_lines(groups: Iterable[Group], shares: dict[str, Json]) -> Iterator[str]:
    for number, group in enumerate(groups):
        if number:
            yield ""
        yield from group_lines(group, shares.get(group.group_id))


def group_lines(group: Group, share: Json | None = None) -> Iterator[str]:
    """Describe a group; `share` is the page of a share group from its broker's HTTP port."""
    yield _summary(group)
    if group.members:
        yield ""
        yield from _member_lines(group)
    if share is not None:
        yield ""
        yield from share_partition_lines(share)
    elif group.positions and group.kind == SHARE:
        yield ""
        offsets = [list(position.values()) for position in _start_offsets(group)]
        yield from table(("TOPIC", "PARTITION", "START", "LAG"), offsets)
    elif group.positions:
        yield ""
        rows = [
            [*list(position.values())[:-1], _short_owner(position["member_id"])]
            for position in _positions(group)
        ]
        yield from table(("TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "MEMBER"), rows)


def _short_owner(member_id: str | None) -> str | None:
    return None if member_id is None else short_id(member_id)


def _member_lines(group: Group) -> Iterator[str]:
    """Format the members as a table, with epochs and target assignments if the group has them.
    Members of share groups have no static ids.
    """
    is_share = group.kind == SHARE
    head: tuple[str, ...] = ("HOST", "PARTITIONS")
    head = ("MEMBER", *head) if is_share else ("MEMBER", "STATIC ID", *head)
    if group.epoch is not None:
        head += ("EPOCH", "TARGET", "CLIENT ID")
    rows: list[tuple[Any, ...]] = []
    for member in group.members:
        partitions = _partitions_text(member.partitions)
        name = short_id(member.member_id)
        row: tuple[Any, ...] = (member.host, partitions)
        row = (name, *row) if is_share else (name, member.instance_id, *row)
        if group.epoch is not None:
            is_there = member.target == member.partitions
            target = "the same" if is_there else _partitions_text(member.target)
            row += (member.epoch, target, member.client_id)
        rows.append(row)
    yield from table(head, rows)


def _summary(group: Group) -> str:
    parts = [f"{shown(group.group_id)}: {group.state}"]
    if group.protocol:
        parts.append(f"assignor {shown(group.protocol)}")
    if group.epoch is not None:
        protocol = "share group" if group.kind == SHARE else "consumer protocol"
        parts.append(f"{protocol}, epoch {group.epoch}")
    parts.append(counted(len(group.members), "member"))
    if group.positions:
        lag, unknown = _total_lag(group.positions)
        known = [] if lag is None else [str(lag)]
        if unknown:
            known.append(f"unknown for {counted(unknown, 'partition')}")
        parts.append(f"lag {' and '.join(known)}")
    return f"{', '.join(parts)} (coordinator {group.coordinator})"


def _total_lag(positions: Iterable[Position]) -> tuple[int | None, int]:
    """Return the sum of the known lags (None if there are none), and the number of unknown ones."""
    lags = [position.lag for position in positions]
    known = [lag for lag in lags if lag is not None]
    return sum(known) if known else None, len(lags) - len(known)


def _partitions_text(partitions: list[TopicPartition] | None) -> str | None:
    """Format partitions by topic, such as ``orders:0-2,5 payments:1``; ``?`` if unknown."""
    if partitions is None:
        return "?"
    by_topic = _by_topic(partitions)
    return " ".join(f"{topic}:{_ranges(indexes)}" for topic, indexes in by_topic.items())


def _by_topic(partitions: list[TopicPartition]) -> dict[str, list[int]]:
    return {
        topic: [index for _, index in same_topic]
        for topic, same_topic in groupby(partitions, key=lambda partition: partition[0])
    }


def _ranges(numbers: list[int]) -> str:
    """Format numbers as ranges: ``0-2,5`` for 0, 1, 2, 5."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def _group_json(group: Group, share: Json | None = None) -> dict[str, Any]:
    lag, unknown = _total_lag(group.positions)
    return {
        "group": group.group_id,
        "type": group.kind,
        "state": group.state,
        "protocol_type": group.protocol_type or None,
        "protocol": group.protocol or None,
        "epoch": group.epoch,
        "coordinator": group.coordinator,
        "lag": lag,
        "lag_unknown_partitions": unknown,
        "members": [
            {
                "member_id": member.member_id,
                "instance_id": member.instance_id,
                "client_id": member.client_id,
                "host": member.host,
                "assignment": None if member.partitions is None else _by_topic(member.partitions),
                "epoch": member.epoch,
                "target": None if member.target is None else _by_topic(member.target),
            }
            for member in group.members
        ],
        "partitions": _start_offsets(group) if group.kind == SHARE else _positions(group),
    } | (
        {
            "partitions": share["share_partitions"],
            "archived": share["archived"],
            "warnings": share["warnings"],
        }
        if share is not None
        else {}
    )


def _positions(group: Group) -> list[dict[str, Any]]:
    owners = {
        partition: member.member_id
        for member in group.members
        for partition in member.partitions or ()
    }
    return [
        {
            "topic": position.topic,
            "partition": position.partition,
            "committed": position.committed,
            "end": position.end,
            "lag": position.lag,
            "member_id": owners.get((position.topic, position.partition)),
        }
        for position in group.positions
    ]


def _start_offsets(group: Group) -> list[dict[str, Any]]:
    return [
        {
            "topic": position.topic,
            "partition": position.partition,
            "start": position.committed,
            "lag": position.lag,
        }
        for position in group.positions
    ]


def _delete(options: argparse.Namespace) -> None:
    with cluster_of(options) as cluster:
        for group in options.groups:
            try:
                delete_group(cluster, group)
            except RefusedError as error:
                if error.error == ErrorCode.GROUP_ID_NOT_FOUND:
                    raise no_group(group) from error
                if error.error == ErrorCode.NON_EMPTY_GROUP:
                    raise RefusedCommandError(
                        f"group {group!r} not deleted: it has members; stop them first,"
                        " `kohort groups describe` lists them"
                    ) from error
                raise
            if not options.json:
                print(f"{shown(group)}: deleted")
    if options.json:
        print_json({"deleted": options.groups})


def _delete_offsets(options: argparse.Namespace) -> None:
    """Delete offsets of a group. Topics are looked up among the group's offsets, because a topic
    may be deleted already.
    """
    with cluster_of(options) as cluster:
        of_shares = share_offsets(cluster, options.group)
        known = committed_offsets(cluster, options.group) if of_shares is None else of_shares
        deleted: dict[TopicPartition, int] = {}
        for text in options.topic:
            topic, wanted = split_partitions(text)
            if of_shares is not None and wanted is not None:
                raise UsageError(f"share offsets can only be deleted for a whole topic: {topic}")
            found = {
                (name, index): offset
                for (name, index), offset in known.items()
                if name == topic and (wanted is None or index in wanted)
            }
            if not found:
                raise NotFoundError(f"the group {options.group!r} has no offsets in {text}")
            deleted |= found
        if of_shares is None:
            delete_offsets(cluster, options.group, deleted)
        else:
            delete_start_offsets(cluster, options.group, sorted({topic for topic, _ in deleted}))
    rows = [(*partition, offset) for partition, offset in sorted(deleted.items())]
    keys = ("topic", "partition", "committed")
    data = {
        "group": options.group,
        "deleted": [dict(zip(keys, row, strict=True)) for row in rows],
    }
    lines = [*table(("TOPIC", "PARTITION", "COMMITTED"), rows), "", "These offsets were deleted."]
    print_result(options, data, lines)
