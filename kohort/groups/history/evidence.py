"""Lists the facts that support a record's one-sentence explanation (see `sentence`)."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

from kohort.formats.text import counted, duration, listed, utc_time
from kohort.groups.events import Certainty
from kohort.groups.history.json_form import from_json
from kohort.groups.history.model import (
    AssignedRecord,
    AvoidedRecord,
    HistoryRecord,
    LeaderChange,
    MemberChange,
    MemberFate,
    MemberTimeline,
    RebalanceOutcome,
    RebalanceRecord,
)
from kohort.groups.history.names import COOPERATIVE
from kohort.groups.history.sentence import is_of_consumers, listed_members
from kohort.groups.history.wording import ClockText, cause_text, member_text, short_id, short_ids
from kohort.groups.reasons import is_first_join

_CAUSES_SHOWN: Final = 10
_MEMBERS_SHOWN: Final = 5
_CHANGES_SHOWN: Final = 20


def evidence(
    record: HistoryRecord, clock_text: ClockText = utc_time, *, is_watched: bool = False
) -> list[str]:
    """Return the facts that support the record's summary sentence, and other facts, one per line.

    Args:
        is_watched: whether `kohort watch` inferred the record, instead of a broker recording it.
    """
    if isinstance(record, AvoidedRecord):
        return [*_trigger_lines(record, is_watched=is_watched)]
    if isinstance(record, AssignedRecord):
        return [*_assigned_lines(record, is_watched=is_watched)]
    lines = [
        *_trigger_lines(record, is_watched=is_watched),
        *_cause_lines(record, is_watched=is_watched),
    ]
    lines += _phase_lines(record)
    lines += [*_member_lines(record), *_timeout_lines(record)]
    lines += [*_partition_lines(record), *_slowest_lines(record)]
    lines += _link_lines(record)
    started = clock_text(record.started_at_ms)
    lines.append(f"rebalance {record.sequence} of the group, began {started}")
    return lines


def _trigger_lines(record: HistoryRecord, *, is_watched: bool) -> Iterator[str]:
    trigger = record.trigger
    line = f"the broker saw: {trigger.kind.value}"
    if trigger.certainty is not Certainty.CERTAIN:
        line = f"its traces suggest: {trigger.kind.value}"
    elif is_watched:
        line = f"its traces prove: {trigger.kind.value}"
    yield line
    if trigger.reason_source == "tag":
        yield f"the client stated: {trigger.reason or trigger.reason_number}"
    elif trigger.reason_source == "text" and not is_first_join(trigger.reason_text or ""):
        yield f"the client's text suggests: {trigger.reason}"
    if trigger.was_leader:
        yield "it led the group"


def _assigned_lines(record: AssignedRecord, *, is_watched: bool) -> Iterator[str]:
    yield from _trigger_lines(record, is_watched=is_watched)
    yield from _further_lines(record, is_timed=True)
    yield f"{counted(record.members_before, 'member')} before, {record.members_after} after"
    for member in record.members[:_CHANGES_SHOWN]:
        yield _change_line(member)
    left = len(record.members) - _CHANGES_SHOWN + record.members_dropped
    if left > 0:
        yield f"and {counted(left, 'further member')}"
    partitions = counted(record.partition_count, "partition")
    yield f"assignment {record.sequence} of the group, of {partitions}"


def _change_line(member: MemberChange) -> str:
    who = member_text(member.member_id, None, member.host, member.client_id)
    partitions = member.partitions
    is_here = member.fate in {MemberFate.KEPT, MemberFate.NEW}
    lists = (
        ("got", partitions.gained, partitions.gained_count),
        ("gave up" if is_here else "had", partitions.given_up, partitions.given_up_count),
    )
    did = [f"{verb} {listed([*names], count)}" for verb, names, count in lists if count]
    fate = _fate_text(member.fate, member.certainty)
    return f"{fate}: {who}{', which ' if did else ''}{' and '.join(did)}"


def _cause_lines(record: RebalanceRecord, *, is_watched: bool) -> Iterator[str]:
    # A watcher may not know when the rebalance began.
    is_timed = record.timeline.finished_ms is not None or not is_watched
    return _further_lines(record, is_timed=is_timed)


def _further_lines(record: RebalanceRecord | AssignedRecord, *, is_timed: bool) -> Iterator[str]:
    protocol_type = record.protocol_type if isinstance(record, RebalanceRecord) else None
    for cause in record.further_causes[:_CAUSES_SHOWN]:
        after = f", after {duration(cause.after_ms or 0)}" if is_timed else ""
        yield f"also{after}: {cause_text(cause, protocol_type)}"
    left = len(record.further_causes) - _CAUSES_SHOWN + record.further_causes_dropped
    if left > 0:
        yield f"and {counted(left, 'further cause')}"


def _phase_lines(record: RebalanceRecord) -> Iterator[str]:
    times = record.timeline
    if times.extensions_ms:
        times_word = counted(len(times.extensions_ms), "time")
        yield f"the initial delay was extended {times_word}"
    for stalled_ms in times.stalled_ms[:1]:
        yield f"after {duration(stalled_ms)} none of its static members had joined; it waited on"
    if times.assigned_ms is not None and times.durable_ms is not None:
        by = _ASSIGNED_BY.get(times.assigned_by or "", "")
        yield f"the broker assigned after {duration(times.assigned_ms)}{by}"
        yield f"storing it took {duration(times.durable_ms - times.assigned_ms)}"
        if record.outcome is RebalanceOutcome.STABLE and times.finished_ms is not None:
            took = duration(times.finished_ms - times.durable_ms)
            yield f"the last member had its partitions {took} later"
    if times.join_phase_ms is not None:
        end = (times.join_phase_end or "").replace("_", " ")
        ended = f" (ended by: {end})" if end else ""
        yield f"joins took {duration(times.join_phase_ms)}{ended}"
    if times.join_phase_ms is not None and times.leader_synced_ms is not None:
        took = duration(times.leader_synced_ms - times.join_phase_ms)
        yield f"the leader {short_id(record.leader or '')} took {took} for the assignment"
        if times.durable_ms is not None:
            yield f"storing it took {duration(times.durable_ms - times.leader_synced_ms)}"
    if record.leader_change is not None:
        yield _LEADER_WORDS[record.leader_change].format(short_id(record.leader or ""))


_ASSIGNED_BY: Final = {
    "interval": ", at the end of the assignment interval",
    "heartbeat": ", with the first heartbeat after the assignment interval",
}

_LEADER_WORDS = {
    LeaderChange.FIRST: "{} leads, as the first to join",
    LeaderChange.LEFT: "{} leads now, because the leader before it is gone",
    LeaderChange.REPLACED: "the leader came back as {}",
    LeaderChange.ABSENT: "{} leads now, because the leader before it had not joined in time",
}


def _member_lines(record: RebalanceRecord) -> Iterator[str]:
    yield f"{counted(record.members_before, 'member')} before, {record.members_after} after"
    by_fate: dict[tuple[MemberFate, Certainty], list[str]] = {}
    for member in record.members:
        by_fate.setdefault((member.fate, member.certainty), []).append(member.member_id)
    for (fate, certainty), ids in by_fate.items():
        if fate is not MemberFate.KEPT:
            yield f"{_fate_text(fate, certainty)}: {listed_members(record, ids)}"


def _fate_text(fate: MemberFate, certainty: Certainty) -> str:
    mark = "" if certainty is Certainty.CERTAIN else f" ({certainty.value})"
    return f"{fate.value.replace('_', ' ')}{mark}"


def _timeout_lines(record: RebalanceRecord) -> Iterator[str]:
    """Yield the timeouts in the members' joins, with member ids if the timeouts differ."""
    by_timeouts: dict[str, list[str]] = {}
    for member in record.members:
        asked = [
            f"{name} timeout {duration(timeout_ms)}"
            for name, timeout_ms in (
                ("session", member.session_timeout_ms),
                ("rebalance", member.rebalance_timeout_ms),
            )
            if timeout_ms is not None
        ]
        if asked:
            by_timeouts.setdefault(", ".join(asked), []).append(member.member_id)
    for timeouts, ids in islice(by_timeouts.items(), _MEMBERS_SHOWN):
        yield timeouts if len(by_timeouts) == 1 else f"{timeouts}: {short_ids(ids)}"
    if len(by_timeouts) > _MEMBERS_SHOWN:
        yield f"and {len(by_timeouts) - _MEMBERS_SHOWN} other pairs of timeouts"


def _partition_lines(record: RebalanceRecord) -> Iterator[str]:
    partitions = record.partitions
    if partitions.known:
        yield (
            f"partitions: {partitions.kept} kept, {partitions.moved} moved, "
            f"{partitions.gained} gained, {partitions.given_up} given up"
        )


def _slowest_lines(record: RebalanceRecord) -> Iterator[str]:
    stopped = [member for member in record.members if member.stopped_ms]
    stopped.sort(key=lambda member: -(member.stopped_ms or 0))
    is_consumers = is_of_consumers(record)
    for member in islice(stopped, _MEMBERS_SHOWN):
        yield _stop_line(member, is_consumer=is_consumers)
    if record.stopped.open_count:
        who = counted(record.stopped.open_count, "member")
        if is_consumers:
            yield f"partitions that {who} gave up had no new owner yet"
        else:
            yield f"{who} had no assignment yet"


def _stop_line(member: MemberTimeline, *, is_consumer: bool) -> str:
    who = member_text(member.member_id, member.instance_id, member.host, member.client_id)
    is_new = member.fate is MemberFate.NEW
    if is_consumer or (member.mode == COOPERATIVE and not is_new):
        verb = "got partitions that had no owner for"
    else:
        verb = "waited" if is_new else "stopped"
    line = f"{who} {verb} {duration(member.stopped_ms or 0)}"
    if is_consumer:
        return line
    if member.told_ms is not None and member.join_received_ms is not None:
        took_ms = member.join_received_ms - member.told_ms
        line += f", and took {duration(max(took_ms, 0))} to join after it was told"
    return line


def _link_lines(record: RebalanceRecord) -> Iterator[str]:
    if record.follows is not None:
        yield f"it follows from rebalance {record.follows}"
    if record.superseded_by is not None:
        yield f"rebalance {record.superseded_by} took over"


def record_evidence(record: Mapping[str, Any], clock_text: ClockText) -> list[str]:
    """Return `evidence` of a record in JSON; if it cannot be parsed, a line that says so."""
    try:
        lines = evidence(from_json(record), clock_text, is_watched=bool(record.get("observed")))
        return [*lines, *_bounds(record, clock_text)]
    except ValueError as error:
        return [f"the broker is of another version than this command ({error}); see --json"]


def _bounds(record: Mapping[str, Any], clock_text: ClockText) -> Iterator[str]:
    """Yield a line with the rebalance's earliest and latest start, if `kohort watch` missed it."""
    between = record.get("started_between_ms")
    if between:
        earliest, latest = map(clock_text, between)
        yield f"when it began is not known: between {earliest} and {latest}"
