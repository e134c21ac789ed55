"""Infers from a member's commits how it left its group."""

from typing import Final, NamedTuple

from kohort.groups.events import Certainty, Evidence, RemovalReason
from kohort.groups.reasons import POLL_TIMEOUT
from kohort.groups.records import StoredMember
from kohort.watch.core.commits import Signs

SLACK_MS: Final = 300
"""Assumed maximum delay of a loaded coordinator's timers."""

_POLLS_APART_MS: Final = 1_500
"""A join phase may have begun this long before the first poll that shows it."""

_HEARTBEAT_MS: Final = 3_000
"""Default of heartbeat.interval.ms: the assumed interval of each member, but at most a third of its
session timeout."""

_BEATS: Final = 3
"""Assumed maximum number of heartbeats between a member's last commit or join and its failure."""


class Fate(NamedTuple):
    reason: RemovalReason
    certainty: Certainty
    at_ms: int | None
    """When the member left; None if unknown."""
    candidates: tuple[RemovalReason, ...] = ()
    """If `certainty` is UNCLEAR: all possible reasons, the most likely first."""
    evidence: tuple[Evidence, ...] = ()
    detail: str = ""
    text: str | None = None
    """The reason that the client stated, from the broker's log."""
    is_poll_timeout: bool = False
    """Whether it may have left because the application did not poll in time."""


class Timeouts(NamedTuple):
    """Settings of a consumer or share group, which its records do not contain."""

    session_ms: int = 45_000
    heartbeat_ms: int = 5_000
    is_known: bool = True
    """Whether the cluster returned these settings; otherwise they are Kafka's defaults."""
    share_session_ms: int = 45_000
    share_heartbeat_ms: int = 5_000
    """Like `heartbeat_ms`, for share groups."""


class Phase(NamedTuple):
    """The join phase during or before which a member left."""

    earliest_ms: int
    """The earliest time at which the join phase may have begun."""
    end_ms: int
    timeouts_ms: tuple[int, int]
    """The smallest and the largest rebalance timeout of the members before and after the phase. Its
    time limit lies between the two: the largest timeout of the members when it began."""
    is_sole: bool = True
    """Whether the generations stored before and after the phase are consecutive numbers."""
    revoked_ms: int | None = None
    """When a remaining member first committed sooner than usual, probably to revoke partitions."""
    seen_ms: int | None = None
    """When a poll first showed the group in the join phase."""
    has_commits: bool = False
    """Whether any member of the group has committed."""

    @property
    def has_timed_out(self) -> bool:
        """Whether the join phase is known to have lasted for the rebalance timeout."""
        lasted_ms = 0 if self.seen_ms is None else self.end_ms - self.seen_ms
        return lasted_ms >= self.timeouts_ms[1] - _POLLS_APART_MS

    @property
    def may_have_timed_out(self) -> bool:
        """Whether the join phase may have lasted for the rebalance timeout."""
        return self.end_ms - self.earliest_ms >= self.timeouts_ms[0] - SLACK_MS


def heartbeat_ms(session_timeout_ms: int) -> int:
    """Return the interval at which a member probably sends heartbeats."""
    return min(_HEARTBEAT_MS, session_timeout_ms // 3)


def fate_of(member: StoredMember, signs: Signs, gone_ms: int, phase: Phase) -> Fate:
    """Return how a member of a classic group left. It left at `gone_ms` or before."""
    session_ms = member.session_timeout_ms
    silent_ms = max(gone_ms - signs.last_ms, 0)
    kind = "last_commit" if signs.count else "last_join"
    evidence = (Evidence(kind, silent_ms),)
    # A commit in a transaction does not restart the session: the last heartbeat did, up to an
    # interval before.
    unsure_ms = heartbeat_ms(session_ms) if signs.in_transaction else 0
    if silent_ms < session_ms - unsure_ms - SLACK_MS:
        if member.instance_id is not None:
            return _unclear(evidence, RemovalReason.LEFT, RemovalReason.REMOVED_BY_ADMIN)
        left_ms = _left_ms(signs, silent_ms)
        # The member may not have fetched its assignment after its last join: then it is removed
        # after the rebalance timeout.
        may_have_no_share = not signs.count and silent_ms >= phase.timeouts_ms[0] - SLACK_MS
        is_likely = phase.may_have_timed_out or may_have_no_share
        certainty = Certainty.LIKELY if is_likely else Certainty.CERTAIN
        return Fate(RemovalReason.LEFT, certainty, left_ms, evidence=evidence)
    # A new coordinator restarted the session at an unknown time since the last sign of life.
    began_ms = max(signs.last_ms, signs.restarted_ms)
    is_due = phase.has_commits and _is_due(gone_ms - began_ms, session_ms)
    if not phase.is_sole and not is_due:
        # The member may have joined a rebalance that was not stored.
        return _unclear(
            evidence,
            RemovalReason.LEFT,
            RemovalReason.SESSION_EXPIRED,
            RemovalReason.REBALANCE_TIMEOUT,
        )
    return _silent(member, signs, phase, evidence, (began_ms, gone_ms), is_due=is_due)


def _is_due(ms: int, session_ms: int) -> bool:
    """Whether a session may have expired `ms` after its last known start, because no heartbeat, or
    only the next few, extended it. If the group's members commit, a departure at such a time is
    most likely an expired session.
    """
    beats, late_ms = divmod(ms - session_ms, heartbeat_ms(session_ms))
    return 0 <= beats <= _BEATS and late_ms <= SLACK_MS


def _silent(
    member: StoredMember,
    signs: Signs,
    phase: Phase,
    evidence: tuple[Evidence, ...],
    session: tuple[int, int],
    *,
    is_due: bool,
) -> Fate:
    """Return the fate of a member without a sign of life for its session timeout or longer.

    Args:
        session: the latest known start of its session, and the time by which it had left.
        is_due: whether its session timeout probably ended at that time (`_is_due`).
    """
    began_ms, gone_ms = session
    session_ms, poll_ms = member.session_timeout_ms, member.rebalance_timeout_ms
    expired, left, timeout = (
        RemovalReason.SESSION_EXPIRED,
        RemovalReason.LEFT,
        RemovalReason.REBALANCE_TIMEOUT,
    )
    if poll_ms > session_ms and phase.has_timed_out and gone_ms == phase.end_ms:
        return Fate(timeout, Certainty.LIKELY, gone_ms, evidence=evidence)
    slack_ms = (signs.usual_ms or 0) + heartbeat_ms(session_ms) + SLACK_MS
    is_over = bool(signs.count or signs.usual_ms) and gone_ms - began_ms >= session_ms - SLACK_MS
    is_expired = is_due or (is_over and gone_ms - began_ms <= session_ms + slack_ms)
    stuck_ms = gone_ms - signs.last_ms - poll_ms
    is_stuck = (is_over or is_due) and poll_ms > session_ms and -SLACK_MS <= stuck_ms <= slack_ms
    if is_expired and is_stuck:
        # The poll timeout is more likely: it is longer, so it ended nearer to the departure.
        return _unclear(evidence, left, expired)._replace(is_poll_timeout=True)
    if is_expired:
        at_ms = gone_ms if is_due else min(began_ms + session_ms, gone_ms)
        return Fate(expired, Certainty.LIKELY, at_ms, evidence=evidence)
    if is_stuck:
        at_ms = min(signs.last_ms + poll_ms, gone_ms)
        fate = Fate(left, Certainty.LIKELY, at_ms, evidence=evidence, detail=POLL_TIMEOUT)
        return fate._replace(is_poll_timeout=True)
    more = (timeout,) if phase.may_have_timed_out else ()
    return _unclear(evidence, expired, *more, left)


def _unclear(evidence: tuple[Evidence, ...], *candidates: RemovalReason) -> Fate:
    return Fate(candidates[0], Certainty.UNCLEAR, None, candidates, evidence)


_SOON_MS: Final = 1_500


def _left_ms(signs: Signs, silent_ms: int) -> int | None:
    """Return the time of a member's last commit if the client probably committed because it left:
    the departure was noticed soon after, or one of the commits came early. Otherwise None.
    """
    is_last = signs.count and (silent_ms < _SOON_MS or signs.early_ms is not None)
    return signs.last_ms if is_last else None


def fate_of_consumer(
    signs: Signs,
    gone_ms: int,
    timeouts: Timeouts,
    rebalance_timeout_ms: int,
    *,
    revoking_ms: int = 0,
    is_classic: bool = False,
    has_left: bool = False,
) -> Fate:
    """Return how a member of a consumer group (KIP-848) left at `gone_ms`.

    Only heartbeats extend its session. A member that commits has usually sent a heartbeat at most
    an interval before, but need not have. So its fate is never certain.

    Args:
        revoking_ms: for how long it has had partitions to revoke.
        is_classic: whether it uses the classic protocol, and is therefore also removed if it does
            not rejoin or sync in time.
        has_left: whether it was a static member that had left for a restart.
    """
    silent_ms = max(gone_ms - signs.last_ms, 0)
    evidence = (Evidence("last_commit" if signs.count else "last_join", silent_ms),)
    expired, left = RemovalReason.SESSION_EXPIRED, RemovalReason.LEFT
    session_ms, heartbeat, is_known, *_ = timeouts
    slack_ms = (signs.usual_ms or 0) + heartbeat + SLACK_MS
    late_ms = gone_ms - max(signs.last_ms, signs.restarted_ms)
    candidates: tuple[RemovalReason, ...] = (expired, left)
    if has_left:
        is_clear = True
    elif revoking_ms >= rebalance_timeout_ms - SLACK_MS:
        candidates, is_clear = (RemovalReason.REBALANCE_TIMEOUT, expired, left), False
    elif silent_ms < session_ms - heartbeat - SLACK_MS:
        candidates, is_clear = (left, expired), is_known and bool(signs.count or not is_classic)
    else:
        stuck_ms = silent_ms - rebalance_timeout_ms
        is_stuck = rebalance_timeout_ms > session_ms and -SLACK_MS <= stuck_ms <= slack_ms
        is_clear = bool(signs.count) and late_ms <= session_ms + slack_ms and not is_stuck
    if is_clear:
        return Fate(candidates[0], Certainty.LIKELY, gone_ms, evidence=evidence)
    return Fate(candidates[0], Certainty.UNCLEAR, gone_ms, candidates, evidence)


def fate_of_share_member(signs: Signs, gone_ms: int, timeouts: Timeouts, assigned_ms: int) -> Fate:
    """Return how a member of a share group left at `gone_ms`.

    A member's records are written only when it sends a heartbeat, which also restarts its session.
    So a member whose last record is more recent than the session timeout has left by itself. That
    is not certain, because the timeout may have been changed since.

    Args:
        assigned_ms: since when an assignment has waited for the member's next heartbeat; `gone_ms`
            if there is none.
    """
    silent_ms = max(gone_ms - signs.last_ms, 0)
    late_ms = max(gone_ms - assigned_ms, 0)
    evidence = [Evidence("last_record", silent_ms)]
    expired, left = RemovalReason.SESSION_EXPIRED, RemovalReason.LEFT
    session_ms, heartbeat = timeouts.share_session_ms, timeouts.share_heartbeat_ms
    is_clear = timeouts.is_known
    if silent_ms < session_ms - SLACK_MS:
        candidates = left, expired
    elif late_ms >= 2 * heartbeat:
        candidates = expired, left
        evidence.append(Evidence("not_taken", late_ms))
    else:
        is_clear = False
        is_due = silent_ms <= session_ms + heartbeat + SLACK_MS
        candidates = (expired, left) if is_due else (left, expired)
    if is_clear:
        return Fate(candidates[0], Certainty.LIKELY, gone_ms, evidence=tuple(evidence))
    return Fate(candidates[0], Certainty.UNCLEAR, gone_ms, candidates, tuple(evidence))
