"""The reason why a group rebalanced, in one sentence, and the evidence for it; also from the JSON
of a record, written by this version of the broker or another.

The text depends on the record alone, so that the broker's log, the command line and the pages
describe a rebalance in the same words, on any day. Times of day are in UTC unless the caller gives
another clock.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from kohort.formats.text import counted, duration, listed, shown, utc_time
from kohort.groups.classic.states import ClassicState
from kohort.groups.events import Certainty, JoinPhaseEnd, TriggerKind
from kohort.groups.history.json_form import from_json
from kohort.groups.history.model import (
    AvoidedRecord,
    HistoryRecord,
    LeaderChange,
    MemberFate,
    MemberTimeline,
    RebalanceOutcome,
    RebalanceRecord,
    TriggerRecord,
)
from kohort.groups.history.names import UNKNOWN_GENERATION
from kohort.groups.history.waiting_text import LONG_WAIT_MS
from kohort.groups.history.wording import (
    ClockText,
    begins_with_client_id,
    cause_text,
    causes_text,
    is_stuck,
    member_text,
    short_id,
    short_ids,
)
from kohort.groups.kinds import GroupKind
from kohort.groups.reasons import is_first_join

_CAUSES_SHOWN = 10
_MEMBERS_SHOWN = 5


PROBLEMS: Final = frozenset({TriggerKind.INSTANCE_FENCED, TriggerKind.PROTOCOL_REFUSED})
"""Causes of no rebalance that need somebody's attention."""


def sentence(record: HistoryRecord, clock_text: ClockText = utc_time) -> str:
    """Return one line, without a full stop and without the group's name."""
    if isinstance(record, AvoidedRecord) and record.trigger.kind in PROBLEMS:
        return f"had a problem at {clock_text(record.at_ms)}: {cause_text(record.trigger)}"
    if isinstance(record, AvoidedRecord):
        return (
            f"did not rebalance at {clock_text(record.at_ms)},{_stays(record)} "
            f"although {cause_text(record.trigger)}"
        )
    cause = _causes(record)
    parts = [f"{_beginning(record, clock_text)} because {cause}"]
    parts += _effects(record)
    return "; ".join(parts)


def _causes(record: RebalanceRecord) -> str:
    return causes_text(
        record.trigger,
        record.further_causes,
        record.protocol_type,
        _first_half(record),
        was_last=record.outcome is RebalanceOutcome.EMPTY and record.members_before == 1,
    )


def _first_half(record: RebalanceRecord) -> int | None:
    """Return the rebalance that revoked what this one assigns. A member that joins again before it
    has its assignment supersedes a rebalance instead.
    """
    is_superseding = record.previous_state == ClassicState.COMPLETING_REBALANCE.value
    return None if is_superseding else record.follows


def _beginning(record: RebalanceRecord, clock_text: ClockText) -> str:
    at = clock_text(record.started_at_ms)
    if record.restart_ms is not None:
        at += f", {duration(record.restart_ms)} after the broker's restart"
    match record.outcome:
        case RebalanceOutcome.RUNNING:
            return f"has been rebalancing since {at},{_after(record)}"
        case RebalanceOutcome.STABLE | RebalanceOutcome.EMPTY:
            return f"rebalanced at {at}{_generations(record)}"
        case RebalanceOutcome.UNFINISHED:
            return f"began to rebalance at {at},{_after(record)}"
        case RebalanceOutcome.SUPERSEDED if _is_of_consumers(record):
            # Not in vain: members of a consumer group continue with what they own by now.
            return f"began to rebalance at {at},{_after(record)}"
        case RebalanceOutcome.SUPERSEDED | RebalanceOutcome.STORE_FAILED:
            return f"began a rebalance without a result at {at},{_after(record)}"


def _is_of_consumers(record: RebalanceRecord) -> bool:
    return record.group_type == GroupKind.CONSUMER.value


def _after(record: RebalanceRecord) -> str:
    number = record.previous_generation
    return "" if number == UNKNOWN_GENERATION else f" after generation {number},"


def _generations(record: RebalanceRecord) -> str:
    if record.previous_generation == UNKNOWN_GENERATION:
        return ""
    return f", generation {record.previous_generation} -> {record.generation},"


def _stays(record: AvoidedRecord) -> str:
    number = record.generation
    return "" if number == UNKNOWN_GENERATION else f" generation {number} stays,"


def _effects(record: RebalanceRecord) -> Iterator[str]:
    yield from _outcome(record)
    for cause in record.further_causes:
        if cause.kind in PROBLEMS:
            yield cause_text(cause)
    yield from _costs(record)
    if record.pending_transactions:
        holders = counted(record.pending_transactions, "open transaction")
        yield f"{holders} held positions of it when it began"
    if record.fenced_commits:
        commits = counted(record.fenced_commits, "transactional commit")
        one = record.fenced_commits == 1
        of = "a former member or generation was" if one else "former members or generations were"
        yield f"{commits} of {of} refused"


def _outcome(record: RebalanceRecord) -> Iterator[str]:
    match record.outcome:
        case RebalanceOutcome.EMPTY:
            yield "the group is empty"
        case RebalanceOutcome.SUPERSEDED:
            after = duration(record.timeline.finished_ms or 0)
            yield f"another rebalance took over after {after}"
        case RebalanceOutcome.STORE_FAILED:
            yield f"the assignment could not be stored ({record.error})"
        case RebalanceOutcome.UNFINISHED:
            yield "the broker stopped before it ended"
        case RebalanceOutcome.STABLE:
            yield from _unread(record)
        case RebalanceOutcome.RUNNING:
            pass


def _costs(record: RebalanceRecord) -> Iterator[str]:
    stopped = record.stopped
    if stopped.member_count:
        up_to = "up to " if stopped.member_count > 1 else ""
        who = counted(stopped.member_count, "member")
        stop = f"for {up_to}{duration(stopped.longest_ms)}"
        is_consumers = _is_of_consumers(record)
        verb = "got partitions that had no owner" if is_consumers else "stopped"
        yield f"{who} {verb} {stop}"
    waited = _waited(record)
    if waited:
        is_running = record.outcome is RebalanceOutcome.RUNNING
        yield f"it has been waiting {waited}" if is_running else f"it waited {waited}"
    if _moved_nothing(record):
        yield "no partition moved"


def _unread(record: RebalanceRecord) -> Iterator[str]:
    unread = record.unread
    if not unread.longest_ms:
        return
    is_one = unread.partition_count == 1
    since_left = is_stuck(record.trigger) and record.trigger.unfetched_ms is None
    # Without a Fetch, or while the broker was away, the last sign of life was earlier.
    least = "at least " if since_left or record.restart_ms is not None else ""
    for_ms = f"for {least or ('' if is_one else 'up to ')}{duration(unread.longest_ms)}"
    if unread.member_count == 1 and record.trigger.kind in _ENDS:
        partitions = "partition" if is_one else f"{unread.partition_count} partitions"
        yield f"its {partitions} had no reader for {least}{duration(unread.longest_ms)}"
    else:
        partitions = counted(unread.partition_count, "partition")
        members = counted(unread.member_count, "member")
        yield f"{partitions} of {members} that went had no reader {for_ms}"


def _listed(record: RebalanceRecord, member_ids: Sequence[str]) -> str:
    """List member ids; in a consumer group with client ids, because its member ids are random."""
    if not _is_of_consumers(record):
        return short_ids(member_ids)
    clients = {member.member_id: member.client_id for member in record.members}
    names = {member_id: clients.get(member_id) for member_id in member_ids}
    return listed(
        [
            f"{short_id(key)} (client.id {name})"
            if name and not begins_with_client_id(key, name)
            else short_id(key)
            for key, name in names.items()
        ]
    )


def _waited(record: RebalanceRecord) -> str:
    waited = record.waited_for
    if waited.phase == "join" and not waited.member_ids:
        what = "for a member that got an id and did not use it"
    else:
        what = _WAITS.get(waited.phase or "", "")
    if not what:
        return ""
    noun = "member" if len(waited.member_ids) == 1 else "members"
    ids = _listed(record, waited.member_ids)
    text = what.format(members=f"{noun} {ids}", leader=ids)
    if waited.phase == "join" and _is_of_consumers(record):
        text += " to join again"
    end = _end_of_wait(record) if waited.phase == "join" and waited.member_ids else ""
    return f"{duration(waited.ms)} {text}{end}{_certainty_of_wait(record)}"


def _certainty_of_wait(record: RebalanceRecord) -> str:
    """Return a mark for a wait that is not certain, because a watcher concluded it from the fates
    of the members.
    """
    awaited = set(record.waited_for.member_ids)
    fates = {member.certainty for member in record.members if member.member_id in awaited}
    return "" if fates <= {Certainty.CERTAIN} else f" ({_least(fates).value})"


def _least(certainties: Collection[Certainty]) -> Certainty:
    return max(certainties, key=list(Certainty).index)


_WAITS: Final = {
    "join": "for {members}",
    "initial_delay": "for more members, as the first rebalance of a group does",
    "sync": "for the assignment by its leader {leader}",
    "store": "for the assignment to be stored",
    "assign": "for the end of the assignment interval",
    "revoke": "for {members} to give up partitions",
    "tell": "for the next heartbeat of {members}",
    "give": "for {members} to get partitions that were free",
}


_ENDS: Final = {
    TriggerKind.MEMBER_LEFT: "left",
    TriggerKind.REMOVED_BY_ADMIN: "was removed by an administrator",
    TriggerKind.SESSION_EXPIRED: "missed its session timeout",
    TriggerKind.NEW_MEMBER_EXPIRED: "was removed because its first join took too long",
}


def _end_of_wait(record: RebalanceRecord) -> str:
    """Describe what ended, or will end, the wait for members; "" if nothing does."""
    end = record.timeline.join_phase_end
    if end != JoinPhaseEnd.ALL_JOINED.value:
        return _timeout_of_wait(record, is_over=end == JoinPhaseEnd.TIMEOUT.value)
    awaited = set(record.waited_for.member_ids)
    for cause in record.further_causes:
        went = {cause.member_id, *cause.removed}
        if cause.kind in _ENDS and went & awaited:
            end = _ENDS[cause.kind]
            if cause.kind is TriggerKind.MEMBER_LEFT and _is_wait_for_stuck(record):
                end = f"{_STUCK}, then left"
            if cause.session_timeout_ms is not None:
                end += f" of {duration(cause.session_timeout_ms)}"
            return f", which {end}" if awaited <= went else f", of which {_one(cause)} {end}"
    return ""


def _timeout_of_wait(record: RebalanceRecord, *, is_over: bool) -> str:
    """Describe the timeout: the longest that any member joined so far has requested."""
    asked = [member.rebalance_timeout_ms or 0 for member in record.members]
    longest_ms = max(asked, default=0)
    stuck = f", which {_STUCK}" if _is_wait_for_stuck(record) else ""
    if is_over:
        of = f" of {duration(longest_ms)}" if longest_ms else ""
        return f"{stuck}, until the rebalance timeout{of}"
    if record.outcome is RebalanceOutcome.RUNNING and longest_ms:
        return f"{stuck}, and may wait for {duration(longest_ms)}, the rebalance timeout"
    return stuck if record.outcome is RebalanceOutcome.RUNNING else ""


_STUCK: Final = "learned of it but did not rejoin (it did not poll, or its listener was busy)"


def _is_wait_for_stuck(record: RebalanceRecord) -> bool:
    return record.waited_for.were_told and record.waited_for.ms >= LONG_WAIT_MS


def _one(cause: TriggerRecord) -> str:
    return short_id(cause.member_id or "one")


def _moved_nothing(record: RebalanceRecord) -> bool:
    partitions = record.partitions
    is_over = record.outcome is RebalanceOutcome.STABLE
    changed = partitions.gained or partitions.given_up
    return is_over and partitions.known and bool(partitions.kept) and not changed


def evidence(
    record: HistoryRecord, clock_text: ClockText = utc_time, *, is_watched: bool = False
) -> list[str]:
    """Return the evidence for the sentence and other known facts, one per line.

    Args:
        is_watched: whether the record is a conclusion from a cluster's __consumer_offsets.
    """
    if isinstance(record, AvoidedRecord):
        return [*_trigger_lines(record, is_watched=is_watched)]
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


def _cause_lines(record: RebalanceRecord, *, is_watched: bool) -> Iterator[str]:
    # A watcher may not know when the rebalance began.
    is_timed = record.timeline.finished_ms is not None or not is_watched
    for cause in record.further_causes[:_CAUSES_SHOWN]:
        after = f", after {duration(cause.after_ms or 0)}" if is_timed else ""
        yield f"also{after}: {cause_text(cause, record.protocol_type)}"
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
            mark = "" if certainty is Certainty.CERTAIN else f" ({certainty.value})"
            yield f"{fate.value.replace('_', ' ')}{mark}: {_listed(record, ids)}"


def _timeout_lines(record: RebalanceRecord) -> Iterator[str]:
    """Yield the timeouts that members requested in their joins, with ids if they differ."""
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
    is_consumers = _is_of_consumers(record)
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
    if is_consumer:
        return f"{who} got partitions that had no owner for {duration(member.stopped_ms or 0)}"
    verb = "waited" if member.fate is MemberFate.NEW else "stopped"
    line = f"{who} {verb} {duration(member.stopped_ms or 0)}"
    if member.told_ms is not None and member.join_received_ms is not None:
        took_ms = member.join_received_ms - member.told_ms
        line += f", and took {duration(max(took_ms, 0))} to join after it was told"
    return line


def _link_lines(record: RebalanceRecord) -> Iterator[str]:
    if record.follows is not None:
        yield f"it follows from rebalance {record.follows}"
    if record.superseded_by is not None:
        yield f"rebalance {record.superseded_by} took over"


def record_sentence(record: Mapping[str, Any], clock_text: ClockText) -> str:
    """Return the reason in one sentence without a full stop. For a record of a newer broker with
    causes unknown here: that broker's own sentence, or its name of the cause.
    """
    try:
        return sentence(from_json(record), clock_text)
    except ValueError:
        said = record.get("sentence")
        if said:
            return shown(str(said))
        trigger = record.get("trigger")
        kind = trigger.get("kind") if isinstance(trigger, Mapping) else None
        return f"rebalanced because of {shown(str(kind))}, of which no more is known here"


def record_cause(record: Mapping[str, Any]) -> str:
    """Return the kind of the cause, and if it is not certain how certain it is."""
    trigger = record["trigger"]
    certainty = trigger.get("certainty") or Certainty.CERTAIN.value
    mark = "" if certainty == Certainty.CERTAIN.value else f" ({certainty})"
    return f"{shown(str(trigger['kind']))}{shown(mark)}"


def record_evidence(record: Mapping[str, Any], clock_text: ClockText) -> list[str]:
    """Return the evidence for the sentence, one per line."""
    try:
        lines = evidence(from_json(record), clock_text, is_watched=bool(record.get("observed")))
        return [*lines, *_bounds(record, clock_text)]
    except ValueError as error:
        return [f"the broker is of another version than this command ({error}); see --json"]


def _bounds(record: Mapping[str, Any], clock_text: ClockText) -> Iterator[str]:
    """Describe when a rebalance began, if a watcher does not know it exactly."""
    between = record.get("started_between_ms")
    if between:
        earliest, latest = map(clock_text, between)
        yield f"when it began is not known: between {earliest} and {latest}"
