"""A simulated client process of a consumer group. It sends heartbeats at the broker's interval, and
another as soon as it has applied an assignment. Revoking partitions takes the recorded time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kohort.groups.consumer.requests import HeartbeatRequest
from kohort.groups.member_sessions import HeartbeatResult
from kohort.groups.reasons import NO_REASON, state_reason
from kohort.insight.advisor.replay import Process, RequestHandle
from kohort.insight.advisor.shares import NOTHING, Share
from kohort.insight.advisor.trace import ANSWER_DEFAULT_MS
from kohort.protocol.errors import ErrorCode
from kohort.protocol.join_reason import JoinReason

if TYPE_CHECKING:
    from kohort.insight.advisor.consumer_replay import ConsumerReplay

TOPIC: Final = "replayed"
TOPIC_ID: Final = b"\xff" * 16
WATCHED: Final = "watched"
RETRY_MS: Final = (800, 1_200)
"""Range of the delay after which a process retries to join if its instance id is not released yet:
the longest backoff of a client, with its jitter. Stock clients treat the error as fatal, and a
supervisor restarts them."""


@dataclass(slots=True, eq=False)
class ConsumerMember(Process):
    replay: ConsumerReplay
    epoch: int = 0
    is_alive: bool = True
    _subscription: int = 0
    """Number of times that the member has changed its subscription."""
    _assigned: Share = NOTHING
    """The last assignment in a response."""
    _target: Share | None = None
    """The assignment that is being applied."""
    number: int = 0
    scheduled: int = 0
    """The last request's `number` when a heartbeat was last scheduled."""

    @property
    def sends_heartbeats(self) -> bool:
        return self.is_alive and not self.is_paused

    # Requests.

    def join(self) -> None:
        self.epoch = 0
        self._send(owned=NOTHING)

    def request(
        self, epoch: int, *, owned: Share | None = None, states_topics: bool = False
    ) -> HeartbeatRequest:
        """Return a heartbeat with `epoch`, which is 0 to join and negative to leave."""
        setting, topics = self.replay.setting, (TOPIC, WATCHED, f"other-{self._subscription}")
        states_reason = setting.states_reasons and self.reason is not JoinReason.UNKNOWN
        return HeartbeatRequest(
            member_id=self.member_id,
            epoch=epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=-1 if epoch else setting.rebalance_timeout_ms,
            topic_names=topics if states_topics or not epoch else None,
            owned=None if owned is None else frozenset((TOPIC_ID, number) for number in owned),
            client_id=self.slot.client_id,
            client_host=self.slot.host,
            reason=state_reason(int(self.reason), None) if states_reason else NO_REASON,
        )

    def _send(self, *, owned: Share | None = None, states_topics: bool = False) -> None:
        self.number += 1
        self.heartbeat_times.origin_ms = self.replay.now_ms
        request = self.request(self.epoch, owned=owned, states_topics=states_topics)
        self.replay.heartbeat(request, RequestHandle(self, self.number))

    def send_heartbeat(self) -> None:
        if self.epoch and self.sends_heartbeats:
            self._send()

    def answered(self, handle: RequestHandle, body: HeartbeatResult) -> None:
        if not self.is_alive or handle.number != self.number:
            return
        if body.error is not ErrorCode.NONE:
            self._on_error(body.error)
            return
        self.epoch, self.reason = body.epoch, JoinReason.UNKNOWN
        if body.assigned is not None:
            self._assigned = frozenset(number for _, number in body.assigned)
        if self._target is None and self._assigned != self.owned:
            self._apply_later(self._assigned)
        elif not self.replay.is_reconciled(self):
            self.replay.schedule_heartbeat(self)

    def _on_error(self, error: ErrorCode) -> None:
        if error is ErrorCode.FENCED_INSTANCE_ID:
            self.replay.end_process(self)
        elif error is ErrorCode.UNRELEASED_INSTANCE_ID:
            delay_ms = self.replay.random.randint(*RETRY_MS)
            self.replay.after(delay_ms, lambda: self.replay.run_when_awake(self, self._join_again))
        else:
            self.replay.meter.stop_reading(self.owned, self.replay.now_ms)
            self.epoch, self.reason = 0, JoinReason.MEMBERSHIP_LOST
            self.owned = self._assigned = NOTHING
            if self._target is None:
                self.join()

    def _join_again(self) -> None:
        if self.is_alive:
            self.join()

    # Assignments.

    def _apply_later(self, target: Share) -> None:
        """Stop reading the partitions that are not in `target`; after a delay, own `target`."""
        replay, lost = self.replay, self.owned - target
        replay.meter.stop_reading(lost, replay.now_ms)
        self._target = target
        delay_ms = self._time_to_give_up_ms() if lost else self._time_to_notice_ms()
        replay.after(delay_ms, lambda: replay.run_when_awake(self, self._apply))

    def _apply(self) -> None:
        target, self._target = self._target, None
        if not self.is_alive or target is None:
            return
        if not self.epoch:
            self.join()  # It was fenced meanwhile.
            return
        self.owned = target
        self.replay.meter.start_reading(target, self.replay.now_ms)
        if self._assigned != target:
            self._apply_later(self._assigned)
        else:
            self._send(owned=target)

    def _time_to_notice_ms(self) -> int:
        """Return the time until the next poll, when an assignment without revocations applies."""
        replay, trace = self.replay, self.replay.trace
        took_ms = self.slot.join.near(replay.now_ms, trace.default_join_ms, replay.random)
        # Random, because the next poll may come at any moment. With the same delay for all members,
        # their heartbeats would stay in the order in which they were sent.
        return replay.random.randint(1, 2 * min(took_ms, trace.quick_join_ms) + 1)

    def _time_to_give_up_ms(self) -> int:
        """Return the time from the notification until partitions are revoked. An eager member
        revokes them between the notification and its join, a cooperative member after the
        assignment.
        """
        replay, trace = self.replay, self.replay.trace
        is_eager = not (trace.recorded.cooperative or trace.recorded.consumer)
        delays = self.slot.join if is_eager else self.slot.revoke
        if not delays.took_ms:
            replay.meter.count_guess(replay.now_ms)
        default_ms = trace.default_join_ms if is_eager else trace.revoke_ms
        # A random one of the recorded delays: with the delay recorded at this time, all replays
        # would agree on whether partitions are revoked before the new owner's next heartbeat.
        return max(delays.drawn(replay.now_ms, default_ms, replay.random), ANSWER_DEFAULT_MS)

    # The process.

    def rejoin(self, reason: JoinReason, *, changes_protocols: bool) -> None:
        self._subscription += changes_protocols
        if self.epoch and self.sends_heartbeats:
            self.reason = reason
            self._send(states_topics=changes_protocols)

    def wake(self) -> None:
        self.is_paused = False
        self.replay.meter.start_reading(self.owned, self.replay.now_ms)
        self.send_heartbeat()

    def end(self) -> None:
        self.is_alive = False
