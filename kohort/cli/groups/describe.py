"""``kohort groups describe``: who is in a group, what each member reads, and how far behind."""

import argparse
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from kohort.admin.groups import Group, Position, describe_group
from kohort.admin.offsets import TopicPartition
from kohort.cli.not_found import no_group
from kohort.cli.options import add_kafka, cluster_of, print_json
from kohort.cli.table import table
from kohort.formats.text import counted, shown


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("group", metavar="GROUP")
    add_kafka(parser)
    parser.set_defaults(ask=ask)


def ask(options: argparse.Namespace) -> None:
    """Raises CommandError."""
    with cluster_of(options) as cluster:
        group = describe_group(cluster, options.group)
    if group is None:
        raise no_group(options.group)
    if options.json:
        print_json(as_json(group))
        return
    for line in lines(group):
        print(line)


def lines(group: Group) -> Iterator[str]:
    """What is printed."""
    yield _summary(group)
    if group.members:
        yield ""
        rows = [
            (one.member_id, one.instance_id, one.host, _partitions_text(one.partitions))
            for one in group.members
        ]
        yield from table(("MEMBER", "STATIC ID", "HOST", "PARTITIONS"), rows)
    if group.positions:
        yield ""
        owners = _owners(group)
        positions = [
            (
                one.topic,
                one.partition,
                one.committed,
                one.end,
                one.lag,
                owners.get((one.topic, one.partition)),
            )
            for one in group.positions
        ]
        yield from table(("TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "MEMBER"), positions)


def _summary(group: Group) -> str:
    parts = [f"{shown(group.group_id)}: {group.state}"]
    if group.protocol:
        parts.append(f"assignor {shown(group.protocol)}")
    if group.epoch is not None:
        parts.append(f"new protocol, epoch {group.epoch}")
    parts.append(counted(len(group.members), "member"))
    if group.positions:
        lag, unknown = _total_lag(group.positions)
        known = [] if lag is None else [str(lag)]
        if unknown:
            known.append(f"unknown for {counted(unknown, 'partition')}")
        parts.append(f"lag {' and '.join(known)}")
    return f"{', '.join(parts)} (coordinator {group.coordinator})"


def _total_lag(positions: Iterable[Position]) -> tuple[int | None, int]:
    """Return (sum, count): the sum of the known lags, None if no lag is known, as in `groups list`;
    and the number of partitions with an unknown lag.
    """
    lags = [position.lag for position in positions]
    known = [lag for lag in lags if lag is not None]
    return sum(known) if known else None, len(lags) - len(known)


def _partitions_text(partitions: list[TopicPartition] | None) -> str | None:
    """orders:0-2,5 payments:1"""
    if partitions is None:
        return "?"
    return " ".join(
        f"{topic}:{_ranges([index for _, index in same])}"
        for topic, same in groupby(partitions, key=lambda one: one[0])
    )


def _ranges(numbers: list[int]) -> str:
    """0-2,5 for 0, 1, 2, 5."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def _owners(group: Group) -> dict[TopicPartition, str]:
    return {
        partition: member.member_id
        for member in group.members
        for partition in member.partitions or ()
    }


def as_json(group: Group) -> dict[str, Any]:
    """What --json prints."""
    owners = _owners(group)
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
                "member_id": one.member_id,
                "instance_id": one.instance_id,
                "client_id": one.client_id,
                "host": one.host,
                "assignment": None if one.partitions is None else _by_topic(one.partitions),
            }
            for one in group.members
        ],
        "partitions": [
            {
                "topic": one.topic,
                "partition": one.partition,
                "committed": one.committed,
                "end": one.end,
                "lag": one.lag,
                "member_id": owners.get((one.topic, one.partition)),
            }
            for one in group.positions
        ],
    }


def _by_topic(partitions: list[TopicPartition]) -> dict[str, list[int]]:
    return {
        topic: [index for _, index in same]
        for topic, same in groupby(partitions, key=lambda one: one[0])
    }
