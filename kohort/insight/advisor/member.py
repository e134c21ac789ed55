"""A simulated client process of a classic group: joins, syncs and sends heartbeats, with recorded
delays.

It behaves like the Java client: a static member does not send LeaveGroup, and an eager member
revokes its partitions before it joins. It sends a JoinReason only if `Setting.states_reasons`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

from kohort.groups.reasons import StatedReason, state_reason
from kohort.groups.requests import JoinRequest, JoinResult, SyncRequest, SyncResult
from kohort.insight.advisor.member_lifetimes import AGAIN_MS
from kohort.insight.advisor.replay import Process, RequestHandle
from kohort.insight.advisor.shares import NOTHING
from kohort.insight.advisor.trace import ANSWER_DEFAULT_MS
from kohort.protocol.errors import ErrorCode
from kohort.protocol.join_reason import JoinReason

if TYPE_CHECKING:
    from kohort.insight.advisor.classic_replay import ClassicReplay


_TEXTS: Final = {
    JoinReason.TOPIC_METADATA_CHANGE: "cached metadata has changed",
    JoinReason.PARTITIONS_REVOKED: "need to revoke partitions and re-join",
    JoinReason.ENFORCED: "rebalance enforced by user",
    JoinReason.GROUP_REBALANCING: "group is already rebalancing",
}
"""Reason texts of the Java client (KIP-800). They do not affect the replay, but make its records
easier to read."""
_STATED: Final[dict[tuple[int, JoinReason], StatedReason]] = {}


def _state(reason_code: int, reason: JoinReason) -> StatedReason:
    stated = _STATED[reason_code, reason] = state_reason(reason_code, _TEXTS.get(reason))
    return stated


class Phase(Enum):
    JOINING = auto()
    """The member waits for the response to a JoinGroup."""
    JOINED = auto()
    """The join is answered; the SyncGroup waits for its response, or is about to be sent."""
    SETTLED = auto()
    """The member has its assignment."""
    NOTIFIED = auto()
    """The member knows of a rebalance, and has not joined it yet."""
    GONE = auto()


@dataclass(slots=True, eq=False)
class SimulatedMember(Process):
    replay: ClassicReplay
    generation: int = -1
    phase: Phase = Phase.JOINING
    topics_version: int = 0
    is_new: bool = True
    """True until a JoinGroup with the present member id succeeds."""
    wants_rejoin: bool = False
    _joined_ms: int = 0
    """Time of the response to the member's last JoinGroup."""
    _number: int = 0
    _pending: int = 0
    """`RequestHandle.number` of the pending request; 0 if none is pending."""
    _missed: list[tuple[RequestHandle, Any]] = field(default_factory=list)

    @property
    def waits_for_answer(self) -> bool:
        return self._pending == self._number

    @property
    def is_alive(self) -> bool:
        return self.phase is not Phase.GONE

    @property
    def sends_heartbeats(self) -> bool:
        return self.is_alive and not self.is_paused and not self.is_new

    # Joining.

    def join(self) -> None:
        """Send a JoinGroup for the next generation."""
        replay, setting = self.replay, self.replay.setting
        if self.phase in {Phase.SETTLED, Phase.NOTIFIED}:
            self.heartbeat_times.on_join_sent(replay.now_ms)
        self.phase = Phase.JOINING
        if not setting.cooperative:
            self._lose()
        reason_code = int(self.reason) if setting.states_reasons else 0
        name, data = replay.protocol, self._subscription()
        request = JoinRequest(
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.slot.client_id,
            client_host=self.slot.host,
            session_timeout_ms=setting.session_timeout_ms,
            rebalance_timeout_ms=setting.rebalance_timeout_ms,
            protocol_type=replay.encoding.protocol_type,
            protocols=((name, data),),
            reason=_STATED.get((reason_code, self.reason)) or _state(reason_code, self.reason),
        )
        replay.join(self, request, self._new_handle())

    def _subscription(self) -> bytes:
        owned = self.owned if self.replay.setting.cooperative else NOTHING
        return self.replay.encoding.subscription(self.topics_version, owned, self.generation)

    def _new_handle(self) -> RequestHandle:
        self._number += 1
        self._pending = self._number
        return RequestHandle(self, self._number)

    def answered(self, handle: RequestHandle, body: Any) -> None:  # noqa: ANN401 - of either request.
        if not self.is_alive or handle.number != self._number:
            return
        self._pending = 0
        if self.is_paused:
            self._missed.append((handle, body))
        elif self.is_leaving and body.error is not ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = body.member_id if isinstance(body, JoinResult) else self.member_id
            self.replay.leave(self)
        elif isinstance(body, JoinResult):
            self._on_joined(body)
        else:
            self._on_synced(body)

    def _on_joined(self, result: JoinResult) -> None:
        error = result.error
        if error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = result.member_id
            self.join()
        elif error is ErrorCode.NONE:
            self.member_id = result.member_id
            self.is_new = False
            self.generation = result.generation
            self.phase = Phase.JOINED
            self.reason = JoinReason.UNKNOWN
            self._joined_ms = self.replay.now_ms
            self.heartbeat_times.on_join_answered(self.replay.now_ms)
            self._sync_later(result)
        else:
            self._on_error(error)

    def _sync_later(self, result: JoinResult) -> None:
        replay, slot, now_ms = self.replay, self.slot, self.replay.now_ms
        leads = result.leader == self.member_id and bool(result.members)
        if leads and not result.skip_assignment:
            delay_ms = slot.assign.near(now_ms, replay.trace.default_assign_ms, replay.random)
            ids = [member.member_id for member in result.members]
        else:
            delay_ms = slot.sync.near(now_ms, replay.trace.default_sync_ms, replay.random)
            ids = []
        number = self._number

        def sync() -> None:
            if self.phase is Phase.JOINED and self._number == number:
                self.replay.run_when_awake(self, lambda: self._sync(ids))

        replay.after(delay_ms, sync)

    def _sync(self, member_ids: list[str]) -> None:
        if self.phase is not Phase.JOINED:
            return
        replay = self.replay
        request = SyncRequest(
            member_id=self.member_id,
            instance_id=self.instance_id,
            generation=self.generation,
            protocol_type=replay.encoding.protocol_type,
            protocol_name=replay.protocol,
            assignments=replay.assign(self.generation, member_ids) if member_ids else {},
        )
        replay.members.sync(request, self._new_handle(), replay.clock)

    def _on_synced(self, result: SyncResult) -> None:
        if result.error is not ErrorCode.NONE:
            self._on_error(result.error)
            return
        replay = self.replay
        before = self.owned
        self.owned = replay.share_of(self)
        self.phase = Phase.SETTLED
        replay.meter.synced(self.member_id, self.owned, replay.now_ms)
        replay.meter.stop_reading(before - self.owned, replay.now_ms)
        replay.meter.start_reading(self.owned, replay.now_ms)
        beats_at_once = self.heartbeat_times.on_assigned(replay.now_ms)
        if before - self.owned:
            self._rejoin_later(JoinReason.PARTITIONS_REVOKED, self._revocation_ms())
        elif self.wants_rejoin:
            self._rejoin_later(self.reason, 0)
        elif not replay.is_calm and beats_at_once:
            self.send_heartbeat()
        elif not replay.is_calm:
            replay.schedule_heartbeat(self)

    def _rejoin_later(self, reason: JoinReason, delay_ms: int) -> None:
        self.reason = reason
        self.phase = Phase.NOTIFIED
        self._join_in(delay_ms)

    def _join_in(self, delay_ms: int) -> None:
        number = self._number

        def join() -> None:
            if self.phase is Phase.NOTIFIED and self._number == number:
                self.replay.run_when_awake(self, self._join_if_notified)

        self.replay.after(delay_ms, join)

    def _join_if_notified(self) -> None:
        if self.phase is Phase.NOTIFIED:
            self.wants_rejoin = False
            self.join()

    def _on_error(self, error: ErrorCode) -> None:
        """Handle an error like the Java client."""
        if error is ErrorCode.REBALANCE_IN_PROGRESS:
            self._on_notified()
        elif error is ErrorCode.FENCED_INSTANCE_ID:
            self.replay.end_process(self)
        else:
            if error is ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id, self.is_new = "", True
            self.generation = -1
            self._lose()
            self.reason = JoinReason.MEMBERSHIP_LOST
            self.join()

    def _on_notified(self) -> None:
        if not self.reason:
            self.reason = JoinReason.GROUP_REBALANCING
        self.phase = Phase.NOTIFIED
        self._join_in(self._join_delay_ms())

    def _join_delay_ms(self) -> int:
        """Return the time from the notification to the join.

        An eager member revokes its partitions in this time. If it was cooperative in the history,
        the revocation time is added; if it was eager and is cooperative in the replay, the delay is
        at most that of a member without partitions.
        """
        replay, trace = self.replay, self.replay.trace
        if not self.slot.join.took_ms:
            replay.meter.count_guess(replay.now_ms)
        if replay.now_ms - self._joined_ms <= AGAIN_MS and trace.default_again_ms is not None:
            took_ms = self.slot.again.near(replay.now_ms, trace.default_again_ms, replay.random)
        else:
            took_ms = self.slot.join.near(replay.now_ms, trace.default_join_ms, replay.random)
        if replay.setting.cooperative == trace.recorded.cooperative:
            return took_ms
        if replay.setting.cooperative:
            return min(took_ms, trace.quick_join_ms)
        return took_ms + (self._revocation_ms() if self.owned else 0)

    def _revocation_ms(self) -> int:
        """Return the time that revoking partitions takes: at least the time until the other members
        have received the assignment that requires the revocation.
        """
        replay, trace = self.replay, self.replay.trace
        if trace.recorded.cooperative:
            if not self.slot.revoke.took_ms:
                replay.meter.count_guess(replay.now_ms)
            took_ms = self.slot.revoke.near(replay.now_ms, trace.revoke_ms, replay.random)
            return max(took_ms, ANSWER_DEFAULT_MS)
        took_ms = self.slot.join.near(replay.now_ms, trace.default_join_ms, replay.random)
        return max(took_ms - trace.quick_join_ms, trace.default_sync_ms, ANSWER_DEFAULT_MS)

    def _lose(self) -> None:
        self.replay.meter.stop_reading(self.owned, self.replay.now_ms)
        self.owned = NOTHING

    # Membership.

    def send_heartbeat(self) -> None:
        if self.phase is not Phase.SETTLED or self.is_paused:
            return
        replay = self.replay
        self.heartbeat_times.origin_ms = replay.now_ms
        error = replay.members.heartbeat(
            self.member_id, self.instance_id, self.generation, replay.now_ms
        )
        if error:
            self._on_error(error)
        elif not replay.is_calm:
            replay.schedule_heartbeat(self)

    def rejoin(self, reason: JoinReason, *, changes_protocols: bool) -> None:
        self.topics_version += changes_protocols
        if self.phase is Phase.SETTLED and not self.is_paused:
            self.reason = reason
            self.join()
        elif self.phase in {Phase.JOINING, Phase.JOINED} and changes_protocols:
            self.wants_rejoin, self.reason = True, reason

    def wake(self) -> None:
        if not self.is_alive:
            return
        self.is_paused = False
        missed, self._missed = self._missed, []
        for handle, body in missed:
            self.answered(handle, body)
        self.send_heartbeat()
        if self.phase is Phase.SETTLED:
            self.replay.meter.start_reading(self.owned, self.replay.now_ms)

    def end(self) -> None:
        self.phase = Phase.GONE
