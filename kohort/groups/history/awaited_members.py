"""Determines which members a rebalance waited for, and why the leader changed."""

from collections.abc import Iterator
from dataclasses import replace

from kohort.groups.events import JoinPhaseEnd
from kohort.groups.history.facts import RebalanceFacts
from kohort.groups.history.model import LeaderChange, MemberFate, WaitedFor
from kohort.groups.history.names import cut_ids


def waited_for(facts: RebalanceFacts, until_ms: int) -> WaitedFor:
    """Return the longest wait: for joins or the initial delay, for the leader's assignment, or for
    the assignment to be stored.
    """
    return max(_waits(facts, until_ms), key=lambda wait: wait.ms, default=WaitedFor())


def _waits(facts: RebalanceFacts, until_ms: int) -> Iterator[WaitedFor]:
    if facts.is_collecting or facts.join_phase is None:
        yield _missing(facts, facts.finished_ms or until_ms)
        return
    yield _of_join_phase(facts)
    leader = facts.join_phase.leader
    leader_ms = facts.leader_synced_ms
    end_ms = until_ms if facts.finished_ms is None else facts.finished_ms
    if leader is not None and end_ms >= facts.join_phase_ms:
        synced_ms = end_ms if leader_ms is None else leader_ms
        yield _wait("sync", synced_ms - facts.join_phase_ms, [leader])
    if leader_ms is not None:
        yield _wait("store", end_ms - leader_ms)


def _wait(
    phase: str, ms: int, member_ids: list[str] | None = None, pending: list[str] | None = None
) -> WaitedFor:
    if ms <= 0:
        return WaitedFor()
    return WaitedFor(
        phase=phase,
        member_ids=cut_ids(dict.fromkeys(member_ids or ())),
        pending_ids=cut_ids(pending or ()),
        ms=ms,
    )


def _of_join_phase(facts: RebalanceFacts) -> WaitedFor:
    join_phase, awaited = facts.join_phase, facts.awaited
    assert join_phase is not None
    if join_phase.end is JoinPhaseEnd.ALL_JOINED:
        ms = awaited.at_ms - awaited.before_ms
        wait = _wait("join", ms, awaited.member_ids, awaited.pending_ids)
        return _with_told(wait, facts, awaited.member_ids)
    if join_phase.end is JoinPhaseEnd.INITIAL_DELAY:
        return _wait("initial_delay", facts.join_phase_ms - facts.began.ms)
    # Members that were removed when the join phase ended, because they had not rejoined.
    late = [
        gone.member.member_id
        for gone in facts.gone.values()
        if gone.fate is MemberFate.REBALANCE_TIMEOUT and gone.at_ms == facts.join_phase_ms
    ]
    missing = [*late, *join_phase.absent]
    arrived_ms = max((ms for ms, _ in facts.joins.values()), default=facts.began.ms)
    wait = _wait("join", facts.join_phase_ms - arrived_ms, missing, list(join_phase.pending))
    return _with_told(wait, facts, missing)


def _missing(facts: RebalanceFacts, until_ms: int) -> WaitedFor:
    """Return which members have not joined, and how long the group has waited for them, in a join
    phase that is still running or was ended by the next rebalance.
    """
    missing = [
        member.member_id
        for member in facts.started.members
        if member.member_id not in facts.joins and member.member_id not in facts.gone
    ]
    arrived_ms = max((ms for ms, _ in facts.joins.values()), default=facts.began.ms)
    if not missing:
        return WaitedFor()
    return _with_told(_wait("join", until_ms - arrived_ms, missing), facts, missing)


def _with_told(wait: WaitedFor, facts: RebalanceFacts, member_ids: list[str]) -> WaitedFor:
    were_told = bool(member_ids) and all(one in facts.told for one in member_ids)
    return replace(wait, were_told=were_told) if wait.phase else wait


def leader_change(facts: RebalanceFacts) -> LeaderChange | None:
    """Return why the new generation has another leader; None if the leader has not changed, or no
    generation has begun.
    """
    before = facts.leader_before
    leader = None if facts.join_phase is None else facts.join_phase.leader
    if leader is None or facts.join_phase is None:
        return None
    if before is None:
        return LeaderChange.FIRST
    gone = facts.gone.get(before)
    if gone is not None and gone.replaced_by == leader:
        return LeaderChange.REPLACED
    if before == leader:
        return None
    is_member = any(member.member_id == before for member in facts.join_phase.members)
    return LeaderChange.ABSENT if is_member else LeaderChange.LEFT
