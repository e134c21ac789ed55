"""What causes a rebalance, told from a request alone, and how that compares with what the broker
says.
"""

from dataclasses import dataclass, field
from typing import Any

from kohort.groups.events import Trigger, TriggerKind
from kohort.groups.history.model import RebalanceRecord, TriggerRecord
from kohort.groups.history.sentence import PROBLEMS
from kohort.protocol.errors import ErrorCode
from kohort.protocol.join_reason import JoinReason
from tests.simulation.process import TEXTS, Process
from tests.support import messages as m

FORCING = {
    JoinReason.UPGRADE,
    JoinReason.SUBSCRIPTION_CHANGE,
    JoinReason.PARTITIONS_REVOKED,
    JoinReason.ENFORCED,
    JoinReason.ASSIGNOR_STATE_CHANGE,
}
REASON_OF_TEXT = {text: reason for reason, text in TEXTS.items()}
EMPTY, PREPARING, COMPLETING, STABLE = "Empty", "PreparingRebalance", "Completing", "Stable"


@dataclass(eq=False)
class Entry:
    """A member, as far as can be seen from the door."""

    process: Process
    member_id: str
    protocols: tuple[tuple[str, bytes], ...]
    session_ms: int
    rebalance_ms: int
    deadline_ms: int
    is_new: bool = True
    is_parked: bool = False
    is_syncing: bool = False
    has_synced: bool = False

    def __str__(self) -> str:
        return (
            f"{self.process}, {self.member_id}, until {self.deadline_ms}, new {self.is_new}, "
            f"parked {self.is_parked}, syncing {self.is_syncing}, synced {self.has_synced}"
        )


@dataclass(eq=False)
class Cause:
    """Cause of a rebalance, or of one that was avoided."""

    kind: TriggerKind
    process: Process | None = None
    member_id: str | None = None
    """The member's id; None while only the broker knows it."""
    was_leader: bool = False
    reason: JoinReason = JoinReason.UNKNOWN
    is_tagged: bool = False
    row: int | None = None
    at_ms: int = 0
    """Wall time."""
    error: ErrorCode = ErrorCode.NONE

    @property
    def source(self) -> str | None:
        return None if not self.reason else "tag" if self.is_tagged else "text"

    def differs_from_event(self, trigger: Trigger) -> str | None:
        member = trigger.member
        told = {
            "kind": trigger.kind,
            "member": None if member is None else member.member_id,
            "client": None if member is None else member.client_id,
            "host": None if member is None else member.client_host,
            "instance": None if member is None else member.instance_id,
            "reason": trigger.reason.reason,
            "error": trigger.error,
        }
        return self._difference(told)

    def differs_from_record(self, trigger: TriggerRecord) -> str | None:
        told = {
            "kind": trigger.kind,
            "member": trigger.member_id,
            "client": trigger.client_id,
            "host": trigger.host,
            "instance": trigger.instance_id,
            "reason": JoinReason[trigger.reason] if trigger.reason else JoinReason.UNKNOWN,
            "error": ErrorCode[trigger.error] if trigger.error else ErrorCode.NONE,
            "source": trigger.reason_source,
            "at": trigger.at_ms,
        }
        return self._difference(told)

    def _difference(self, told: dict[str, Any]) -> str | None:
        process = self.process
        known = {
            "kind": self.kind,
            "member": self.member_id,
            "client": None if process is None else process.traits.client_id,
            "host": None if process is None else f"/{process.traits.ip}",
            "instance": None if process is None else process.traits.instance,
            "reason": self.reason,
            "error": self.error,
            "source": self.source,
            "at": self.at_ms,
        }
        wrong = [
            f"{name} is {known[name]}, told {value}"
            for name, value in told.items()
            if known[name] != value
        ]
        return "; ".join(wrong) or None


@dataclass(eq=False)
class Rebalance:
    cause: Cause
    previous_generation: int
    further: list[Cause] = field(default_factory=list)
    generation: int | None = None

    def differs_from_record(self, record: RebalanceRecord) -> str | None:
        wrong = self.cause.differs_from_record(record.trigger)
        if wrong is not None:
            return wrong
        if (self.previous_generation, self.generation) != (
            record.previous_generation,
            record.generation,
        ):
            return (
                f"from generation {self.previous_generation} to {self.generation}, "
                f"told {record.previous_generation} to {record.generation}"
            )
        further = [cause for cause in record.further_causes if cause.kind not in PROBLEMS]
        if len(self.further) != len(further) + record.further_causes_dropped:
            return f"{len(self.further)} further causes, told {len(further)}"
        for cause, told in zip(self.further, further, strict=False):
            if (wrong := cause.differs_from_record(told)) is not None:
                return f"further cause: {wrong}"
        return None


def protocols_of(request: m.JoinGroupRequest) -> tuple[tuple[str, bytes], ...]:
    return tuple((offer.name, bytes(offer.metadata)) for offer in request.protocols)


def stated_reason(version: int, request: m.JoinGroupRequest) -> tuple[JoinReason, bool]:
    """What the process has said, and whether in the tag."""
    if version >= 6 and request.join_reason:
        return JoinReason(request.join_reason), True
    if version >= 8 and request.reason is not None:
        return REASON_OF_TEXT[request.reason], False
    return JoinReason.UNKNOWN, False


def row_of_replacement(reason: JoinReason, *, leads: bool) -> int:
    if reason in FORCING:
        return 10
    if reason is JoinReason.TOPIC_METADATA_CHANGE:
        return 11 if leads else 12
    return 15


def set_cause_of_rejoin(cause: Cause, phase: str, reason: JoinReason, differs: bool) -> bool:
    """Set the cause for a member rejoining under its own id; False if it has nothing to cause."""
    if phase == PREPARING or (phase == COMPLETING and not differs):
        return False
    if differs:
        cause.kind = TriggerKind.PROTOCOLS_CHANGED
        cause.row = 7 if phase == COMPLETING else 9
    elif reason in FORCING:
        cause.kind, cause.row = TriggerKind.FORCED_BY_REASON, 10
    elif reason is JoinReason.TOPIC_METADATA_CHANGE:
        cause.kind = TriggerKind.FORCED_BY_REASON
        cause.row = 11 if cause.was_leader else 12
    elif cause.was_leader:
        cause.kind = TriggerKind.LEADER_REJOINED
        cause.row = 13 if reason is JoinReason.RESTART else 14
    else:
        cause.kind, cause.row = TriggerKind.FOLLOWER_REJOINED, 16
        return bool(cause.reason)
    return True


def renews_session(
    request: object,
    answer: Any,  # noqa: ANN401 - of any request.
    refusal: ErrorCode | None = None,
) -> bool:
    """Whether this answer, given at once, means that the member was heard of. `refusal` is what a
    member is told that was heard of, and whose positions could not be stored.
    """
    match request:
        case m.HeartbeatRequest():
            return answer.error_code in {ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS}
        case m.OffsetCommitRequest():
            return answer.topics[0].partitions[0].error_code in {ErrorCode.NONE, refusal}
        case _:
            return False
