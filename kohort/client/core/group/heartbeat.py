"""The rules of the heartbeat thread: when to send what, and what the answers mean.

Pure: the thread asks `next_action`, does it, and tells what came of it. What the consumer has to
know is collected as findings, each with the identity that it is about, and acted upon by the
consumer only if it still has that identity.
"""

from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from kohort.client.core.backoff import Backoff
from kohort.client.core.errors import is_refusal
from kohort.client.core.group.identity import NOBODY, Identity
from kohort.client.core.group.statistics import HeartbeatStatistics
from kohort.protocol.errors import ErrorCode

POLL_TIMEOUT_REASON: Final = "consumer poll timeout has expired"


class HeartbeatConfig(NamedTuple):
    """Kafka's settings of these names."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    is_static: bool = False


class Wait(NamedTuple):
    """Nothing to do until then, or until something changes; None: for ever."""

    until_ms: int | None


class SendHeartbeat(NamedTuple):
    """Ask the coordinator whether the identity still holds."""

    identity: Identity


class SendLeave(NamedTuple):
    """Say goodbye for a consumer that does not poll any more."""

    identity: Identity
    reason: str


class LookUpCoordinator(NamedTuple):
    """Ask any broker who coordinates the group."""


Action: TypeAlias = Wait | SendHeartbeat | SendLeave | LookUpCoordinator


class FindingKind(Enum):
    """What the thread learnt."""

    REBALANCING = "rebalancing"
    """To be joined, if the consumer thought that all was settled."""
    GENERATION_LOST = "generation lost"
    """Join again under the same member id."""
    MEMBERSHIP_LOST = "membership lost"
    """Join again as a new member."""
    POLL_EXPIRED = "poll expired"
    """The same, by our own doing: max.poll.interval.ms has passed without a poll."""
    COORDINATOR_LOST = "coordinator lost"
    REFUSED = "refused"
    """To be raised by the next poll. Heartbeats go on: what is refused may be allowed again before
    the session is over."""
    LOCKED_OUT = "locked out"
    """To be raised by the next poll. No heartbeats any more: the broker does not know the user."""
    FENCED = "fenced"
    """To be raised by every poll: another process has taken over the name of this member."""


class Finding(NamedTuple):
    """Something that the consumer has to know."""

    kind: FindingKind
    identity: Identity
    code: ErrorCode = ErrorCode.NONE


_ENDS: Final = {
    ErrorCode.ILLEGAL_GENERATION: FindingKind.GENERATION_LOST,
    ErrorCode.UNKNOWN_MEMBER_ID: FindingKind.MEMBERSHIP_LOST,
    ErrorCode.GROUP_ID_NOT_FOUND: FindingKind.MEMBERSHIP_LOST,
    ErrorCode.FENCED_INSTANCE_ID: FindingKind.FENCED,
}
"""Errors after which there is no member to send heartbeats for."""


class HeartbeatRules:
    """Rules of one consumer. At most one request is under way: after an action that sends one,
    exactly one of `answered`, `failed`, `left` or `found_coordinator` is called.
    """

    def __init__(self, config: HeartbeatConfig, backoff: Backoff) -> None:
        self._config = config
        self._backoff = backoff
        self._identity = NOBODY
        self._is_coordinator_known = False
        self._sent_ms = 0
        self._next_ms = 0
        self._polled_ms = 0
        self._findings: list[Finding] = []
        self._heard_ms = 0
        """The last sign of life, or when the coordinator was found or last doubted."""
        self.last_success_ms: int | None = None
        self.trouble = ErrorCode.NONE
        """The last answer, or the lack of one; NONE if it was good."""
        self.statistics = HeartbeatStatistics()

    # What the consumer says.

    def begin(self, identity: Identity, now_ms: int) -> None:
        """A JoinGroup was answered: from here on the member has to show that it lives."""
        self._identity = identity
        self._is_coordinator_known = True
        self.trouble = ErrorCode.NONE
        self._backoff.succeed()
        self._heard_ms = now_ms
        self._next_ms = now_ms + self._config.heartbeat_interval_ms

    def end(self) -> None:
        """No member, or one whose JoinGroup is on its way and keeps it alive."""
        self._identity = NOBODY

    def polled(self, now_ms: int) -> None:
        """The application has called poll, or waits in it."""
        self._polled_ms = max(self._polled_ms, now_ms)

    def take_findings(self) -> list[Finding]:
        """What was learnt since the last call."""
        taken, self._findings = self._findings, []
        return taken

    @property
    def has_member(self) -> bool:
        """Whether there is a member to send heartbeats for."""
        return self._identity.is_valid

    @property
    def is_coordinator_known(self) -> bool:
        """Whether heartbeats can be sent, as far as is known."""
        return self._is_coordinator_known

    @property
    def has_findings(self) -> bool:
        return bool(self._findings)

    # What the thread asks and tells.

    def next_action(self, now_ms: int) -> Action:
        """What to do now. An action other than Wait counts as begun."""
        identity = self._identity
        if not identity.is_valid:
            return Wait(None)
        poll_deadline_ms = self._polled_ms + self._config.max_poll_interval_ms
        if now_ms >= poll_deadline_ms:
            self._report(FindingKind.POLL_EXPIRED, identity)
            self._identity = NOBODY
            if self._config.is_static or not self._is_coordinator_known:
                # A static member may come back within its session; leaving would move partitions.
                return Wait(None)
            return SendLeave(identity, POLL_TIMEOUT_REASON)
        self._watch_session(now_ms)
        if now_ms < self._next_ms:
            return Wait(min(self._next_ms, poll_deadline_ms))
        if not self._is_coordinator_known:
            return LookUpCoordinator()
        self._sent_ms = now_ms
        return SendHeartbeat(identity)

    def answered(self, sent: Identity, code: ErrorCode, now_ms: int) -> None:
        """The coordinator's answer to a heartbeat."""
        if code in {ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS}:
            self._backoff.succeed()
            self.trouble = ErrorCode.NONE
            self.last_success_ms = self._heard_ms = now_ms
            self.statistics.answered(self._sent_ms, now_ms)
            self._next_ms = self._sent_ms + self._config.heartbeat_interval_ms
            if code and sent == self._identity:
                self._report(FindingKind.REBALANCING, sent, code)
        elif code in {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}:
            self._lose_coordinator(now_ms, code)
        elif code not in _ENDS:
            # As Java does, an error that it does not know included: one odd answer among many is no
            # reason to give up a membership that holds for a whole session.
            self._try_again(code, now_ms)
        elif sent == self._identity:
            self._identity = NOBODY
            self._report(_ENDS[code], sent, code)

    def failed(self, now_ms: int) -> None:
        """The connection was lost, or no answer came in time."""
        self._lose_coordinator(now_ms, ErrorCode.NETWORK_EXCEPTION)

    def refused(self, code: ErrorCode) -> None:
        """The broker does not let us in any more; nothing more is sent for this member."""
        self._report(
            FindingKind.LOCKED_OUT, self._identity, code or ErrorCode.SASL_AUTHENTICATION_FAILED
        )
        self._identity = NOBODY

    def found_coordinator(self, code: ErrorCode, now_ms: int) -> None:
        """The answer to FindCoordinator; NETWORK_EXCEPTION if there was none."""
        if code is ErrorCode.NONE:
            self._is_coordinator_known = True
            # It is not to be doubted for the silence of the time in which there was none.
            self._next_ms = self._heard_ms = now_ms
        else:
            self._try_again(code, now_ms)

    def _watch_session(self, now_ms: int) -> None:
        """A coordinator that has been silent for a whole session may not be one any more."""
        is_silent = now_ms - self._heard_ms >= self._config.session_timeout_ms
        if is_silent and self._is_coordinator_known:
            self._heard_ms = now_ms
            self._lose_coordinator(now_ms, ErrorCode.REQUEST_TIMED_OUT)

    def _try_again(self, code: ErrorCode, now_ms: int) -> None:
        self.trouble = code
        self._next_ms = now_ms + self._backoff.fail()
        if is_refusal(code) and self._identity.is_valid:
            self._report(FindingKind.REFUSED, self._identity, code)

    def _lose_coordinator(self, now_ms: int, code: ErrorCode) -> None:
        self._is_coordinator_known = False
        self.trouble = code
        self._next_ms = now_ms + self._backoff.fail()
        if self._identity.is_valid:
            self._report(FindingKind.COORDINATOR_LOST, self._identity, code)

    def _report(
        self, kind: FindingKind, identity: Identity, code: ErrorCode = ErrorCode.NONE
    ) -> None:
        finding = Finding(kind, identity, code)
        # A consumer that does not look for minutes needs to be told once.
        if finding not in self._findings:
            self._findings.append(finding)
