"""Describes in one sentence why a group rebalanced, from a history record or from its JSON, which
another version of the broker may have written. Module `evidence` lists the supporting facts.

The text depends on the record alone, so that the broker's log, the command line and the pages
describe a rebalance in the same words. Times are in UTC unless the caller gives another clock.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from kohort.formats.text import counted, duration, listed, shown, utc_time
from kohort.groups.classic.states import ClassicState
from kohort.groups.events import Certainty, JoinPhaseEnd, TriggerKind
from kohort.groups.history.json_form import from_json
from kohort.groups.history.model import (
    AssignedRecord,
    AvoidedRecord,
    HistoryRecord,
    MemberFate,
    RebalanceOutcome,
    RebalanceRecord,
)
from kohort.groups.history.names import COOPERATIVE, UNKNOWN_GENERATION
from kohort.groups.history.share_record import assigned_sentence
from kohort.groups.history.waiting_text import LONG_WAIT_MS
from kohort.groups.history.wording import (
    ClockText,
    cause_text,
    causes_text,
    is_stuck,
    short_ids,
    short_name,
)
from kohort.groups.kinds import GroupKind

PROBLEMS: Final = frozenset(
    {TriggerKind.INSTANCE_FENCED, TriggerKind.PROTOCOL_REFUSED, TriggerKind.MEMBER_REFUSED}
)
"""Causes that begin no rebalance, but need an operator's attention."""


def sentence(record: HistoryRecord, clock_text: ClockText = utc_time) -> str:
    """Return the sentence as one line, without a full stop and without the group's name."""
    if isinstance(record, AssignedRecord):
        return assigned_sentence(record, clock_text)
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
    """Return `record.follows`, the number of the rebalance that revoked partitions assigned in
    this one; None if `follows` is one that this one superseded in CompletingRebalance.
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
        case RebalanceOutcome.SUPERSEDED if is_of_consumers(record):
            # There was a result: members of a consumer group keep the partitions that they got.
            return f"began to rebalance at {at},{_after(record)}"
        case RebalanceOutcome.SUPERSEDED | RebalanceOutcome.STORE_FAILED:
            return f"began a rebalance without a result at {at},{_after(record)}"


def is_of_consumers(record: RebalanceRecord) -> bool:
    return record.group_type == GroupKind.CONSUMER.value


def _after(record: RebalanceRecord) -> str:
    number = record.previous_generation
    return "" if number == UNKNOWN_GENERATION else f" after {_counter(record)} {number},"


def _generations(record: RebalanceRecord) -> str:
    if record.previous_generation == UNKNOWN_GENERATION:
        return ""
    numbers = f"{record.previous_generation} -> {record.generation}"
    return f", {_counter(record)} {numbers},"


def _counter(record: RebalanceRecord) -> str:
    """Return Kafka's word for `record.generation`."""
    return "epoch" if is_of_consumers(record) else "generation"


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
        verb = "got partitions that had no owner" if _read_on(record) else "stopped"
        yield f"{who} {verb} {stop}"
    waited = _waited(record)
    if waited:
        is_running = record.outcome is RebalanceOutcome.RUNNING
        yield f"it has been waiting {waited}" if is_running else f"it waited {waited}"
    if _moved_nothing(record):
        yield "no partition moved"


def _read_on(record: RebalanceRecord) -> bool:
    """Whether the members counted as stopped kept reading, and waited only for new partitions."""
    if is_of_consumers(record):
        return True
    stopped = [m for m in record.members if m.stopped_ms and m.fate is not MemberFate.NEW]
    are_all_listed = len(stopped) == record.stopped.member_count
    return are_all_listed and all(member.mode == COOPERATIVE for member in stopped)


def _unread(record: RebalanceRecord) -> Iterator[str]:
    unread = record.unread
    if not unread.longest_ms:
        return
    is_one = unread.partition_count == 1
    since_left = is_stuck(record.trigger) and record.trigger.unfetched_ms is None
    # If the time of the last Fetch is unknown, or the broker was restarted, the partitions had no
    # reader for longer than was measured.
    least = "at least " if since_left or record.restart_ms is not None else ""
    for_ms = f"for {least or ('' if is_one else 'up to ')}{duration(unread.longest_ms)}"
    if unread.member_count == 1 and record.trigger.kind in _ENDS:
        partitions = "partition" if is_one else f"{unread.partition_count} partitions"
        for_ms = f"for {least}{duration(unread.longest_ms)}"
        if since_left:
            # The longer part of the time, of which only the reason is known.
            for_ms = f"while it did not poll and for {duration(unread.longest_ms)} after it left"
        yield f"its {partitions} had no reader {for_ms}"
    else:
        partitions = counted(unread.partition_count, "partition")
        members = counted(unread.member_count, "member")
        yield f"{partitions} of {members} that went had no reader {for_ms}"


def listed_members(record: RebalanceRecord, member_ids: Sequence[str]) -> str:
    """List member ids; add client ids in a consumer group, because its member ids are random."""
    if not is_of_consumers(record):
        return short_ids(member_ids)
    clients = {member.member_id: member.client_id for member in record.members}
    return listed([short_name(member_id, clients.get(member_id)) for member_id in member_ids])


def _waited(record: RebalanceRecord) -> str:
    waited = record.waited_for
    if waited.phase == "join" and not waited.member_ids:
        what = "for a member that got an id and did not use it"
    else:
        what = _WAITS.get(waited.phase or "", "")
    if not what:
        return ""
    noun = "member" if len(waited.member_ids) == 1 else "members"
    ids = listed_members(record, waited.member_ids)
    text = what.format(members=f"{noun} {ids}", leader=ids)
    if waited.phase == "join" and is_of_consumers(record):
        text += " to join again"
    since = ", since the last join," if _counts_from_join(record) else ""
    end = _end_of_wait(record) if waited.phase == "join" and waited.member_ids else ""
    return f"{duration(waited.ms)}{since} {text}{end}{_certainty_of_wait(record)}"


def _counts_from_join(record: RebalanceRecord) -> bool:
    """Whether the current wait is measured from the last join. The sentence then says so, because
    `waiting_text` measures the same wait from the start of the rebalance.
    """
    is_running = record.outcome is RebalanceOutcome.RUNNING
    if not is_running or record.waited_for.phase != "join" or is_of_consumers(record):
        return False
    return any(member.join_received_ms for member in record.members)


def _certainty_of_wait(record: RebalanceRecord) -> str:
    """Return the lowest certainty with which a watcher inferred the awaited members' fates, such as
    " (likely)"; "" if all are certain.
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
    "give": "for the next heartbeat of {members}, to assign free partitions",
}


_ENDS: Final = {
    TriggerKind.MEMBER_LEFT: "left",
    TriggerKind.REMOVED_BY_ADMIN: "was removed by an administrator",
    TriggerKind.SESSION_EXPIRED: "missed its session timeout",
    TriggerKind.NEW_MEMBER_EXPIRED: "was removed because its first join took too long",
}

_ENDS_OF_SEVERAL: Final = {
    TriggerKind.MEMBER_LEFT: "left",
    TriggerKind.REMOVED_BY_ADMIN: "were removed by an administrator",
    TriggerKind.SESSION_EXPIRED: "missed their session timeout",
    TriggerKind.NEW_MEMBER_EXPIRED: "were removed because their first join took too long",
}


def _end_of_wait(record: RebalanceRecord) -> str:
    """Describe how the wait for members ended, or when it will; "" if that is unknown."""
    end = record.timeline.join_phase_end
    if end != JoinPhaseEnd.ALL_JOINED.value:
        return _timeout_of_wait(record, is_over=end == JoinPhaseEnd.TIMEOUT.value)
    awaited = record.waited_for.member_ids
    gone: dict[TriggerKind, set[str | None]] = {}
    for cause in record.further_causes:
        if cause.kind in _ENDS:
            gone.setdefault(cause.kind, set()).update((cause.member_id, *cause.removed))
    for cause in record.further_causes:
        went = [member_id for member_id in awaited if member_id in gone.get(cause.kind, ())]
        if went:
            end = (_ENDS if len(went) == 1 else _ENDS_OF_SEVERAL)[cause.kind]
            if cause.kind is TriggerKind.MEMBER_LEFT and _is_wait_for_stuck(record):
                end = f"{_STUCK}, then left"
            if cause.session_timeout_ms is not None:
                end += f" of {duration(cause.session_timeout_ms)}"
            is_all = len(went) == len(awaited)
            return f", which {end}" if is_all else f", of which {short_ids(went)} {end}"
    return ""


def _timeout_of_wait(record: RebalanceRecord, *, is_over: bool) -> str:
    """Describe the timeout: the longest rebalance timeout of the members that have joined."""
    asked = [member.rebalance_timeout_ms or 0 for member in record.members]
    longest_ms = max(asked, default=0)
    stuck = f", which {_STUCK}" if _is_wait_for_stuck(record) else ""
    if is_over:
        of = f" of {duration(longest_ms)}" if longest_ms else ""
        return f"{stuck}, until the rebalance timeout{of}"
    if record.outcome is RebalanceOutcome.RUNNING and longest_ms:
        return f"{stuck}, and may wait for {duration(longest_ms)}, the rebalance timeout"
    return stuck if record.outcome is RebalanceOutcome.RUNNING else ""


_STUCK: Final = (
    "learned of it but did not rejoin (it did not poll, its listener was busy, or it was finishing"
    " records of partitions that it gave up)"
)


def _is_wait_for_stuck(record: RebalanceRecord) -> bool:
    return record.waited_for.were_told and record.waited_for.ms >= LONG_WAIT_MS


def _moved_nothing(record: RebalanceRecord) -> bool:
    partitions = record.partitions
    is_over = record.outcome is RebalanceOutcome.STABLE
    changed = partitions.gained or partitions.given_up
    return is_over and partitions.known and bool(partitions.kept) and not changed


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
    """Return the kind of the cause; if the cause is not certain, also how certain it is."""
    trigger = record["trigger"]
    certainty = trigger.get("certainty") or Certainty.CERTAIN.value
    mark = "" if certainty == Certainty.CERTAIN.value else f" ({certainty})"
    return f"{shown(str(trigger['kind']))}{shown(mark)}"
