"""The rules of the heartbeat thread: when to send which request, and what the responses mean.

No I/O: the thread calls `next_action`, performs it, and reports the result. Events for the consumer
are collected as findings. Each has the identity (member id and generation) that it concerns; the
consumer ignores a finding about an earlier identity.
"""

from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from kohort.client.core.backoff import Backoff
from kohort.client.core.errors import is_refusal
from kohort.client.core.group.config import MembershipConfig
from kohort.client.core.group.identity import NO_MEMBER, Identity
from kohort.client.core.group.rejoin import Rejoin
from kohort.client.core.group.statistics import HeartbeatStatistics
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

POLL_TIMEOUT_REASON: Final = "consumer poll timeout has expired"


PartitionsById: TypeAlias = frozenset[tuple[bytes, int]]
"""Partitions as (topic id, partition index)."""


class Wait(NamedTuple):
    """Wait until `until_ms` (None: no time limit), or until something changes."""

    until_ms: int | None


class SendHeartbeat(NamedTuple):
    identity: Identity
    request: ConsumerGroupHeartbeatRequest | None = None
    """The heartbeat of the consumer group protocol; None: send a classic Heartbeat."""


class SendLeave(NamedTuple):
    """Leave the group, because the consumer unsubscribes, closes, or does not poll any more."""

    identity: Identity
    reason: str
    leave_epoch: int | None = None
    """The epoch to leave with in the consumer group protocol; None: send a LeaveGroup."""


class LookUpCoordinator(NamedTuple):
    """Ask any broker for the group's coordinator."""


Action: TypeAlias = Wait | SendHeartbeat | SendLeave | LookUpCoordinator


class Answer(NamedTuple):
    """The combined heartbeat responses since findings were last taken (KIP-848)."""

    identity: Identity
    assignment: PartitionsById | None
    """The new assignment; None if it has not changed."""
    stated: Rejoin | None
    """The last rejoin reason in the answered heartbeats; None if there was none."""


class FindingKind(Enum):
    ANSWERED = "answered"
    """A heartbeat changed the member's epoch or assignment, or delivered a rejoin reason."""

    REBALANCING = "rebalancing"
    """The group is rebalancing: rejoin, unless the consumer is already doing so."""
    GENERATION_LOST = "generation lost"
    """The group does not know the member's generation: rejoin under the same member id."""
    MEMBERSHIP_LOST = "membership lost"
    """The member is no longer in the group: rejoin as a new member."""
    POLL_EXPIRED = "poll expired"
    """Rejoin as a new member: this client has ended its membership, since max.poll.interval.ms has
    passed without a poll."""
    COORDINATOR_LOST = "coordinator lost"
    REFUSED = "refused"
    """The next poll raises the error. Heartbeats continue, since the member may be authorized again
    before its session expires."""
    LOCKED_OUT = "locked out"
    """Authentication failed: the next poll raises the error, and no more heartbeats are sent."""
    REJECTED = "rejected"
    """The next poll raises the error. Heartbeats have stopped; a later poll joins again."""
    FENCED = "fenced"
    """Every poll raises the error: another process has taken over this member's instance id."""


class Finding(NamedTuple):
    kind: FindingKind
    identity: Identity
    code: ErrorCode = ErrorCode.NONE
    message: str = ""
    answer: Answer | None = None
    """The combined heartbeat responses of an ANSWERED finding; otherwise None."""


_ENDS: Final = {
    ErrorCode.ILLEGAL_GENERATION: FindingKind.GENERATION_LOST,
    ErrorCode.UNKNOWN_MEMBER_ID: FindingKind.MEMBERSHIP_LOST,
    ErrorCode.GROUP_ID_NOT_FOUND: FindingKind.MEMBERSHIP_LOST,
    ErrorCode.FENCED_INSTANCE_ID: FindingKind.FENCED,
}
"""Errors after which there is no member to send heartbeats for."""


class HeartbeatRules:
    """Plans one consumer's heartbeats, one request at a time. The thread reports each result with
    `answered` (`heartbeat_answered` in the consumer group protocol), `found_coordinator`, `failed`
    or `refused`, except the response to a leave request.
    """

    def __init__(self, config: MembershipConfig, backoff: Backoff) -> None:
        self._config = config
        self._backoff = backoff
        self._identity = NO_MEMBER
        self._is_coordinator_known = False
        self._sent_ms = 0
        self._sent_count = 0
        self._wanted_count = 0
        self._confirmed_before = 0
        self.confirmed = 0
        """The number of the last heartbeat that succeeded; see `confirm`."""
        self._next_ms = 0
        self._polled_ms = 0
        self.expired: Identity | None = None
        """The identity that was ended because polls were too far apart; None after `begin`."""
        self._findings: list[Finding] = []
        self._heard_ms = 0
        """When the coordinator last responded, was found, or was dropped because it was silent."""
        self.last_success_ms: int | None = None
        self.trouble = ErrorCode.NONE
        """The error of the last heartbeat or lookup; NONE after a successful heartbeat."""
        self.statistics = HeartbeatStatistics()

    # Called by the consumer.

    def begin(self, identity: Identity, now_ms: int) -> None:
        """Begin heartbeats for a member, because its JoinGroup was answered."""
        self._identity = identity
        self.expired = None
        self._is_coordinator_known = True
        self.trouble = ErrorCode.NONE
        self._backoff.succeed()
        self._heard_ms = now_ms
        self._next_ms = now_ms + self._config.heartbeat_interval_ms

    def end(self) -> None:
        """Stop heartbeats: there is no member, or a pending JoinGroup keeps the member alive."""
        self._identity = NO_MEMBER

    def polled(self, now_ms: int) -> None:
        """Record that the application polls, or is waiting in a poll."""
        self._polled_ms = max(self._polled_ms, now_ms)

    def confirm(self) -> int:
        """Make a heartbeat due now, and return its number: once `confirmed` reaches it, a heartbeat
        that was sent after this call has succeeded.
        """
        self._wanted_count = self._sent_count + 1
        return self._wanted_count

    def take_findings(self) -> list[Finding]:
        self._confirmed_before = self.confirmed
        taken, self._findings = self._findings, []
        return taken

    @property
    def has_member(self) -> bool:
        return self._identity.is_valid

    @property
    def is_coordinator_known(self) -> bool:
        """Whether the coordinator is known; if not, it is looked up before the next heartbeat."""
        return self._is_coordinator_known

    @property
    def has_findings(self) -> bool:
        """Whether there are findings, or a heartbeat requested by `confirm` has succeeded."""
        is_confirmed = self._confirmed_before < self._wanted_count <= self.confirmed
        return is_confirmed or bool(self._findings)

    # Called by the thread.

    def next_action(self, now_ms: int) -> Action:
        """Return the next action. The caller must perform it: a heartbeat counts as sent."""
        identity = self._identity
        if not identity.is_valid:
            return Wait(None)
        poll_deadline_ms = self._polled_ms + self._config.max_poll_interval_ms
        if now_ms >= poll_deadline_ms:
            self._report(FindingKind.POLL_EXPIRED, identity)
            self._identity = NO_MEMBER
            self.expired = identity
            can_leave = self._is_coordinator_known
            return (self._leave_for(identity) if can_leave else None) or Wait(None)
        self._watch_session(now_ms)
        is_wanted = self._wanted_count > self._sent_count and not self.trouble
        if now_ms < self._next_ms and not (is_wanted and self._is_coordinator_known):
            return Wait(min(self._next_ms, poll_deadline_ms))
        if not self._is_coordinator_known:
            return LookUpCoordinator()
        self._sent_ms = now_ms
        self._sent_count += 1
        return self._heartbeat()

    def answered(self, sent: Identity, code: ErrorCode, now_ms: int) -> None:
        if code in {ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS}:
            self._note_success(now_ms)
            self._next_ms = self._sent_ms + self._config.heartbeat_interval_ms
            if code and sent == self._identity:
                self._report(FindingKind.REBALANCING, sent, code)
        elif code in {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}:
            self._lose_coordinator(now_ms, code)
        elif code not in _ENDS:
            # As in Java, retry even after an unknown error: the membership is valid for a whole
            # session, so a single odd response should not end it.
            self._try_again(code, now_ms)
        elif sent == self._identity:
            self._identity = NO_MEMBER
            self._report(_ENDS[code], sent, code)

    def failed(self, now_ms: int) -> None:
        """Process a lost connection or a timeout."""
        self._lose_coordinator(now_ms, ErrorCode.NETWORK_EXCEPTION)

    def refused(self, code: ErrorCode) -> None:
        """Authentication failed: send nothing more for this member."""
        self._report(
            FindingKind.LOCKED_OUT, self._identity, code or ErrorCode.SASL_AUTHENTICATION_FAILED
        )
        self._identity = NO_MEMBER

    def found_coordinator(self, code: ErrorCode, now_ms: int) -> None:
        """Process a FindCoordinator response; `code` is NETWORK_EXCEPTION if there was none."""
        if code is ErrorCode.NONE:
            self._is_coordinator_known = True
            # Measure silence from now on: without a known coordinator no heartbeat could be
            # answered.
            self._next_ms = self._heard_ms = now_ms
        else:
            self._try_again(code, now_ms)

    def _heartbeat(self) -> SendHeartbeat:
        return SendHeartbeat(self._identity)

    def _leave_for(self, identity: Identity) -> SendLeave | None:
        """Return the leave request of a member that no longer polls; None: do not leave."""
        # A static member may return within its session; leaving would move its partitions.
        return None if self._config.is_static else SendLeave(identity, POLL_TIMEOUT_REASON)

    def _note_success(self, now_ms: int) -> None:
        self._backoff.succeed()
        self.trouble = ErrorCode.NONE
        self.confirmed = self._sent_count
        self.last_success_ms = self._heard_ms = now_ms
        self.statistics.answered(self._sent_ms, now_ms)

    def _watch_session(self, now_ms: int) -> None:
        """Look up the coordinator again if it has been silent for the session timeout."""
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
        self,
        kind: FindingKind,
        identity: Identity,
        code: ErrorCode = ErrorCode.NONE,
        message: str = "",
    ) -> None:
        finding = Finding(kind, identity, code, message)
        # Store equal findings once: they would pile up if the consumer does not poll for minutes.
        if finding not in self._findings:
            self._findings.append(finding)
