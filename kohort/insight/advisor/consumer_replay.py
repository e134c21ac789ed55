"""Replays a trace as a consumer group (KIP-848), through `ConsumerMembership`."""

from collections.abc import Callable, Iterable
from typing import Final

from kohort.groups.classic.data import ClassicData
from kohort.groups.classic.membership import ClassicMembership
from kohort.groups.consumer import sessions
from kohort.groups.consumer.data import ConsumerSettings
from kohort.groups.consumer.member import LEFT_FOR_RESTART
from kohort.groups.consumer.membership import ConsumerMembership
from kohort.groups.consumer.requests import HeartbeatRequest
from kohort.groups.events import Event, MemberRemoved, TargetAssigned
from kohort.groups.history.fold import GroupFold
from kohort.groups.member_memory import MemberAccount
from kohort.groups.requests import LeaveEntry
from kohort.groups.steps import at_once
from kohort.groups.topics import Topic
from kohort.insight.advisor.consumer_member import TOPIC, TOPIC_ID, WATCHED, ConsumerMember
from kohort.insight.advisor.heartbeat_times import HeartbeatTimer, HeartbeatTimes
from kohort.insight.advisor.replay import Replay, RequestHandle
from kohort.insight.advisor.setting import Setting
from kohort.insight.advisor.trace import End, Rejoin, Slot, Trace
from kohort.protocol.join_reason import JoinReason

LEFT: Final = -1
"""Member epoch in the heartbeat with which a member leaves."""

TIMER_MS: Final = 20
"""Maximum delay of a heartbeat: with this protocol, clients sleep until the next heartbeat is due;
in classic groups, some check at intervals instead."""


class ReplayedTopics:
    """The group's partitions as one topic, and a second topic without partitions, whose id changes
    to replay rebalances that topics caused: the history does not say what changed.
    """

    def __init__(self, partition_count: int) -> None:
        self.version = 1
        self._partitions = Topic(TOPIC_ID, partition_count)

    def get(self, name: str) -> Topic | None:
        if name == TOPIC:
            return self._partitions
        return Topic(self.version.to_bytes(16, "big"), 0) if name == WATCHED else None

    def name_of(self, topic_id: bytes) -> str | None:
        return TOPIC if topic_id == TOPIC_ID else None

    def names(self) -> Iterable[str]:
        return [TOPIC, WATCHED]


class ConsumerReplay(Replay[ConsumerMember]):
    def __init__(
        self,
        trace: Trace,
        setting: Setting,
        *,
        seed: int = 0,
        watch: Callable[[Event, int], None] | None = None,
    ) -> None:
        super().__init__(trace, setting, seed=seed, watch=watch)
        self.topics = ReplayedTopics(trace.partition_count)
        settings = ConsumerSettings(
            session_timeout_ms=setting.session_timeout_ms,
            heartbeat_interval_ms=setting.heartbeat_interval_ms,
            assignment_interval_ms=setting.assignment_interval_ms,
        )
        self.members = ConsumerMembership(
            self.group,
            self.topics,
            lambda _: settings,
            MemberAccount(),
            new_classic=lambda group: ClassicMembership(
                ClassicData(group, new_member_id=lambda prefix: prefix)
            ),
            new_member_id=lambda: "",
        )
        self.group.membership = self.members
        self.meter.consumers = GroupFold()

    def _timer(self, slot: Slot) -> HeartbeatTimer:  # noqa: ARG002 - the same for all.
        return HeartbeatTimer(min(self.trace.look_ms, TIMER_MS))

    def _new_process(
        self, slot: Slot, index: int, instance_id: str | None, heartbeat_times: HeartbeatTimes
    ) -> ConsumerMember:
        # Random, because assignors order members by their ids.
        member_id = f"{self.random.getrandbits(128):032x}"
        member = ConsumerMember(self, slot, index, instance_id, heartbeat_times, member_id)
        self._by_id[member_id] = member
        self.meter.slot_of[member_id] = index
        return member

    # Requests of members. Each is queued, and runs after the requests that were sent before it.

    def heartbeat(self, request: HeartbeatRequest, ticket: RequestHandle | None = None) -> None:
        self._ready.append(lambda: self._heartbeat(request, ticket))

    def _heartbeat(self, request: HeartbeatRequest, ticket: RequestHandle | None) -> None:
        result = self.members.answer_at_once(request, self.now_ms)
        if result is None:
            at_once(self.members.heartbeat(request, ticket, self.clock))
        elif ticket is not None:
            ticket.member.answered(ticket, result)

    def leave(self, member: ConsumerMember, end: End | None = End.LEFT) -> None:
        self.end_process(member)
        if end is not End.REMOVED:
            self.heartbeat(member.request(LEFT))
            return

        entries = [LeaveEntry(member.member_id)]
        self._ready.append(lambda: at_once(self.members.leave_steps(entries, None, self.clock)))

    def _shut_down_static(self, member: ConsumerMember) -> None:
        self._go_silently(member)
        self.heartbeat(member.request(LEFT_FOR_RESTART))

    def _renew_session(self, member: ConsumerMember) -> None:
        data = self.members.data
        known = data.members.get(member.member_id)
        session = data.sessions.get(member.member_id)
        if known is None or session is None:
            return
        last_ms = member.heartbeat_times.last_before(self.now_ms)
        if last_ms + sessions.timeout_of(data, known) > session.deadline_ms:
            sessions.restart(data, known, last_ms)

    def is_reconciled(self, member: ConsumerMember) -> bool:
        """Whether a member's heartbeats have no effect until another target is computed."""
        data = self.members.data
        known = data.members.get(member.member_id)
        return known is not None and known.is_reconciled(data.target_epoch)

    def _rejoin(self, rejoin: Rejoin) -> None:
        if rejoin.reason is JoinReason.TOPIC_METADATA_CHANGE and not rejoin.changes_protocols:
            if rejoin.slot is None:
                self.topics.version += 1
                self._schedule_heartbeats()
            return
        member = None if rejoin.slot is None else self.alive.get(rejoin.slot)
        if member is not None:
            member.rejoin(rejoin.reason, changes_protocols=rejoin.changes_protocols)

    def schedule_heartbeat(self, member: ConsumerMember) -> None:
        """Schedule the next heartbeat; it is omitted if the member sends another request first."""
        if member.scheduled == member.number:
            return
        number = member.scheduled = member.number

        def send() -> None:
            if member.number == number:
                member.send_heartbeat()

        self._at(member.heartbeat_times.next_after(self.now_ms), send)

    def _schedule_heartbeats(self) -> None:
        for member in self.alive.values():
            self.schedule_heartbeat(member)

    def _observe(self, event: Event) -> None:
        match event:
            case TargetAssigned():
                self._schedule_heartbeats()
            case MemberRemoved():
                removed = self._by_id.get(event.member.member_id)
                if removed is not None and removed.is_alive:
                    self.schedule_heartbeat(removed)
            case _:
                pass
