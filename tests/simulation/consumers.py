"""The consumer's rules for membership and heartbeats beside the coordinator's own, on a bad wire.

Answers are late or lost, heartbeats are dropped, applications do not poll, processes and the
coordinator die; the coordinator comes back from its log. All of it by seed and on virtual time.
"""

import random
from typing import Any

from kohort.client.core.errors import FencedInstanceError
from kohort.client.core.group.actions import Apply, Join, MemberAction, Sync
from kohort.client.core.group.heartbeat import LookUpCoordinator, SendHeartbeat, SendLeave
from kohort.client.core.group.identity import Identity
from kohort.client.core.partitions import TopicPartition
from kohort.groups.requests import LeaveEntry
from kohort.protocol.errors import ErrorCode
from tests.support.groups.driven_members import DrivenMember
from tests.support.groups.scenario import MINUTE, Scenario

STEP_MS = 100
MEMBERS = 6


class FaultyMember(DrivenMember):
    """One process whose requests fare as chance will have it, until `is_well`."""

    def __init__(self, life: "ConsumersLife", name: str, **options: Any) -> None:  # noqa: ANN401
        super().__init__(life.scenario, "t", **options)
        self.name = name
        self.is_well = False
        self.owned_in = -1
        """The generation whose assignment was applied last."""
        self._life = life
        self.started_in = life.coordinators
        self._connected_to = 0
        """The life of the coordinator in which the request was sent that has no answer yet."""
        self._ready_ms = 0
        self._breaks = False
        self._beat_answer: tuple[Identity, ErrorCode, int] | None = None

    def _chance(self, share: float) -> bool:
        return not self.is_well and self._life.chance.random() < share

    def _do(self, action: MemberAction) -> None:
        super()._do(action)
        if isinstance(action, Apply):
            self.owned_in = self.membership.identity.generation

    def _send(self, action: Join | Sync, send: Any) -> None:  # noqa: ANN401
        is_lost = self._chance(0.05)
        super()._send(action, self.scenario.ticket if is_lost else send)
        self._breaks = is_lost or self._chance(0.1)
        delay_ms = self._life.chance.choice([0, 200, 5_000]) if self._chance(0.3) else 0
        self._ready_ms = self.scenario.ms + delay_ms
        self._connected_to = self._life.coordinators

    def _take_answer(self) -> bool:
        if self.scenario.ms < self._ready_ms:
            return False
        if not self._breaks and self._connected_to == self._life.coordinators:
            return super()._take_answer()
        was_cut_off, self.is_cut_off = self.is_cut_off, True
        try:
            return super()._take_answer()
        finally:
            self.is_cut_off = was_cut_off

    def _beat(self, now_ms: int) -> None:
        if self._beat_answer is not None:
            sent, code, at_ms = self._beat_answer
            if now_ms < at_ms:
                return
            self._beat_answer = None
            self.heartbeats.answered(sent, code, now_ms)
        match self.heartbeats.next_action(now_ms):
            case SendHeartbeat(identity):
                if self._chance(0.1):
                    self.heartbeats.failed(now_ms)
                    return
                late_ms = self._life.chance.choice([100, 4_000]) if self._chance(0.2) else 0
                self._beat_answer = (identity, self._ask(identity), now_ms + late_ms)
            case LookUpCoordinator():
                code = ErrorCode.NETWORK_EXCEPTION if self._chance(0.3) else ErrorCode.NONE
                self.heartbeats.found_coordinator(code, now_ms)
            case SendLeave(identity):
                if not self._chance(0.3):
                    self.scenario.leave(LeaveEntry(identity.member_id))


class ConsumersLife:
    """A group of such members from the beginning to the moment in which all is quiet again."""

    def __init__(self, seed: str, strategy: str) -> None:
        self.chance = random.Random(f"{seed}.{strategy}")
        self.scenario = Scenario(partition_counts={"t": 7})
        self.members: list[FaultyMember] = []
        self.coordinators = 1
        self.trace: list[str] = []
        self._strategy = strategy
        self._names = 0

    def run(self, events: int) -> None:
        """Raises AssertionError if a rule is broken, or the group does not settle."""
        for _ in range(events):
            self._happen()
            self._pass(self.chance.choice([1, 10, 100, 700]))
        for member in self.members:
            member.is_well = member.is_polling = True
        self._pass(4 * MINUTE // STEP_MS)
        assert all(member.is_settled for member in self.members)
        owned = [one for member in self.members for one in member.owned]
        assert sorted(owned) == [TopicPartition("t", number) for number in range(7)]

    def _happen(self) -> None:
        if len(self.members) < 2 or (len(self.members) < MEMBERS and self.chance.random() < 0.3):
            self._start(f"i{self._names}" if self.chance.random() < 0.3 else None)
            return
        member = self.chance.choice(self.members)
        match self.chance.randrange(6):
            case 0:
                self.members.remove(member)
                member.leave()
            case 1:
                self.members.remove(
                    member
                )  # A crash: the group is not notified; the process is started again.
                self._start(member.membership.config.group_instance_id)
            case 2 | 3:
                member.is_polling = not member.is_polling
            case 4:
                member.membership.enforce_rebalance("chance")
            case _:
                self.coordinators += 1
                self.scenario.restart()

    def _start(self, instance_id: str | None) -> None:
        self._names += 1
        strategy = (self._strategy,)
        name = f"m{self._names}"
        self.members.append(FaultyMember(self, name, strategy=strategy, instance_id=instance_id))

    def _pass(self, steps: int) -> None:
        for _ in range(steps):
            for member in self.chance.sample(self.members, len(self.members)):
                try:
                    member.run()
                except FencedInstanceError:
                    self._replace_fenced(member)
                    continue
                self._note(member)
            self._check()
            self.scenario.advance(STEP_MS)

    def _replace_fenced(self, member: FaultyMember) -> None:
        """Start a process again whose id was lost with the coordinator: as in Kafka, the id that
        replaces another during a join phase is stored with the next generation.
        """
        assert member.started_in < self.coordinators, f"{member.name} was fenced by nobody"
        self.members.remove(member)
        self._start(member.membership.config.group_instance_id)
        self.members[-1].is_well = member.is_well

    def _note(self, member: FaultyMember) -> None:
        membership = member.membership
        line = f"{self.scenario.ms} {member.name} {membership.state.value} {membership.identity} "
        self.trace.append(f"{line}{sorted(member.owned)} {member.calls}\n")
        member.calls.clear()

    def _check(self) -> None:
        """No partition has two owners by assignments of one generation, nor among those that are
        members now, as the coordinator sees it.
        """
        owners: dict[tuple[int, TopicPartition], str] = {}
        for member in self.members:
            for partition in member.owned:
                other = owners.setdefault((member.owned_in, partition), member.name)
                assert other == member.name, f"{partition} of {other} and {member.name}"
        group = self.scenario.classic
        present = {(one.member_id, group.data.generation) for one in group.roster}
        held = [
            partition
            for member in self.members
            if (member.membership.identity.member_id, member.membership.identity.generation)
            in present
            for partition in member.owned
        ]
        assert len(held) == len(set(held)), f"{held} in generation {group.data.generation}"
