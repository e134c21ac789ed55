"""The rules of the heartbeat thread in the consumer group protocol (KIP-848).

There is one request, ConsumerGroupHeartbeat: it joins, reports changes, and keeps the member alive;
its responses carry the member's epoch and, when it changes, the assignment. The thread sends it, so
that a member whose event loop is blocked follows the group's epochs. Only the loop can reconcile an
assignment, since that involves the application; it then changes the `Report`, which the thread
sends at once.
"""

from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple

from kohort.client.core.backoff import Backoff
from kohort.client.core.group.config import MembershipConfig
from kohort.client.core.group.heartbeat import (
    POLL_TIMEOUT_REASON,
    Answer,
    Finding,
    FindingKind,
    HeartbeatRules,
    PartitionsById,
    SendHeartbeat,
    SendLeave,
)
from kohort.client.core.group.identity import Identity
from kohort.client.core.group.rejoin import Rejoin
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_FOR_A_WHILE_EPOCH: Final = -2
"""Sent by a static member that is expected to return: its partitions are kept for it."""


class Report(NamedTuple):
    """The member's state to report to the coordinator; only changes are sent."""

    topics: frozenset[str] = frozenset()
    broker_pattern: str = ""
    """The expression that the broker resolves; empty for none."""
    owned: PartitionsById = frozenset()
    rejoin: Rejoin | None = None
    """Why the member joins or requests an assignment; dropped once a heartbeat with it has
    succeeded."""


_GONE: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)
"""Errors after which the same member may join again."""

_DENIALS: Final = frozenset(
    {ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED}
)
"""Errors that the next poll raises. The member stays, since it may be authorized again."""


class ConsumerHeartbeatRules(HeartbeatRules):
    """The `HeartbeatRules` of one member. An identity's generation is the member epoch."""

    def __init__(self, config: MembershipConfig, backoff: Backoff) -> None:
        super().__init__(config, backoff)
        self._report_now = Report()
        self._known: Report | None = None
        """The state last sent; None: unknown, so everything is sent."""
        self._sent = Report()
        self._joined_ms = 0
        self._answer: Answer | None = None

    # Called by the consumer.

    def begin(self, identity: Identity, now_ms: int) -> None:
        """Begin to join: the first heartbeat, with epoch 0, is due at once."""
        super().begin(identity, now_ms)
        self._known = None
        self._next_ms = self._joined_ms = now_ms
        # Discard findings about an earlier membership with the same id.
        self._findings.clear()
        self._answer = None

    def end(self) -> None:
        super().end()
        self._answer = None

    def report(self, report: Report, now_ms: int) -> None:
        """Set the state to report. Changes are sent at once."""
        if report != self._report_now:
            self._report_now = report
            if not self.trouble:
                self._next_ms = now_ms

    def take_findings(self) -> list[Finding]:
        answer, self._answer = self._answer, None
        findings = super().take_findings()
        if answer is None:
            return findings
        return [Finding(FindingKind.ANSWERED, answer.identity, answer=answer), *findings]

    @property
    def has_findings(self) -> bool:
        return self._answer is not None or super().has_findings

    # Called by the thread.

    def heartbeat_answered(
        self, sent: Identity, response: ConsumerGroupHeartbeatResponse, now_ms: int
    ) -> None:
        code = ErrorCode(response.error_code)
        if code is ErrorCode.NONE:
            self._succeeded(sent, response, now_ms)
        elif code in {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}:
            self._lose_coordinator(now_ms, code)
        elif sent != self._identity:
            return
        elif self._may_be_temporary(code, now_ms):
            self._try_again(code, now_ms)
        else:
            self._identity = self._identity.without_generation()
            kind = FindingKind.REJECTED
            if code is ErrorCode.FENCED_INSTANCE_ID:
                kind = FindingKind.FENCED
            elif code in _GONE and sent.generation != JOIN_EPOCH:
                kind = FindingKind.MEMBERSHIP_LOST
            self._report(kind, sent, code, response.error_message or "")

    def _may_be_temporary(self, code: ErrorCode, now_ms: int) -> bool:
        if code is ErrorCode.UNRELEASED_INSTANCE_ID:
            # Retry: the member of a crashed process has the instance id until its session expires.
            return now_ms - self._joined_ms < self._config.session_timeout_ms
        return code.retriable or code in _DENIALS or code is ErrorCode.UNKNOWN_SERVER_ERROR

    def _succeeded(
        self, sent: Identity, response: ConsumerGroupHeartbeatResponse, now_ms: int
    ) -> None:
        self._note_success(now_ms)
        self._next_ms = self._sent_ms + max(1, response.heartbeat_interval_ms)
        if sent != self._identity:
            return
        stated = self._sent.rejoin
        self._known = self._sent._replace(rejoin=None)
        if self._report_now.rejoin == stated:
            self._report_now = self._report_now._replace(rejoin=None)
        if self._report_now != self._known:
            self._next_ms = now_ms
        self._identity = sent._replace(generation=response.member_epoch)
        assignment = None
        if response.assignment is not None:
            assignment = frozenset(
                (topic.topic_id, index)
                for topic in response.assignment.topic_partitions
                for index in topic.partitions
            )
        if self._identity != sent or assignment is not None or stated is not None:
            before = self._answer or Answer(sent, None, None)
            self._answer = Answer(
                self._identity,
                before.assignment if assignment is None else assignment,
                stated or before.stated,
            )

    def _lose_coordinator(self, now_ms: int, code: ErrorCode) -> None:
        self._known = None
        super()._lose_coordinator(now_ms, code)

    def _try_again(self, code: ErrorCode, now_ms: int) -> None:
        self._known = None
        super()._try_again(code, now_ms)

    def _heartbeat(self) -> SendHeartbeat:
        self._sent = self._report_now
        return SendHeartbeat(self._identity, self._request(self._identity, self._sent))

    def _request(self, identity: Identity, report: Report) -> ConsumerGroupHeartbeatRequest:
        group, known = self._config, self._known
        request = ConsumerGroupHeartbeatRequest(
            group_id=group.group_id,
            member_id=identity.member_id,
            member_epoch=identity.generation,
            instance_id=group.group_instance_id,
        )
        if known is None:
            request.rack_id = group.rack
            request.rebalance_timeout_ms = group.max_poll_interval_ms
            request.server_assignor = group.remote_assignor
        if known is None or report.topics != known.topics:
            request.subscribed_topic_names = sorted(report.topics)
        known_pattern = known and known.broker_pattern
        if known is None and identity.generation == JOIN_EPOCH:
            known_pattern = ""
        if report.broker_pattern != known_pattern:
            request.subscribed_topic_regex = report.broker_pattern
        if known is None or report.owned != known.owned:
            request.topic_partitions = _by_topic(report.owned)
        if report.rejoin is not None:
            request.join_reason = report.rejoin.reason
            request.reason = report.rejoin.wire_text
        return request

    def _leave_for(self, identity: Identity) -> SendLeave:
        return leave_for(identity, POLL_TIMEOUT_REASON, returns=self._config.is_static)


def leave_for(identity: Identity, reason: str, *, returns: bool) -> SendLeave:
    """Return the request to leave; with `returns`, a static member keeps its partitions."""
    return SendLeave(identity, reason, LEAVE_FOR_A_WHILE_EPOCH if returns else LEAVE_EPOCH)


def _by_topic(partitions: PartitionsById) -> list[TopicPartitions]:
    return [
        TopicPartitions(topic_id=topic_id, partitions=[index for _, index in group])
        for topic_id, group in groupby(sorted(partitions), itemgetter(0))
    ]
