"""Concludes from its commits how a member left its group."""

from typing import Final, NamedTuple

from kohort.groups.events import Certainty, Evidence, RemovalReason
from kohort.groups.records import StoredMember
from kohort.watch.core.signs import Signs

SLACK_MS: Final = 300
"""Timers of a loaded coordinator are late by this much."""

_HEARTBEAT_MS: Final = 3_000
"""Default of heartbeat.interval.ms, which the members of a group use to learn of a rebalance; it
is at most a third of the session timeout."""


class Fate(NamedTuple):
    """How a member left."""

    reason: RemovalReason
    certainty: Certainty
    at_ms: int | None
    """When, if known."""
    candidates: tuple[RemovalReason, ...] = ()
    """If unclear: all possible reasons, the most likely first."""
    evidence: tuple[Evidence, ...] = ()
    detail: str = ""
    text: str | None = None
    """The reason that the client stated, in the broker's log."""
    is_poll_timeout: bool = False
    """Whether it may have left because the application did not poll in time."""


POLL_TIMEOUT: Final = "poll timeout"
"""The detail of such a departure."""


class Timeouts(NamedTuple):
    """Settings of a consumer group, which its records do not contain."""

    session_ms: int = 45_000
    heartbeat_ms: int = 5_000
    is_known: bool = True
    """Whether the cluster stated them; otherwise they are Kafka's defaults."""


class Phase(NamedTuple):
    """The join phase during or before which a member left."""

    earliest_ms: int
    """It did not begin before."""
    end_ms: int
    timeouts_ms: tuple[int, int]
    """The smallest and the largest rebalance timeout of its members: it lasted for the largest of
    those that were members when it began."""
    is_sole: bool = True
    """Whether all rebalances since the last stored generation are known."""
    revoked_ms: int | None = None
    """When the first member that remains committed earlier than usual: it gave up partitions."""

    @property
    def may_have_timed_out(self) -> bool:
        """Whether it may have lasted for the rebalance timeout."""
        return self.end_ms - self.earliest_ms >= self.timeouts_ms[0] - SLACK_MS


def heartbeat_ms(session_timeout_ms: int) -> int:
    """Return the interval at which a member probably sends heartbeats."""
    return min(_HEARTBEAT_MS, session_timeout_ms // 3)


def fate_of(member: StoredMember, signs: Signs, gone_ms: int, phase: Phase) -> Fate:
    """Return how a member of a classic group left that was gone at `gone_ms`."""
    session_ms, poll_ms = member.session_timeout_ms, member.rebalance_timeout_ms
    last_ms = signs.last_ms
    silent_ms = max(gone_ms - last_ms, 0)
    kind = "last_commit" if signs.count else "last_join"
    evidence = (Evidence(kind, silent_ms),)
    if not phase.is_sole:
        return _unclear(
            evidence,
            RemovalReason.LEFT,
            RemovalReason.SESSION_EXPIRED,
            RemovalReason.REBALANCE_TIMEOUT,
        )
    # A heartbeat an interval before the commit may have been the last.
    unsure_ms = heartbeat_ms(session_ms) if signs.in_transaction else 0
    if silent_ms < session_ms - unsure_ms - SLACK_MS:
        if member.instance_id is not None:
            return _unclear(evidence, RemovalReason.LEFT, RemovalReason.REMOVED_BY_ADMIN)
        left_ms = _left_ms(signs, silent_ms)
        if phase.may_have_timed_out:
            return Fate(RemovalReason.LEFT, Certainty.LIKELY, left_ms, evidence=evidence)
        return Fate(RemovalReason.LEFT, Certainty.CERTAIN, left_ms, evidence=evidence)
    return _silent(signs, silent_ms, session_ms, poll_ms, gone_ms, phase, evidence)


def _silent(
    signs: Signs,
    silent_ms: int,
    session_ms: int,
    poll_ms: int,
    gone_ms: int,
    phase: Phase,
    evidence: tuple[Evidence, ...],
) -> Fate:
    """It had given no sign of life for its session timeout or longer."""
    heartbeat = heartbeat_ms(session_ms)
    if not signs.count:
        return _unclear(evidence, RemovalReason.SESSION_EXPIRED, RemovalReason.LEFT)
    slack_ms = (signs.usual_ms or 0) + heartbeat + SLACK_MS
    expired = silent_ms <= session_ms + slack_ms
    stuck = poll_ms > session_ms and poll_ms - SLACK_MS <= silent_ms <= poll_ms + slack_ms
    if expired and stuck:
        # The poll timeout is the larger one, and nearer to the end.
        unclear = _unclear(evidence, RemovalReason.LEFT, RemovalReason.SESSION_EXPIRED)
        return unclear._replace(is_poll_timeout=True)
    if expired:
        return Fate(
            RemovalReason.SESSION_EXPIRED,
            Certainty.LIKELY,
            min(signs.last_ms + session_ms, gone_ms),
            evidence=evidence,
        )
    if stuck:
        return Fate(
            RemovalReason.LEFT,
            Certainty.LIKELY,
            min(signs.last_ms + poll_ms, gone_ms),
            evidence=evidence,
            detail=POLL_TIMEOUT,
            is_poll_timeout=True,
        )
    if phase.may_have_timed_out:
        return Fate(
            RemovalReason.REBALANCE_TIMEOUT, Certainty.LIKELY, phase.end_ms, evidence=evidence
        )
    return _unclear(evidence, RemovalReason.SESSION_EXPIRED, RemovalReason.LEFT)


def _unclear(evidence: tuple[Evidence, ...], *candidates: RemovalReason) -> Fate:
    return Fate(candidates[0], Certainty.UNCLEAR, None, candidates, evidence)


_SOON_MS: Final = 1_500


def _left_ms(signs: Signs, silent_ms: int) -> int | None:
    """Clients commit right before they leave: at the last commit if the others rejoined soon
    after, or if it came earlier than usual.
    """
    is_last = signs.count and (silent_ms < _SOON_MS or signs.early_ms is not None)
    return signs.last_ms if is_last else None


def fate_of_consumer(
    signs: Signs,
    gone_ms: int,
    timeouts: Timeouts,
    rebalance_timeout_ms: int,
    *,
    is_revoking: bool = False,
    has_left: bool = False,
) -> Fate:
    """Return how a member of a consumer group (KIP-848) left at `gone_ms`.

    Only heartbeats extend its session; but a member that commits has sent one an interval ago at
    most.

    Args:
        is_revoking: whether it had to give up partitions.
        has_left: whether it was a static member that had left for a restart.
    """
    silent_ms = max(gone_ms - signs.last_ms, 0)
    evidence = (Evidence("last_commit" if signs.count else "last_join", silent_ms),)
    expired, left = RemovalReason.SESSION_EXPIRED, RemovalReason.LEFT
    session_ms, heartbeat, is_known = timeouts
    if has_left:
        return Fate(expired, Certainty.CERTAIN, gone_ms, evidence=evidence)
    if is_revoking and silent_ms >= rebalance_timeout_ms - SLACK_MS:
        candidates = (RemovalReason.REBALANCE_TIMEOUT, expired, left)
        return Fate(
            RemovalReason.REBALANCE_TIMEOUT, Certainty.UNCLEAR, gone_ms, candidates, evidence
        )
    if silent_ms < session_ms - heartbeat - SLACK_MS:
        certainty = Certainty.CERTAIN if is_known else Certainty.LIKELY
        return Fate(left, certainty, gone_ms, evidence=evidence)
    if not signs.count:
        return _unclear(evidence, expired, left)
    slack_ms = (signs.usual_ms or 0) + heartbeat + SLACK_MS
    if silent_ms <= session_ms + slack_ms:
        return Fate(expired, Certainty.LIKELY, gone_ms, evidence=evidence)
    return _unclear(evidence, expired, left)
