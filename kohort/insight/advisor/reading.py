"""Reads a trace of what a group's processes did from the records of its history.

Records are the history's JSON. Fields may be missing: histories made from a stock broker's log have
little more than causes. What cannot be known is said in `Trace.unknown`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median
from typing import Any, Final

from kohort.insight.advisor.beats import LOOK_MS, look_ms
from kohort.insight.advisor.lives import Json, Lives, causes_of
from kohort.insight.advisor.setting import Setting
from kohort.insight.advisor.slots import LOST, FoundSlots, find_slots
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
"""Reasons of joins that are answers to a rebalance, not causes of one."""
TOPICS: Final = "TOPIC_METADATA_CHANGE"
CHANGES: Final = frozenset({"SUBSCRIPTION_CHANGE", "UPGRADE", "ASSIGNOR_STATE_CHANGE"})
"""Reasons that go with another offer. A cooperative member's offer differs at every join."""
REJOINS: Final = frozenset(
    {"leader_rejoined", "follower_rejoined", "protocols_changed", "forced_by_reason"}
)
FIRST_BEAT_SLACK_MS: Final = 20
"""How much sooner or later a heartbeat may reach the broker, and still be the first."""
BEATS_NEEDED: Final = 5
"""Members told of a rebalance, before the longest time that took is taken for their interval."""
JOINS_UNTOLD: Final = "how long it takes to join for"
NAMES_MAX: Final = 5
REVOKES_WITHIN_MS: Final = 60_000
"""A member that gave partitions up, and joins again this soon without a reason, does so for that,
even if there was another rebalance in between."""
PARTITIONS_EACH: Final = 3
"""Partitions of a member, where a history does not tell."""


def read_trace(
    group: str, records: Iterable[Json], known: Mapping[str, Any] | None = None
) -> Trace | None:
    """The trace of one group; None if there is no rebalance among the records.

    Args:
        records: of this group, in any order; later ones with the same sequence win.
        known: fields of `Setting` that the group is known to have run under.
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
    lives = Lives()
    for record in ordered:
        lives.add(record)
    notes: list[str] = []
    seen = settings_seen(rebalances)
    recorded = recorded_setting(rebalances, seen, dict(known or {}), notes)
    begin_ms = min(_at(record) for record in ordered)
    found = find_slots(lives.by_id.values(), recorded, begin_ms)
    _note(found, ordered, notes)
    joins = [took for slot in found.slots for took in slot.join.took_ms]
    _note_untold(found, joins, notes)
    syncs = [took for slot in found.slots for took in slot.sync.took_ms]
    round_trip_ms = _median(syncs, ANSWER_DEFAULT_MS)
    return Trace(
        group=group,
        slots=tuple(found.slots),
        rejoins=tuple(_rejoins(ordered, found)),
        begin_ms=begin_ms,
        end_ms=max(_at(record) for record in ordered),
        recorded=recorded,
        partition_count=_partitions(rebalances, len(found.slots), notes),
        default_join_ms=_median(joins, DELAY_DEFAULT_MS),
        default_again_ms=_median_of([slot.again for slot in found.slots]),
        quick_join_ms=_quick(joins),
        default_sync_ms=round_trip_ms,
        default_assign_ms=_median(
            [took for slot in found.slots for took in slot.assign.took_ms], ANSWER_DEFAULT_MS
        ),
        look_ms=look_ms(
            _told(rebalances),
            recorded.heartbeat_interval_ms,
            _first_beats(rebalances, recorded.heartbeat_interval_ms),
        ),
        revoke_ms=_revoke_ms(rebalances, round_trip_ms),
        assignor=_last_assignor(rebalances),
        rebalances=len(rebalances),
        initial_rebalances=sum(bool(record.get("initial")) for record in rebalances),
        waited_by_slot=_waited_by_slot(rebalances, found),
        stopped_ms=_stopped_ms(rebalances, joins, notes),
        unknown=tuple(notes),
        doubts=tuple(_doubts(found, rebalances, recorded, {**seen, **(known or {})})),
    )


_ASSUMED: Final = {
    "session_timeout_ms": Uncertainty.SESSION,
    "heartbeat_interval_ms": Uncertainty.HEARTBEAT,
    "rebalance_timeout_ms": Uncertainty.TIMEOUT,
    "initial_rebalance_delay_ms": Uncertainty.DELAY,
}


def _doubts(
    found: FoundSlots, rebalances: list[Json], recorded: Setting, known: Mapping[str, Any]
) -> Iterator[Uncertainty]:
    yield from (doubt for name, doubt in _ASSUMED.items() if known.get(name) is None)
    if found.quick_returns:
        yield Uncertainty.ABSENCES
    if found.uncertain_ends:
        yield Uncertainty.CRASHES
    if found.silences:
        yield Uncertainty.PAUSES
    if not _modes(rebalances) and "cooperative" not in known:
        yield Uncertainty.MODE
    gave_up = [bool(slot.revoke.took_ms) for slot in found.slots]
    if recorded.cooperative and not any(gave_up):
        yield Uncertainty.REVOCATIONS
    elif recorded.cooperative and not all(gave_up):
        yield Uncertainty.UNGIVEN
    told = [bool(slot.join.took_ms) for slot in found.slots]
    if not any(told):
        yield Uncertainty.JOINS
    elif not all(told):
        yield Uncertainty.UNTOLD


def _waited_by_slot(rebalances: list[Json], found: FoundSlots) -> tuple[int, ...]:
    waited = [0] * len(found.slots)
    for record in rebalances:
        waits = record.get("waited_for") or {}
        slots = {found.of_member.get(str(one)) for one in waits.get("member_ids") or ()}
        for slot in slots - {None}:
            waited[slot or 0] += int(waits.get("ms") or 0) // len(slots)
    return tuple(waited)


def _modes(rebalances: list[Json]) -> set[Any]:
    modes = {m.get("mode") for record in rebalances for m in record.get("members") or ()}
    return modes - {None}


def _quick(joins: list[int]) -> int:
    """What those take that are quickest: a tenth of all."""
    return sorted(joins)[len(joins) // 10] if joins else DELAY_DEFAULT_MS


def _at(record: Json) -> int:
    return int(record.get("started_at_ms") or record.get("at_ms") or 0)


def _median_of(delays: Iterable[Delays]) -> int | None:
    took = [one for each in delays for one in each.took_ms]
    return round(median(took)) if took else None


def _median(values: list[int], default: int) -> int:
    return round(median(values)) if values else default


# What it was recorded under.


def settings_seen(rebalances: list[Json]) -> dict[str, int | None]:
    """Durations of the setting, by field; None for what cannot be seen."""
    return {
        "session_timeout_ms": _session_ms(rebalances),
        "heartbeat_interval_ms": _interval_ms(rebalances),
        "rebalance_timeout_ms": _rebalance_timeout_ms(rebalances),
        "initial_rebalance_delay_ms": _initial_delay_ms(rebalances),
    }


def recorded_setting(
    rebalances: list[Json],
    durations: Mapping[str, int | None],
    known: dict[str, Any],
    notes: list[str],
) -> Setting:
    """The setting as far as it can be seen; what is taken for granted instead is noted."""
    seen: dict[str, Any] = dict(durations)
    for name, value in durations.items():
        if value is None and name not in known:
            notes.append(f"{_CALLED[name]} is not in the history; taken to be {_default(name)}")
    instances = {
        bool(member.get("instance_id"))
        for record in rebalances
        for member in (*(record.get("members") or ()), *causes_of(record))
        if member.get("member_id")
    }
    seen["static"] = instances == {True} if len(instances) == 1 else (None if instances else False)
    modes = _modes(rebalances)
    protocols = {record.get("protocol") for record in rebalances}
    seen["cooperative"] = "cooperative" in modes or any("cooperative" in str(p) for p in protocols)
    if not modes:
        notes.append("whether members were eager or cooperative is not in the history")
    seen["states_reasons"] = any(
        cause.get("reason_source") == "tag" for record in rebalances for cause in causes_of(record)
    )
    chosen = {name: value for name, value in seen.items() if name == "static" or value is not None}
    return replace(Setting(), **(chosen | known))


def _last_assignor(rebalances: Sequence[Json]) -> str | None:
    """The assignor of the last generation, by its name in the protocol; None if none is known."""
    names = (record.get("protocol") for record in reversed(rebalances))
    return next((str(name) for name in names if name), None)


_CALLED: Final = {
    "session_timeout_ms": "session.timeout.ms",
    "heartbeat_interval_ms": "heartbeat.interval.ms",
    "rebalance_timeout_ms": "max.poll.interval.ms",
    "initial_rebalance_delay_ms": "group.initial.rebalance.delay.ms",
}


def _default(name: str) -> str:
    return f"{getattr(Setting(), name) / 1000:g} s"


def _session_ms(rebalances: list[Json]) -> int | None:
    seen = Counter(
        cause["session_timeout_ms"]
        for record in rebalances
        for cause in causes_of(record)
        if cause.get("session_timeout_ms")
    ) or _asked(rebalances, "session_timeout_ms")
    return int(seen.most_common(1)[0][0]) if seen else None


def _interval_ms(rebalances: list[Json]) -> int | None:
    """Members are told with their next heartbeat, so the longest wait is close to the interval."""
    told = [
        member["told_ms"]
        for record in rebalances
        for member in record.get("members") or ()
        if member.get("told_ms") is not None and member.get("fate") == "kept"
    ]
    if len(told) < BEATS_NEEDED:
        return None
    told.sort()
    usual = int(told[int(len(told) * 0.95)])
    # The intervals that people set are whole or half seconds.
    return max(int(usual / 500 + 0.7) * 500, 500)


def _rebalance_timeout_ms(rebalances: list[Json]) -> int | None:
    for record in rebalances:
        timeline = record.get("timeline") or {}
        stalled = timeline.get("stalled_ms")
        if timeline.get("join_phase_end") == "timeout" and not stalled:
            return _round(int(timeline["join_phase_ms"]))
        for cause in causes_of(record):
            if cause.get("rebalance_timeout_ms"):
                return int(cause["rebalance_timeout_ms"])
    # The group waits as long as the member that asks for most.
    return max(_asked(rebalances, "rebalance_timeout_ms"), default=None)


def _asked(rebalances: list[Json], name: str) -> Counter[int]:
    """What joins have asked for, by how often."""
    return Counter(
        member[name]
        for record in rebalances
        for member in record.get("members") or ()
        if member.get(name)
    )


def _initial_delay_ms(rebalances: list[Json]) -> int | None:
    for record in rebalances:
        timeline = record.get("timeline") or {}
        took = timeline.get("join_phase_ms")
        if record.get("initial") and took is not None:
            return _round(int(took) // (len(timeline.get("extensions_ms") or ()) + 1))
    return None


def _round(value: int) -> int:
    """Timers come a little late."""
    nearest = round(value / 100) * 100
    return nearest if abs(value - nearest) <= 30 else value


# What members did of their own accord.


def _rejoins(ordered: list[Json], found: FoundSlots) -> list[Rejoin]:
    rejoins = []
    revokers: dict[str, int] = {}
    before_ms = 0
    for record in ordered:
        # One that was told of another rebalance meanwhile says so later.
        since_ms = _at(record) - REVOKES_WITHIN_MS
        revokers = {
            one: at_ms for one, at_ms in revokers.items() if at_ms >= min(since_ms, before_ms)
        }
        causes = causes_of(record) if record["kind"] == "rebalance" else [record["trigger"]]
        for cause in causes:
            rejoin = _rejoin(cause, _at(record), found, revokers)
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
    cause: Json, began_ms: int, found: FoundSlots, revokers: dict[str, int]
) -> Rejoin | None:
    kind, reason = cause.get("kind"), cause.get("reason")
    if kind not in REJOINS or reason in EFFECTS:
        return None
    if reason is None and revokers.pop(str(cause.get("member_id")), None) is not None:
        return None
    at_ms = int(cause.get("at_ms") or began_ms)
    slot = found.of_member.get(str(cause.get("member_id")))
    is_change = kind == "protocols_changed" and reason in {None, *CHANGES}
    if reason == TOPICS and kind != "follower_rejoined":
        # It counts from the leader, whichever member that is; in a cooperative group its bytes
        # differ too.
        is_follower = kind == "forced_by_reason" and not cause.get("was_leader")
        return Rejoin(at_ms, slot if is_follower else None, JoinReason.TOPIC_METADATA_CHANGE)
    if kind == "leader_rejoined" and reason is None:
        return Rejoin(at_ms, None, JoinReason.TOPIC_METADATA_CHANGE)
    stated = JoinReason.__members__.get(str(reason), JoinReason.UNKNOWN)
    return Rejoin(at_ms, slot, stated, changes_protocols=is_change)


# Figures of the whole.


def _partitions(rebalances: list[Json], slots: int, notes: list[str]) -> int:
    counts = [
        parts["kept"] + parts["gained"]
        for record in rebalances
        if (parts := record.get("partitions") or {}).get("known")
    ]
    if counts:
        return int(max(counts))
    notes.append("which partitions members had is not in the history: figures of partitions are 0")
    return slots * PARTITIONS_EACH


def _told(rebalances: list[Json]) -> Iterator[tuple[int, list[int]]]:
    """How long each rebalance began after the one before had finished, and when members were told
    of it.
    """
    for before, record in pairwise(rebalances):
        finished_ms = (before.get("timeline") or {}).get("finished_ms")
        told = [
            member["told_ms"]
            for member in record.get("members") or ()
            if member.get("told_ms") is not None and member.get("fate") == "kept"
        ]
        if finished_ms is not None and before.get("outcome") == "stable":
            yield _at(record) - _at(before) - int(finished_ms), told


def _first_beats(rebalances: list[Json], interval_ms: int) -> Iterator[int]:
    """How late members sent their first heartbeat after a join, where it told them of a rebalance
    that followed at once.
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
                if -FIRST_BEAT_SLACK_MS <= late_ms <= LOOK_MS + FIRST_BEAT_SLACK_MS:
                    yield max(late_ms, 0)


def _revoke_ms(rebalances: list[Json], round_trip_ms: int) -> int:
    """The median time from an assignment that takes partitions to the rebalance that hands them
    out.
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
    told = [record["stopped"]["total_ms"] for record in rebalances if record.get("stopped")]
    if told:
        return int(sum(told))
    if not joins:
        notes.append(
            "how long members take to join is not in the history: stopped times are those of "
            f"members that take {DELAY_DEFAULT_MS} ms, so compare them, but do not rely on them"
        )
    return None


def _note_untold(found: FoundSlots, joins: list[int], notes: list[str]) -> None:
    """Notes the members that others have to stand in for."""
    untold = [slot.name for slot in found.slots if not slot.join.took_ms]
    if not joins or not untold:
        return
    names = ", ".join(untold[:NAMES_MAX]) + (", ..." if len(untold) > NAMES_MAX else "")
    notes.append(
        f"{JOINS_UNTOLD} {len(untold)} of {len(found.slots)} members ({names}) is not in the "
        f"history; taken to be {_median(joins, 0) / 1000:.1g} s, as with the others"
    )


def _note(found: FoundSlots, ordered: list[Json], notes: list[str]) -> None:
    sequences = [record.get("sequence") or 0 for record in ordered]
    missing = sequences[-1] - sequences[0] + 1 - len(sequences)
    if missing > 0:
        notes.append(f"records missing between the first and the last: {missing}")
    if not ordered[0].get("initial"):
        notes.append("the history begins when the group was there already")
    dropped = sum(record.get("members_dropped") or 0 for record in ordered)
    if dropped:
        notes.append(f"rows of members left out of the records: {dropped}")
    if found.silences:
        notes.append(
            f"silent processes that came back after their session had ended: {found.silences}; "
            "nothing says whether they had paused or were started again: taken for restarts"
        )
    if found.quick_returns:
        notes.append(
            f"restarts of static members quick enough to go unnoticed: {found.quick_returns}; how "
            "quick is not recorded: with a shorter session some may not be"
        )
    if found.uncertain_ends:
        notes.append(
            "static members that ended without a word, as they do: "
            f"{found.uncertain_ends}; whether they crashed is not known, so dynamic membership may "
            "notice them sooner than is told here"
        )
    if found.nameless:
        notes.append(
            "members that share their client id with others and have no host: "
            f"{found.nameless}; whether one was started again in another's place is not known, and "
            "taken for not so"
        )
    if found.strangers:
        notes.append(
            "newcomers soon after others had gone under other client ids or hosts: "
            f"{found.strangers}; if they are the same processes, static membership would gain "
            "more"
        )
