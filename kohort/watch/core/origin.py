"""Determines which of several causes began a rebalance.

Each cause has a time, known or guessed; the cause with the earliest known time began the rebalance.
This is certain only if no other cause is possible: if members joined or left, another member, such
as the leader, may have rejoined before them without leaving a trace.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import attrgetter
from typing import Final

from kohort.groups.classic.states import ClassicState
from kohort.groups.events import Certainty, Evidence, RemovalReason, Trigger, TriggerKind
from kohort.groups.reasons import NO_REASON, ReasonSource, StatedReason
from kohort.groups.records import GroupRecord, StoredMember
from kohort.protocol.join_reason import JoinReason
from kohort.watch.core.fate import Fate, Phase
from kohort.watch.core.followed import Poll, ref
from kohort.watch.core.generations import Difference

GUESS_MS: Final = 1_500
"""Assumed duration of a join phase: about half a heartbeat interval."""

_APART_MS: Final = 200
_EARLIER_MS: Final = 600


@dataclass(frozen=True, slots=True)
class Cause:
    trigger: Trigger
    at_ms: int
    is_known: bool = False
    """Whether `at_ms` is known, or at least bounded by polls; otherwise it is a guess."""
    after_ms: int = -1
    """Time of the last poll before the cause; -1 if there is none."""
    stays_certain: bool = False
    """Whether this cause, if it is the only one, certainly began the rebalance."""


def unknown(at_ms: int) -> Cause:
    """Return an unknown cause, dated `at_ms`."""
    return Cause(Trigger(TriggerKind.UNKNOWN, certainty=Certainty.UNCLEAR), at_ms)


TRIGGERS: Final = {
    RemovalReason.LEFT: TriggerKind.MEMBER_LEFT,
    RemovalReason.REMOVED_BY_ADMIN: TriggerKind.REMOVED_BY_ADMIN,
    RemovalReason.SESSION_EXPIRED: TriggerKind.SESSION_EXPIRED,
}
"""The trigger of the rebalance that a removal begins, by reason. REBALANCE_TIMEOUT is absent: the
member is removed at the end of the join phase, and this begins no further rebalance."""


def causes(
    old: GroupRecord,
    changes: Difference,
    fates: Sequence[tuple[StoredMember, Fate]],
    end_ms: int,
    polls: Sequence[Poll],
) -> list[Cause]:
    """Return all causes that have left traces, the least specific last."""
    guess_ms = end_ms - GUESS_MS
    found = [_of_fate(old, member, fate, guess_ms, polls) for member, fate in fates]
    causes = [cause for cause in found if cause is not None]
    causes += [_of_newcomer(member, guess_ms, polls) for member in changes.new]
    for change in changes.resubscribed:
        text = f"topics {_listed(change.before)} before, {_listed(change.after)} now"
        reason = _stated(JoinReason.SUBSCRIPTION_CHANGE)
        trigger = _rejoin(old, change.member, reason, text)
        causes.append(Cause(trigger, guess_ms))
    if changes.resubscribed or not changes.same_members or not changes.kept:
        return causes
    leader = _leader_of([member for _, member in changes.kept], old)
    member, reason, certainty = leader, NO_REASON, Certainty.LIKELY
    candidates: tuple[TriggerKind, ...] = ()
    both = (TriggerKind.LEADER_REJOINED, TriggerKind.PROTOCOLS_CHANGED)
    if changes.losers:
        reason = _stated(JoinReason.PARTITIONS_REVOKED)
        if len(changes.losers) > 1 and leader in changes.losers:
            certainty, candidates = Certainty.UNCLEAR, both
        member = _leader_of(changes.losers, old) or changes.losers[0]
    elif changes.grown_topics or changes.lost_topics:
        reason, candidates = _stated(JoinReason.TOPIC_METADATA_CHANGE), both
    elif changes.other_data and not changes.protocol_changed:
        reason = _stated(JoinReason.ASSIGNOR_STATE_CHANGE)
        member = changes.other_data[0]
    elif changes.protocol_changed:
        certainty, candidates = Certainty.UNCLEAR, both[::-1]
    else:
        certainty, candidates = Certainty.UNCLEAR, both
    trigger = _rejoin(old, member, reason, "")._replace(
        certainty=certainty, candidates=candidates, grown_topics=changes.grown_topics
    )
    causes.append(Cause(trigger, guess_ms))
    return causes


def _of_fate(
    old: GroupRecord, member: StoredMember, fate: Fate, guess_ms: int, polls: Sequence[Poll]
) -> Cause | None:
    kind = TRIGGERS.get(fate.reason)
    if kind is None:
        return None
    trigger = Trigger(
        kind,
        ref(member),
        was_leader=member.member_id == old.leader_id,
        removed=(member.member_id,),
        timeout_ms=member.session_timeout_ms if kind is TriggerKind.SESSION_EXPIRED else None,
        detail=fate.text or fate.detail,
        certainty=fate.certainty,
        candidates=tuple([TRIGGERS[one] for one in fate.candidates if one in TRIGGERS]),
        evidence=fate.evidence,
    )
    first = _first(polls, lambda poll: member.member_id not in poll.member_ids)
    if fate.at_ms is None:
        return _polled(trigger, first, guess_ms, polls)
    after_ms = _before(first, polls)
    return Cause(trigger, max(fate.at_ms, after_ms), is_known=True, after_ms=after_ms)


def _of_newcomer(member: StoredMember, guess_ms: int, polls: Sequence[Poll]) -> Cause:
    is_static = member.instance_id is not None
    kind = TriggerKind.STATIC_ADDED if is_static else TriggerKind.MEMBER_ADDED
    first = _first(polls, lambda poll: member.member_id in poll.member_ids)
    return _polled(Trigger(kind, ref(member)), first, guess_ms, polls)


def _first(polls: Sequence[Poll], holds: Callable[[Poll], bool]) -> int:
    """Return the index of the first poll for which `holds` is true; `len(polls)` if none."""
    return next((index for index, poll in enumerate(polls) if holds(poll)), len(polls))


def _before(first: int, polls: Sequence[Poll]) -> int:
    return polls[first - 1].at_ms if first else -1


def _polled(trigger: Trigger, first: int, guess_ms: int, polls: Sequence[Poll]) -> Cause:
    """Return a cause whose time is halfway between poll `first`, which showed it, and the previous
    one. If no poll showed the cause, its time is `guess_ms`, but not before the last poll.
    """
    after_ms = _before(first, polls)
    if first < len(polls):
        at_ms = (polls[max(first - 1, 0)].at_ms + polls[first].at_ms) // 2
    else:
        at_ms = max(after_ms, guess_ms)
    return Cause(trigger, at_ms, is_known=bool(polls), after_ms=after_ms)


def _rejoin(
    old: GroupRecord, member: StoredMember | None, reason: StatedReason, detail: str
) -> Trigger:
    leads = member is not None and member.member_id == old.leader_id
    kind = TriggerKind.LEADER_REJOINED if leads else TriggerKind.PROTOCOLS_CHANGED
    who = None if member is None else ref(member)
    return Trigger(kind, who, was_leader=leads, reason=reason, detail=detail)


def _leader_of(members: Iterable[StoredMember], old: GroupRecord) -> StoredMember | None:
    return next((one for one in members if one.member_id == old.leader_id), None)


def _stated(reason: JoinReason) -> StatedReason:
    return StatedReason(reason, ReasonSource.INFERRED)


def _listed(topics: frozenset[str]) -> str:
    return ", ".join(sorted(topics)) or "none"


def beginning(causes: Sequence[Cause], phase: Phase, polls: Sequence[Poll]) -> tuple[Cause, ...]:
    """Return the causes, the one that began the rebalance first. The certainty of this cause's
    trigger is computed from the other causes, the commits and the polls.
    """
    ordered = sorted(causes, key=lambda cause: (cause.at_ms, not cause.is_known))
    known = [cause for cause in ordered if cause.is_known]
    first = known[0] if known else ordered[0]
    rest = [cause for cause in ordered if cause is not first]
    trigger = first.trigger
    certainty = trigger.certainty
    candidates = trigger.candidates
    others = sorted(
        {cause.trigger.kind for cause in rest} - {trigger.kind}, key=attrgetter("value")
    )
    interval_ms = _interval_ms(polls)
    rivals = [
        cause
        for cause in rest
        if cause.trigger.kind is not trigger.kind
        and not (
            first.is_known
            and cause.is_known
            and cause.at_ms - first.at_ms > interval_ms + _APART_MS
        )
    ]
    if rivals or not phase.is_sole:
        certainty = Certainty.UNCLEAR
        candidates = (trigger.kind, *others)
    elif certainty is Certainty.CERTAIN and not (first.stays_certain and not rest):
        certainty = Certainty.LIKELY
    seen_ms = phase.seen_ms
    if (
        seen_ms is not None
        and first.is_known
        and (seen_ms <= first.after_ms or seen_ms < first.at_ms - _EARLIER_MS)
    ):
        # The group was rebalancing before its first known cause: a member had rejoined.
        certainty = Certainty.UNCLEAR
        candidates = (TriggerKind.LEADER_REJOINED, trigger.kind)
    if phase.revoked_ms is not None and phase.revoked_ms < first.at_ms - interval_ms - _EARLIER_MS:
        certainty = Certainty.UNCLEAR
        candidates = (*others, TriggerKind.LEADER_REJOINED, trigger.kind)
    evidence = trigger.evidence
    if seen_ms is not None:
        evidence = (*evidence, Evidence("poll", max(phase.end_ms - seen_ms, 0)))
    same = [cause for cause in ordered if cause.trigger.kind is trigger.kind]
    tied = [cause for cause in same if cause.is_known and cause.at_ms == first.at_ms]
    guessed = [] if first.is_known else [cause for cause in same if not cause.is_known]
    if len(tied) > 1 or len(guessed) > 1:
        # It is unknown which of these causes was the first.
        trigger, rest = trigger._replace(member=None, was_leader=False), ordered
    first = replace(
        first,
        trigger=trigger._replace(certainty=certainty, candidates=candidates, evidence=evidence),
        at_ms=max(min(first.at_ms, phase.end_ms), phase.earliest_ms),
    )
    return (first, *rest)


def _interval_ms(polls: Sequence[Poll]) -> int:
    gaps = [after.at_ms - before.at_ms for before, after in pairwise(polls)]
    return max(gaps, default=0)


def first_seen(polls: Sequence[Poll], since_ms: int) -> int | None:
    """Return the time of the first poll since `since_ms` with PreparingRebalance, or None."""
    times = (
        poll.at_ms
        for poll in polls
        if poll.at_ms >= since_ms and poll.state == ClassicState.PREPARING_REBALANCE.value
    )
    return next(times, None)
