"""Replays a trace as a classic group, through `ClassicMembership`."""

from collections.abc import Callable, Mapping
from random import Random
from typing import Final

from kohort.groups.classic.data import ClassicData
from kohort.groups.classic.membership import ClassicMembership
from kohort.groups.classic.states import ClassicState
from kohort.groups.events import (
    Event,
    JoinReceived,
    MemberRemoved,
    MemberReplaced,
    RebalanceEnd,
    RebalanceEnded,
    RebalanceStarted,
)
from kohort.groups.requests import JoinRequest, LeaveEntry
from kohort.insight.advisor.heartbeat_times import HeartbeatTimes
from kohort.insight.advisor.member import Phase, SimulatedMember
from kohort.insight.advisor.replay import Replay, RequestHandle
from kohort.insight.advisor.setting import Setting
from kohort.insight.advisor.shares import (
    COOPERATIVE,
    EAGER,
    NOTHING,
    Encoding,
    Share,
    assign_cooperatively,
    assign_eagerly,
)
from kohort.insight.advisor.trace import End, Rejoin, Slot, Trace

SEEDS_MOST: Final = 1_000


class ClassicReplay(Replay[SimulatedMember]):
    def __init__(
        self,
        trace: Trace,
        setting: Setting,
        *,
        seed: int = 0,
        encoding: Encoding | None = None,
        watch: Callable[[Event, int], None] | None = None,
    ) -> None:
        super().__init__(trace, setting, seed=seed, watch=watch)
        self.encoding = encoding or Encoding()
        self.protocol = COOPERATIVE if setting.cooperative else EAGER
        self.members = ClassicMembership(ClassicData(self.group, new_member_id=self._new_id))
        self.group.membership = self.members
        self._ids = 0
        self._joiner: SimulatedMember | None = None
        self._shares: dict[str, Share] = {}
        self._handed_in: tuple[int, dict[str, Share]] = (-1, {})

    @property
    def is_calm(self) -> bool:
        """Whether the group is stable, so that heartbeats have no effect."""
        return self.members.data.state is ClassicState.STABLE

    def _new_process(
        self, slot: Slot, index: int, instance_id: str | None, heartbeat_times: HeartbeatTimes
    ) -> SimulatedMember:
        return SimulatedMember(self, slot, index, instance_id, heartbeat_times)

    def _end_calm(self) -> None:
        """If the group is stable, shift the heartbeats of all members by the same random time.

        Without this, the next event would be at the same point between heartbeats in all replays.
        """
        if not self.is_calm:
            return
        # Seeded by time and seed only: settings are compared by their replays with the same seed.
        chance = Random(self.now_ms * SEEDS_MOST + self.seed)  # noqa: S311 - as all of the replay.
        moved_ms = chance.randrange(self.setting.heartbeat_interval_ms)
        for member in self.alive.values():
            member.heartbeat_times.move(moved_ms)

    def join(self, member: SimulatedMember, request: JoinRequest, ticket: RequestHandle) -> None:
        """Send a JoinGroup of `member`; a member id that the group generates is assigned to it."""
        self._joiner = member
        self.members.join(request, ticket, self.clock)

    def leave(self, member: SimulatedMember, end: End | None = End.LEFT) -> None:
        self.end_process(member)
        by_admin = end is End.REMOVED and member.instance_id is not None
        entry = LeaveEntry("" if by_admin else member.member_id, member.instance_id)
        self.members.leave([entry], None, self.clock)

    def _renew_session(self, member: SimulatedMember) -> None:
        known = self.members.roster.get(member.member_id)
        if known is None:
            return
        last_ms = member.heartbeat_times.last_before(self.now_ms)
        if last_ms + known.session_timeout_ms > known.session_deadline_ms:
            self.members.data.start_session(known, last_ms)

    def _rejoin(self, rejoin: Rejoin) -> None:
        if rejoin.slot is None:
            leader = self.members.roster.leader_id
            member = self._by_id.get(leader or "")
        else:
            member = self.alive.get(rejoin.slot)
        if member is not None and member.is_alive:
            member.rejoin(rejoin.reason, changes_protocols=rejoin.changes_protocols)

    def assign(self, generation: int, member_ids: list[str]) -> Mapping[str, bytes]:
        """Return the leader's assignment for the joined members."""
        count = self.trace.partition_count
        if self.setting.cooperative:
            owned = {member_id: self._owned_by(member_id) for member_id in member_ids}
            shares = assign_cooperatively(owned, count)
        else:
            shares = assign_eagerly(member_ids, count)
        self._handed_in = (generation, shares)
        return {member_id: self.encoding.assignment(share) for member_id, share in shares.items()}

    def _owned_by(self, member_id: str) -> Share:
        member = self._by_id.get(member_id)
        return NOTHING if member is None or not member.is_alive else member.owned

    def share_of(self, member: SimulatedMember) -> Share:
        """Return the member's partitions in this generation, even if its member id has changed."""
        return self._shares.get(member.member_id, NOTHING)

    def _new_id(self, prefix: str) -> str:
        assert self._joiner is not None
        self._ids += 1
        member_id = f"{prefix}-{self._ids:08d}"
        self._by_id[member_id] = self._joiner
        self.meter.slot_of[member_id] = self._joiner.index
        return member_id

    def _observe(self, event: Event) -> None:
        match event:
            case RebalanceStarted():
                for member in self.alive.values():
                    if member.phase is Phase.SETTLED:
                        self.schedule_heartbeat(member)
            case JoinReceived():
                member_id = event.member.member_id
                joining = self._by_id.get(member_id)
                owns = joining is not None and self.setting.cooperative and bool(joining.owned)
                self.meter.joined(member_id, self.now_ms, owns=owns)
            case RebalanceEnded(RebalanceEnd.STABLE):
                self._shares = self._handed_in[1]
            case MemberReplaced():
                old, new = event.old_member_id, event.member.member_id
                for shares in (self._shares, self._handed_in[1]):
                    if old in shares:
                        shares[new] = shares.pop(old)
            case MemberRemoved():
                removed = self._by_id.get(event.member.member_id)
                if removed is not None and removed.phase is Phase.SETTLED:
                    self.schedule_heartbeat(removed)
            case _:
                pass
