"""The recorded lab: its records and polls, and what the broker's log says about them."""

import gzip
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, tzinfo
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

from kohort.groups.consumer.records import (
    ClassicPart,
    ConsumerMemberRecord,
    ConsumerMemberTombstone,
    CurrentRecord,
    CurrentTombstone,
    EpochRecord,
    EpochTombstone,
    OldMetadataTombstone,
    TargetEpochRecord,
    TargetEpochTombstone,
    TargetRecord,
    TargetTombstone,
)
from kohort.groups.encoding import encode_key, encode_value
from kohort.groups.history.names import UNKNOWN_GENERATION
from kohort.groups.kinds import GroupKind
from kohort.groups.records import (
    DurableRecord,
    GroupRecord,
    GroupTombstone,
    OffsetRecord,
    OffsetTombstone,
    StoredMember,
)
from kohort.groups.requests import CommittedOffset
from kohort.insight.broker_log.lines import Failed, Left, NotJoined, Preparing, read, read_departure
from kohort.insight.broker_log.reasons import departure, parse_reason
from kohort.protocol.codec import encode_versioned
from kohort.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from kohort.protocol.records.record import Record
from kohort.watch.core.fate import Timeouts
from kohort.watch.core.followed import Place, Poll
from kohort.watch.core.logged import Logs
from kohort.watch.core.polled import PolledGroups, Snapshot
from kohort.watch.core.watcher import Watcher

LAB = Path(__file__).parent / "lab"
TIMEOUTS = Timeouts(session_ms=10_000, heartbeat_ms=3_000)
"""Of all consumer groups in the lab."""

UPGRADED = "ck-classic-upgrade"
"""A group that was a consumer group for a while."""

UNSEEN = {"ck-classic-boot", "aio-classic-boot", "ck-new-boot"}
"""Groups during a restart of the broker: this recording has no leader epochs."""

_NEAR_MS = 3_000
_POLL_MS = 1_000
_REBALANCING = {"PreparingRebalance", "CompletingRebalance"}
_CONSUMER_FATE = re.compile(
    r"^\[(\S+ [\d:,]+)\].*\[GroupId (\S+)\] Member (\S+) "
    r"(left the consumer group|fenced from the group because the member session expired)"
)

Json = dict[str, Any]


def watch_lab(
    *, dump: str = "dump", polls: bool = False, log: bool = False, zone: tzinfo = UTC
) -> list[Json]:
    """Return the history that a watcher makes of the lab."""
    watcher = new_watcher()
    if log:
        _add_lines(watcher.logs, zone)
    history = follow_lab(watcher, dump=dump, polls=polls)
    return [record for record in history if record["group"] not in UNSEEN]


def new_watcher() -> Watcher:
    return Watcher({}, lambda group: TIMEOUTS)


def follow_lab(
    watcher: Watcher, *, dump: str = "dump", polls: bool = False, part: float = 1.0
) -> list[Json]:
    """Let a watcher follow the first part of the lab; return the history that it makes, with
    `UNSEEN` groups.
    """
    rows = _rows(dump, polls=polls)
    history: list[Json] = []
    for at_ms, row in rows[: int(part * len(rows))]:
        if "groups" in row:
            busy = {group for group, _, state, _ in row["groups"] if state in _REBALANCING}
            history += watcher.flush(at_ms - _POLL_MS)
            watcher.rest(at_ms, busy)
        elif "state" in row:
            ids = frozenset([member[0] for member in row["members"]])
            watcher.poll(row["g"], Poll(at_ms, row["state"], ids))
        else:
            record = _record(row)
            stored = Record(encode_value(record), encode_key(record), (), at_ms, row["o"])
            history += watcher.take([stored], Place(row["p"], row["o"]))
    history += watcher.flush()
    return history


def lab_records() -> Iterator[tuple[DurableRecord, Record, Place]]:
    """Yield the records of the lab, decoded and as stored."""
    for at_ms, row in _rows("dump", polls=False):
        record = _record(row)
        stored = Record(encode_value(record), encode_key(record), (), at_ms, row["o"])
        yield record, stored, Place(row["p"], row["o"])


def poll_lab(*, log: bool = False) -> list[Json]:
    """Return the history of the classic groups that a watcher without their records makes, which
    describes all groups every second.
    """
    groups = PolledGroups(1_000)
    if log:
        _add_lines(groups.logs, UTC)
    stored: dict[str, GroupRecord] = {}
    described: dict[str, Json] = {}
    busy: set[str] = set()
    history: list[Json] = []
    next_ms = 0
    for at_ms, row in _rows("dump", polls=True):
        if at_ms >= next_ms:
            next_ms = at_ms + _POLL_MS
            for group, value in stored.items():
                snapshot = _snapshot(value, described[group] if group in busy else None, at_ms)
                history += groups.take(snapshot)
        if "groups" in row:
            busy = {group for group, _, state, _ in row["groups"] if state in _REBALANCING}
            busy &= described.keys() & stored.keys()
        elif "state" in row:
            described[row["g"]] = row
        elif row["n"] == "GroupMetadata" and row["v"] is not None:
            record = _record(row)
            assert isinstance(record, GroupRecord)
            stored[record.group_id] = record
    return [record for record in history if record["group"] not in UNSEEN | {UPGRADED}]


def _add_lines(logs: Logs, zone: tzinfo) -> None:
    for text in _log():
        line = read(text, zone) or read_departure(text, zone)
        if line is not None:
            logs.add(line)


def _snapshot(record: GroupRecord, row: Json | None, at_ms: int) -> Snapshot:
    """Return what DescribeGroups shows: of a rebalancing group nothing but the members."""
    members = [
        member._replace(session_timeout_ms=0, rebalance_timeout_ms=0) for member in record.members
    ]
    state = "Stable" if members else "Empty"
    if row is not None and row["state"] in _REBALANCING:
        state = row["state"]
        members = [
            StoredMember(member[0], member[1], "", "", 0, 0, b"", b"") for member in row["members"]
        ]
    members.sort(key=lambda member: member.member_id)
    shown = record._replace(
        generation=UNKNOWN_GENERATION, leader_id=None, state_timestamp_ms=-1, members=tuple(members)
    )
    return Snapshot(at_ms, GroupKind.CLASSIC, state, shown)


def _rows(dump: str, *, polls: bool) -> list[tuple[int, Json]]:
    rows = [(row["ts"], row) for row in _lines(dump) if _is_of_lab(row)]
    if polls:
        rows += _polls()
    return sorted(rows, key=lambda row: (row[0], "p" in row[1]))


def _polls() -> Iterator[tuple[int, Json]]:
    """Yield the answers; those of ListGroups are recorded only if they differ from the last."""
    last: Json | None = None
    for row in _lines("poll"):
        if "err" in row:
            continue
        if row["g"] == "_all":
            if last is not None:
                yield from ((at_ms, last) for at_ms in range(last["at"], row["at"], _POLL_MS))
            last = row
        yield row["at"], row


def _is_of_lab(row: Json) -> bool:
    group = row["k"].get("group") or row["k"].get("GroupId") or "zz"
    return not group.startswith("zz") and not row["n"].startswith("Share")


def _lines(name: str) -> Iterator[Json]:
    with gzip.open(LAB / f"{name}.jsonl.gz", "rt") as file:
        yield from map(json.loads, file)


# What happened, by the broker's log.


@cache
def departures() -> dict[tuple[str, str], list[tuple[int, str]]]:
    """Return when and how members went, by group and member id."""
    gone: dict[tuple[str, str], list[tuple[int, str]]] = defaultdict(list)
    for text in _log():
        match = _CONSUMER_FATE.match(text)
        if match is not None:
            at = datetime.strptime(match[1], "%Y-%m-%d %H:%M:%S,%f").replace(tzinfo=UTC)
            kind = "left" if match[4].startswith("left") else "session_expired"
            gone[match[2], match[3]].append((round(at.timestamp() * 1000), kind))
        line = read(text, UTC)
        if line is None:
            continue
        match line.fact:
            case Left():
                kind = departure(line.fact.text).removeprefix("member_")
                gone[line.fact.group, line.fact.member.member_id].append((line.at_ms, kind))
            case Failed():
                key = line.fact.group, line.fact.member.member_id
                gone[key].append((line.at_ms, "session_expired"))
            case NotJoined():
                for member_id in line.fact.member_ids:
                    gone[line.fact.group, member_id].append((line.at_ms, "rebalance_timeout"))
    return gone


def how_it_went(group: str, member_id: str, at_ms: int) -> str | None:
    """Return how a member went at about this time; None if the log does not say."""
    times = departures().get((group, member_id), ())
    near = [(abs(time_ms - at_ms), kind) for time_ms, kind in times]
    distance_ms, kind = min(near, default=(_NEAR_MS, None))
    return kind if distance_ms < _NEAR_MS else None


@cache
def causes() -> dict[tuple[str, int], str]:
    """Return what began the rebalances of classic groups, by group and the generation before."""
    return {key: parse_reason(reason).kind for key, reason in reasons().items()}


@cache
def reasons() -> dict[tuple[str, int], str]:
    """Return the same in the words of the broker, with the ids of members."""
    found: dict[tuple[str, int], str] = {}
    for text in _log():
        line = read(text, UTC)
        if line is not None and isinstance(line.fact, Preparing) and line.fact.reason is not None:
            found.setdefault((line.fact.group, line.fact.generation), line.fact.reason)
    return found


@cache
def rebalance_starts() -> set[tuple[str, str, str | None]]:
    """Return what began the rebalances of classic groups: group, cause and member id."""
    starts = set()
    for text in _log():
        line = read(text, UTC)
        if line is not None and isinstance(line.fact, Preparing):
            cause = parse_reason(line.fact.reason)
            starts.add((line.fact.group, cause.kind, cause.member_id))
    return starts


@cache
def _log() -> Sequence[str]:
    with gzip.open(LAB / "kafka.log.gz", "rt") as file:
        return file.read().splitlines()


# From decoded JSON to records.


def _record(row: Json) -> DurableRecord:
    key, value = row["k"], row["v"]
    match row["n"]:
        case "OffsetCommit" if value is None:
            return OffsetTombstone(key["group"], key["topic"], key["partition"])
        case "OffsetCommit":
            topic_id = UUID(value["topicId"]).bytes
            committed = CommittedOffset(value["offset"], 0, "", 0, topic_id=topic_id)
            return OffsetRecord(key["group"], key["topic"], key["partition"], committed)
        case "GroupMetadata" if value is None:
            return GroupTombstone(key["group"])
        case "GroupMetadata":
            return GroupRecord(
                key["group"],
                value["protocolType"] or None,
                value["generation"],
                value["protocol"],
                value["leader"],
                value["currentStateTimestamp"],
                tuple(map(_member, value["members"])),
            )
    return _consumer_record(row["n"].removeprefix("ConsumerGroup"), key, value)


def _member(member: Json) -> StoredMember:
    return StoredMember(
        member["memberId"],
        member["groupInstanceId"],
        member["clientId"],
        member["clientHost"],
        member["sessionTimeout"],
        member["rebalanceTimeout"],
        _subscription(member["subscription"]),
        _assignment(member["assignment"]),
    )


def _subscription(data: Json | None) -> bytes:
    if data is None:
        return b""
    user_data = data["userdata"]
    subscription = ConsumerProtocolSubscription(
        topics=data["topics"],
        user_data=None if user_data is None else bytes.fromhex(user_data),
        owned_partitions=_partitions(data.get("owned", {})),
        generation_id=data.get("gen", -1),
    )
    return encode_versioned(subscription, 3)


def _assignment(data: Json | None) -> bytes:
    if data is None:
        return b""
    assignment = ConsumerProtocolAssignment(assigned_partitions=_partitions(data))
    return encode_versioned(assignment, 0)


def _partitions(by_topic: Json) -> list[TopicPartition]:
    return [TopicPartition(topic=topic, partitions=list(of)) for topic, of in by_topic.items()]


_OF_GROUP: dict[str, Any] = {
    "Metadata": EpochTombstone,
    "TargetAssignmentMetadata": TargetEpochTombstone,
    "PartitionMetadata": OldMetadataTombstone,
}
_OF_MEMBER: dict[str, Any] = {
    "MemberMetadata": ConsumerMemberTombstone,
    "TargetAssignmentMember": TargetTombstone,
    "CurrentMemberAssignment": CurrentTombstone,
}


def _consumer_record(name: str, key: Json, value: Json | None) -> DurableRecord:
    group, member_id = key["GroupId"], key.get("MemberId", "")
    if value is None:
        tombstone: DurableRecord = (
            _OF_GROUP[name](group) if name in _OF_GROUP else _OF_MEMBER[name](group, member_id)
        )
        return tombstone
    match name:
        case "MemberMetadata":
            classic = value["ClassicMemberMetadata"]
            return ConsumerMemberRecord(
                group,
                member_id,
                value["InstanceId"],
                value["RackId"],
                value["ClientId"],
                value["ClientHost"],
                tuple(value["SubscribedTopicNames"]),
                value["SubscribedTopicRegex"],
                value["RebalanceTimeoutMs"],
                value["ServerAssignor"],
                None if classic is None else ClassicPart(0, ()),
            )
        case "Metadata":
            return EpochRecord(group, value["Epoch"], value.get("MetadataHash", 0))
        case "TargetAssignmentMetadata":
            computed_ms = value.get("AssignmentTimestamp", 0)
            return TargetEpochRecord(group, value["AssignmentEpoch"], computed_ms)
        case "TargetAssignmentMember":
            shares = {
                UUID(one["TopicId"]).bytes: one["Partitions"] for one in value["TopicPartitions"]
            }
            return TargetRecord(group, member_id, shares)
        case _:
            return CurrentRecord(
                group,
                member_id,
                value["MemberEpoch"],
                value["PreviousMemberEpoch"],
                value["State"],
                _current(value["AssignedPartitions"]),
                _current(value["PartitionsPendingRevocation"]),
            )


def _current(listed: list[Json]) -> dict[bytes, dict[int, int]]:
    return {
        UUID(one["TopicId"]).bytes: dict(
            zip(
                one["Partitions"],
                one.get("AssignmentEpochs") or [0] * len(one["Partitions"]),
                strict=True,
            )
        )
        for one in listed
    }
