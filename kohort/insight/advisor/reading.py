"""Reads a `Trace` of a group's processes from its history records (JSON).

Fields may be missing: histories from a stock Kafka broker's log contain little but triggers.
`Trace.unknown` lists the missing facts.
"""

import itertools
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median
from typing import Any, Final

from kohort.insight.advisor.heartbeat_times import (
    LOOK_MS,
    TIMERS,
    HeartbeatTimer,
    look_ms,
    look_of_timer,
    runs_on,
)
from kohort.insight.advisor.member_lifetimes import (
    Departures,
    Json,
    MemberLifetimes,
    causes_of,
    count_departures,
)
from kohort.insight.advisor.member_slots import LOST, MemberSlots, find_member_slots
from kohort.insight.advisor.recorded_setting import modes_seen, recorded_setting, settings_seen
from kohort.insight.advisor.setting import Setting
from kohort.insight.advisor.trace import (
    ANSWER_DEFAULT_MS,
    DELAY_DEFAULT_MS,
    Delays,
    Rejoin,
    Trace,
    Uncertainty,
)
from kohort.protocol.join_reason import JoinReason

REVOKED: Final = "PARTITIONS_REVOKED"
EFFECTS: Final = frozenset({REVOKED, LOST, "GROUP_REBALANCING"})
"""Reasons of joins that are responses to a rebalance, not causes."""
TOPICS: Final = "TOPIC_METADATA_CHANGE"
CHANGES: Final = frozenset({"SUBSCRIPTION_CHANGE", "UPGRADE", "ASSIGNOR_STATE_CHANGE"})
"""If a join states one of these reasons, or none, changed metadata counts as a changed subscription
or assignor. Otherwise not, because a cooperative member's metadata differs at every join."""
REJOINS: Final = frozenset(
    {
        "leader_rejoined",
        "follower_rejoined",
        "protocols_changed",
        "forced_by_reason",
        "subscription_changed",
        "topics_changed",
    }
)
FIRST_HEARTBEAT_SLACK_MS: Final = 20
"""Tolerance around the times at which a member's first heartbeat after a join can be sent."""
JOIN_TIME_OF: Final = "the join time of"
NAMES_MAX: Final = 5
REVOKES_WITHIN_MS: Final = 60_000
"""A join without a reason, this soon after an assignment that revoked partitions, counts as a
consequence of the assignment, even after another rebalance."""
PARTITIONS_EACH: Final = 3
"""Partitions assumed for each member if the history does not show them."""


def read_trace(
    group: str, records: Iterable[Json], known: Mapping[str, Any] | None = None
) -> Trace | None:
    """Return the trace of one group; None if its records contain no rebalance.

    Args:
        records: the group's records, in any order; the last one with each `sequence` is used.
        known: values of `Setting` fields that are known to have been in force.
    """
    by_sequence = {
        record.get("sequence") or 0: record
        for record in records
        if record.get("outcome") != "running" and record.get("kind") in {"rebalance", "avoided"}
    }
    ordered = [by_sequence[sequence] for sequence in sorted(by_sequence)]
    rebalances = [record for record in ordered if record["kind"] == "rebalance"]
    if not rebalances:
        return None
    lifetimes = MemberLifetimes()
    for record in ordered:
        lifetimes.add(record)
    notes: list[str] = []
    departures = count_departures(rebalances)
    seen = settings_seen(rebalances)
    recorded = recorded_setting(rebalances, seen, dict(known or {}), notes)
    begin_ms = min(_at(record) for record in ordered)
    member_slots = find_member_slots(lifetimes.by_id.values(), recorded, begin_ms)
    _note_gaps(member_slots, ordered, notes)
    _note_departures(departures, notes)
    timers = _timers(rebalances, member_slots, recorded.heartbeat_interval_ms)
    joins = [took for slot in member_slots.slots for took in slot.join.took_ms]
    if not recorded.consumer:
        _note_unknown_joins(member_slots, joins, notes)
    syncs = [took for slot in member_slots.slots for took in slot.sync.took_ms]
    revocations = [took for slot in member_slots.slots for took in slot.revoke.took_ms]
    round_trip_ms = _median(syncs, ANSWER_DEFAULT_MS)
    return Trace(
        group=group,
        slots=tuple(
            replace(slot, timer=timer)
            for slot, timer in zip(member_slots.slots, timers, strict=True)
        ),
        rejoins=tuple(_rejoins(ordered, member_slots)),
        begin_ms=begin_ms,
        end_ms=max(_at(record) for record in ordered),
        recorded=recorded,
        partition_count=_partitions(rebalances, len(member_slots.slots), notes),
        default_join_ms=_median(joins, DELAY_DEFAULT_MS),
        default_again_ms=_median_of([slot.again for slot in member_slots.slots]),
        quick_join_ms=_quick(joins),
        default_sync_ms=round_trip_ms,
        default_assign_ms=_median(
            [took for slot in member_slots.slots for took in slot.assign.took_ms], ANSWER_DEFAULT_MS
        ),
        look_ms=_look_ms(rebalances, recorded.heartbeat_interval_ms),
        revoke_ms=_median(revocations, round_trip_ms)
        if recorded.consumer
        else _revoke_ms(rebalances, round_trip_ms),
        assignor=_last_assignor(rebalances),
        rebalances=len(rebalances),
        initial_rebalances=sum(bool(record.get("initial")) for record in rebalances),
        waited_by_slot=_waited_by_slot(rebalances, member_slots),
        stopped_ms=_stopped_ms(rebalances, joins, notes),
        unknown=tuple(notes),
        doubts=(
            *([Uncertainty.FATES] if departures.are_unclear else []),
            *_doubts(member_slots, rebalances, recorded, {**seen, **(known or {})}),
        ),
    )


_ASSUMED: Final = {
    "session_timeout_ms": Uncertainty.SESSION,
    "heartbeat_interval_ms": Uncertainty.HEARTBEAT,
    "rebalance_timeout_ms": Uncertainty.TIMEOUT,
    "initial_rebalance_delay_ms": Uncertainty.DELAY,
}


def _doubts(
    member_slots: MemberSlots, rebalances: list[Json], recorded: Setting, known: Mapping[str, Any]
) -> Iterator[Uncertainty]:
    yield from (doubt for name, doubt in _ASSUMED.items() if known.get(name) is None)
    if member_slots.quick_returns:
        yield Uncertainty.ABSENCES
    if member_slots.uncertain_ends:
        yield Uncertainty.CRASHES
    if member_slots.silences:
        yield Uncertainty.PAUSES
    if recorded.consumer:
        # The following doubts are about eager and cooperative members: how long consumers take to
        # join and to revoke partitions does not depend on settings.
        return
    if not modes_seen(rebalances) and "cooperative" not in known:
        yield Uncertainty.MODE
    has_revocation_times = [bool(slot.revoke.took_ms) for slot in member_slots.slots]
    if recorded.cooperative and not any(has_revocation_times):
        yield Uncertainty.REVOCATIONS
    elif recorded.cooperative and not all(has_revocation_times):
        yield Uncertainty.SOME_REVOCATIONS
    has_join_times = [bool(slot.join.took_ms) for slot in member_slots.slots]
    if not any(has_join_times):
        yield Uncertainty.JOINS
    elif not all(has_join_times):
        yield Uncertainty.SOME_JOINS


def _waited_by_slot(rebalances: list[Json], member_slots: MemberSlots) -> tuple[int, ...]:
    waited = [0] * len(member_slots.slots)
    for record in rebalances:
        waits = record.get("waited_for") or {}
        slots = {
            member_slots.of_member.get(str(member_id))
            for member_id in waits.get("member_ids") or ()
        }
        for slot in slots - {None}:
            waited[slot or 0] += int(waits.get("ms") or 0) // len(slots)
    return tuple(waited)


def _quick(joins: list[int]) -> int:
    """Return the tenth percentile of the join times."""
    return sorted(joins)[len(joins) // 10] if joins else DELAY_DEFAULT_MS


def _at(record: Json) -> int:
    return int(record.get("started_at_ms") or record.get("at_ms") or 0)


def _median_of(delays: Iterable[Delays]) -> int | None:
    took = [took_ms for delay in delays for took_ms in delay.took_ms]
    return round(median(took)) if took else None


def _median(values: list[int], default: int) -> int:
    return round(median(values)) if values else default


# Actions on a member's own initiative.


def _rejoins(ordered: list[Json], member_slots: MemberSlots) -> list[Rejoin]:
    rejoins = []
    revokers: dict[str, int] = {}
    before_ms = 0
    for record in ordered:
        # Keep revokers of the last rebalance, and recent ones: a rebalance may delay a rejoin.
        since_ms = _at(record) - REVOKES_WITHIN_MS
        revokers = {
            member_id: at_ms
            for member_id, at_ms in revokers.items()
            if at_ms >= min(since_ms, before_ms)
        }
        causes = causes_of(record) if record["kind"] == "rebalance" else [record["trigger"]]
        for cause in causes:
            rejoin = _rejoin(cause, _at(record), member_slots, revokers)
            if rejoin is not None:
                rejoins.append(rejoin)
        if record["kind"] == "rebalance":
            before_ms = _at(record)
            revokers |= {
                str(member.get("member_id")): _at(record)
                for member in record.get("members") or ()
                if member.get("mode") == "cooperative"
                and (member.get("partitions") or {}).get("given_up_count")
            }
    return rejoins


def _rejoin(
    cause: Json, began_ms: int, member_slots: MemberSlots, revokers: dict[str, int]
) -> Rejoin | None:
    kind, reason = cause.get("kind"), cause.get("reason")
    if kind not in REJOINS or reason in EFFECTS:
        return None
    if kind == "topics_changed":
        at_ms = int(cause.get("at_ms") or began_ms)
        return Rejoin(at_ms, None, JoinReason.TOPIC_METADATA_CHANGE)
    if reason is None and revokers.pop(str(cause.get("member_id")), None) is not None:
        return None
    at_ms = int(cause.get("at_ms") or began_ms)
    slot = member_slots.of_member.get(str(cause.get("member_id")))
    is_change = kind == "protocols_changed" and reason in {None, *CHANGES}
    is_change |= kind == "subscription_changed"
    if reason == TOPICS and kind != "follower_rejoined":
        # Replay as a join of the leader at that time, unless a follower forced it. Changed metadata
        # is ignored, because a cooperative leader's metadata differs at every join.
        is_follower = kind == "forced_by_reason" and not cause.get("was_leader")
        return Rejoin(at_ms, slot if is_follower else None, JoinReason.TOPIC_METADATA_CHANGE)
    if kind == "leader_rejoined" and reason is None:
        return Rejoin(at_ms, None, JoinReason.TOPIC_METADATA_CHANGE)
    stated = JoinReason.__members__.get(str(reason), JoinReason.UNKNOWN)
    return Rejoin(at_ms, slot, stated, changes_protocols=is_change)


# Aggregates.


def _last_assignor(rebalances: Sequence[Json]) -> str | None:
    """Return the protocol name of the last generation's assignor; None if it is unknown."""
    names = (record.get("protocol") for record in reversed(rebalances))
    return next((str(name) for name in names if name), None)


def _partitions(rebalances: list[Json], slots: int, notes: list[str]) -> int:
    counts = Counter(
        int(parts["kept"] + parts["gained"])
        for record in rebalances
        if (parts := record.get("partitions") or {}).get("known")
    )
    if counts:
        # The most frequent count: a record has fewer partitions while some have no owner, and more
        # if a consumer gained some and lost them again.
        return max(counts, key=lambda count: (counts[count], count))
    notes.append("the members' partitions are not in the history: partition figures are 0")
    return slots * PARTITIONS_EACH


def _timers(
    rebalances: list[Json], member_slots: MemberSlots, interval_ms: int
) -> list[HeartbeatTimer]:
    """Return the heartbeat timer of each member slot: that of the client library if the history
    names it, otherwise an estimate from the times of its members' notifications.
    """
    stated = [TIMERS.get(slot.software.library) for slot in member_slots.slots]
    since = _times_since(rebalances, member_slots)
    shown = [runs_on(times, interval_ms) for times in since]
    most_run_on = sum(value is True for value in shown) > sum(value is False for value in shown)
    unknown = {
        member_id for member_id, slot in member_slots.of_member.items() if stated[slot] is None
    }
    late_ms = _look_ms(rebalances, interval_ms, unknown)
    timers = [
        timer or HeartbeatTimer(late_ms, most_run_on if does_run_on is None else does_run_on)
        for timer, does_run_on in zip(stated, shown, strict=True)
    ]
    running = [times for timer, times in zip(timers, since, strict=True) if timer.runs_on]
    running_late_ms = look_of_timer(itertools.chain.from_iterable(running), interval_ms)
    return [replace(timer, look_ms=running_late_ms) if timer.runs_on else timer for timer in timers]


def _times_since(rebalances: list[Json], member_slots: MemberSlots) -> list[list[tuple[int, int]]]:
    """Return, by member slot, two durations for each notification of a member: since its previous
    notification, and since the response to its previous join.
    """
    since: dict[str, tuple[int | None, int]] = {}
    times: list[list[tuple[int, int]]] = [[] for _ in member_slots.slots]
    for record in rebalances:
        for member in record.get("members") or ():
            member_id, told_ms = str(member.get("member_id")), member.get("told_ms")
            at_ms = None if told_ms is None else _at(record) + int(told_ms)
            notified_ms, joined_ms = since.get(member_id, (None, 0))
            slot = member_slots.of_member.get(member_id)
            if at_ms is not None and notified_ms is not None and slot is not None:
                times[slot].append((at_ms - notified_ms, at_ms - joined_ms))
            if member.get("join_answered_ms") is not None:
                since[member_id] = at_ms, _at(record) + int(member["join_answered_ms"])
    return times


def _look_ms(
    rebalances: list[Json], interval_ms: int, member_ids: Container[Any] | None = None
) -> int:
    """Estimate the poll interval of the clients of `member_ids`, or of all members if None."""
    chosen = [
        record
        if member_ids is None
        else {
            **record,
            "members": [
                member
                for member in record.get("members") or ()
                if member.get("member_id") in member_ids
            ],
        }
        for record in rebalances
    ]
    return look_ms(_notice_times(chosen), interval_ms, _first_heartbeats(chosen, interval_ms))


def _notice_times(rebalances: Sequence[Json]) -> Iterator[tuple[int, list[int]]]:
    """Yield, for each rebalance, the time since the end of the previous rebalance, and the times at
    which members were notified.
    """
    for before, record in pairwise(rebalances):
        finished_ms = (before.get("timeline") or {}).get("finished_ms")
        notice_ms = [
            member["told_ms"]
            for member in record.get("members") or ()
            if member.get("told_ms") is not None and member.get("fate") == "kept"
        ]
        if finished_ms is not None and before.get("outcome") == "stable":
            yield _at(record) - _at(before) - int(finished_ms), notice_ms


def _first_heartbeats(rebalances: Sequence[Json], interval_ms: int) -> Iterator[int]:
    """Yield the delay of each heartbeat that was the member's first after a join and notified it of
    a rebalance.
    """
    for before, record in pairwise(rebalances):
        joined = {
            member.get("member_id"): _at(before) + member["join_answered_ms"]
            for member in before.get("members") or ()
            if member.get("join_answered_ms") is not None
        }
        for member in record.get("members") or ():
            since_ms, told_ms = joined.get(member.get("member_id")), member.get("told_ms")
            if since_ms is not None and told_ms:
                late_ms = _at(record) + told_ms - since_ms - interval_ms
                if -FIRST_HEARTBEAT_SLACK_MS <= late_ms <= LOOK_MS + FIRST_HEARTBEAT_SLACK_MS:
                    yield max(late_ms, 0)


def _revoke_ms(rebalances: list[Json], round_trip_ms: int) -> int:
    """Return the median time from an assignment that revokes partitions to the rebalance that
    reassigns them.
    """
    by_sequence = {record.get("sequence"): record for record in rebalances}
    took = []
    for record in rebalances:
        before = by_sequence.get(record.get("follows"))
        finished = None if before is None else (before.get("timeline") or {}).get("finished_ms")
        if before is not None and before.get("outcome") == "stable" and finished is not None:
            took.append(_at(record) - _at(before) - int(finished))
    return _median([value for value in took if value >= 0], round_trip_ms)


def _stopped_ms(rebalances: list[Json], joins: list[int], notes: list[str]) -> int | None:
    totals = [record["stopped"]["total_ms"] for record in rebalances if record.get("stopped")]
    if totals:
        return int(sum(totals))
    if not joins:
        notes.append(
            "how long members take to join is not in the history: stopped times are those of "
            f"members that take {DELAY_DEFAULT_MS} ms, so they are only comparable to each other"
        )
    return None


def _note_departures(departures: Departures, notes: list[str]) -> None:
    if departures.likely or departures.unclear:
        notes.append(
            "how members left, as concluded from commits to __consumer_offsets: of "
            f"{departures.total} departures {departures.likely} are likely, {departures.unclear} "
            "unclear"
        )


def _note_unknown_joins(member_slots: MemberSlots, joins: list[int], notes: list[str]) -> None:
    """Add a note on the members whose join time is unknown."""
    unknown = [slot.name for slot in member_slots.slots if not slot.join.took_ms]
    if not joins or not unknown:
        return
    names = ", ".join(unknown[:NAMES_MAX]) + (", ..." if len(unknown) > NAMES_MAX else "")
    notes.append(
        f"{JOIN_TIME_OF} {len(unknown)} of {len(member_slots.slots)} members ({names}) is not in "
        f"the history; assumed to be {_median(joins, 0) / 1000:.1g} s, like the others"
    )


def _note_gaps(member_slots: MemberSlots, ordered: list[Json], notes: list[str]) -> None:
    sequences = [record.get("sequence") or 0 for record in ordered]
    missing = sequences[-1] - sequences[0] + 1 - len(sequences)
    if missing > 0:
        notes.append(f"missing records between the first and the last: {missing}")
    if not ordered[0].get("initial"):
        notes.append("the history begins after the group was created")
    dropped = sum(record.get("members_dropped") or 0 for record in ordered)
    if dropped:
        notes.append(f"member rows omitted from the records: {dropped}")
    if member_slots.silences:
        notes.append(
            "silent processes that came back after their session expired: "
            f"{member_slots.silences}; whether they had paused or restarted is unknown, the advice "
            "assumes a restart"
        )
    if member_slots.quick_returns:
        notes.append(
            "restarts of static members within their session timeout: "
            f"{member_slots.quick_returns}; their duration is not recorded, so some may exceed a "
            "shorter session"
        )
    if member_slots.uncertain_ends:
        notes.append(
            "static members that ended (they never send LeaveGroup): "
            f"{member_slots.uncertain_ends}; whether they crashed is unknown, so dynamic "
            "membership may detect them sooner than predicted"
        )
    if member_slots.nameless:
        notes.append(
            "members that share their client id with others and have no host: "
            f"{member_slots.nameless}; whether one replaced another is unknown, the advice assumes "
            "that none did"
        )
    if member_slots.strangers:
        notes.append(
            "new members soon after others with different client ids or hosts had ended: "
            f"{member_slots.strangers}; if they are the same processes, static membership would "
            "gain more"
        )
