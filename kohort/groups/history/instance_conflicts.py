"""Instance ids that two processes use: each takes the id from the other, perhaps every second for
hours, so a conflict is recorded at most once per `RECORDED_AGAIN_MS`.
"""

from typing import Final

from kohort.groups.events import MemberFenced, MemberRef, Trigger, TriggerKind
from kohort.protocol.errors import ErrorCode

INSTANCES_KEPT: Final = 100
TAKEN_BACK_MS: Final = 10_000
"""An instance id that is taken over twice within this time was taken back by its former process."""
RECORDED_AGAIN_MS: Final = 600_000


class InstanceConflicts:
    """The instance id conflicts of one group. Times are in monotonic milliseconds."""

    __slots__ = ("_recorded_until", "_replaced_ms", "_successors")

    def __init__(self) -> None:
        self._recorded_until: dict[str, int] = {}
        """By instance id, the time until which a conflict is not recorded again."""
        self._replaced_ms: dict[str, int] = {}
        """When an instance id with a recorded conflict was last taken over."""
        self._successors: dict[str, MemberRef] = {}
        """Processes that took over an instance id, by the member ids of their predecessors."""

    def replaced(self, old_member_id: str, successor: MemberRef) -> None:
        """Record that a process has taken over an instance id."""
        self._successors[old_member_id] = successor
        if len(self._successors) > INSTANCES_KEPT:
            del self._successors[next(iter(self._successors))]

    def fenced(self, event: MemberFenced, now_ms: int) -> Trigger | None:
        """Return the conflict that caused a member to be fenced; None if there is none, or if a
        conflict on this instance id has been recorded recently.
        """
        successor = self._successors.pop(event.member_id, None)
        instance = event.instance_id
        if successor is None or now_ms < self._recorded_until.get(instance, now_ms):
            return None
        self._recorded_until[instance] = now_ms + RECORDED_AGAIN_MS
        if len(self._recorded_until) > INSTANCES_KEPT:
            self._replaced_ms.pop(oldest := next(iter(self._recorded_until)), None)
            del self._recorded_until[oldest]
        return Trigger(TriggerKind.INSTANCE_FENCED, successor, error=ErrorCode.FENCED_INSTANCE_ID)

    def explains(self, trigger: Trigger, now_ms: int) -> bool:
        """Whether a recorded conflict explains an avoided rebalance: a process has taken back an
        instance id soon after another process took it. To be called once for each avoided
        rebalance.
        """
        instance = None if trigger.member is None else trigger.member.instance_id
        is_return = trigger.kind is TriggerKind.STATIC_REPLACED
        if not is_return or instance is None or instance not in self._recorded_until:
            return False
        before_ms = self._replaced_ms.get(instance)
        self._replaced_ms[instance] = now_ms
        return before_ms is not None and now_ms - before_ms < TAKEN_BACK_MS
