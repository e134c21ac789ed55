"""The client's rules of the consumer group protocol beside the coordinator's own, on a bad wire:
requests and responses are lost or late, applications do not poll, processes die, the coordinator
restarts from its log. By seed, on virtual time.
"""

from collections.abc import Mapping

import pytest

from kohort.broker.handlers.consumer_groups import core_request, response_for
from kohort.client.core.backoff import Backoff
from kohort.client.core.errors import ConsumerError
from kohort.client.core.group.actions import Apply, FindCoordinator, Idle, Prepare, RefreshTopics
from kohort.client.core.group.base_membership import MemberState
from kohort.client.core.group.config import MembershipConfig
from kohort.client.core.group.consumer_heartbeat import JOIN_EPOCH, ConsumerHeartbeatRules, Report
from kohort.client.core.group.consumer_membership import ConsumerMembership
from kohort.client.core.group.heartbeat import (
    LookUpCoordinator,
    SendHeartbeat,
    SendLeave,
)
from kohort.client.core.group.identity import Identity
from kohort.client.core.group.requests import leave_request
from kohort.client.core.group.subscription import Subscription
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tests.property.test_consumer_groups import World
from tests.support.groups.consumer_group import SESSION_MS

STEP_MS = 500
MAX_POLL_MS = 20_000


class Process:
    """One process with the client's real rules; only the wire and the application are made up."""

    max_poll_ms = MAX_POLL_MS

    def __init__(self, life: "Life", member_id: str, instance_id: str | None) -> None:
        self.life = life
        self.instance_id = instance_id
        self.is_polling = True
        self.subscription = Subscription()
        self.subscription.subscribe(life.some_names() or ("t0",))
        ids = iter(range(1_000))
        config = MembershipConfig("g", instance_id, SESSION_MS, 3_000, self.max_poll_ms)
        self.membership = ConsumerMembership(
            config,
            subscription=self.subscription,
            backoff=Backoff(100, 1000, life.chance.random),
            topic_ids=life.topic_ids,
            new_id=lambda: f"{member_id}.{next(ids)}",
        )
        self.rules = ConsumerHeartbeatRules(config, Backoff(100, 1000, life.chance.random))
        self.is_blocked = False
        """Whether its event loop is, so that it does not learn what the heartbeats found."""
        self._busy_until_ms = 0
        """Until when its listener's callback runs."""
        self._joined = ""
        self._reported = Report()
        self._late: tuple[int, Identity, ConsumerGroupHeartbeatResponse] | None = None

    def run(self) -> None:
        """Do what the heartbeat thread and a poll do at this moment."""
        self._beat()
        if self.is_blocked:
            return
        self._learn()
        now_ms = self.life.now.ms
        if not self.is_polling or now_ms < self._busy_until_ms:
            return
        self.rules.polled(now_ms)
        for _ in range(50):
            self._learn()
            try:
                action = self.membership.next_action(now_ms)
            except ConsumerError:
                continue  # The group is full, or the instance id is still taken.
            self._align()
            match action:
                case Idle():
                    return
                case FindCoordinator():
                    self.membership.coordinator_found()
                    self.rules.found_coordinator(ErrorCode.NONE, now_ms)
                case RefreshTopics():
                    self.membership.topics_refreshed()
                case Prepare():
                    self.subscription.assigned = frozenset()
                    self.membership.prepared()
                case Apply(assigned=assigned):
                    if not self._busy_until_ms and (busy_ms := self.busy_ms(action)):
                        self._busy_until_ms = now_ms + busy_ms
                        return
                    self._busy_until_ms = 0
                    self.subscription.assigned = assigned
                    self.membership.applied()
        raise AssertionError("never comes to rest")

    def busy_ms(self, action: Apply) -> int:
        return 4 * STEP_MS if self.life.happens(0.5) else 0

    def leave(self) -> None:
        leave = self.membership.leave("done")
        self.rules.end()
        if leave is not None:
            self._send_leave(leave)

    def _learn(self) -> None:
        self.membership.findings(self.rules.take_findings())
        self._align()

    def _align(self) -> None:
        membership = self.membership
        if membership.state is MemberState.UNJOINED:
            if self._joined:
                self._joined = ""
                self.rules.end()
        elif membership.report is not self._reported or not self._joined:
            self._reported = membership.report
            self.rules.report(self._reported, self.life.now.ms)
            if not self._joined:
                self._joined = membership.identity.member_id
                self.rules.begin(Identity(JOIN_EPOCH, self._joined), self.life.now.ms)

    def _beat(self) -> None:
        now_ms = self.life.now.ms
        if self._late is not None:
            at_ms, sent, response = self._late
            if now_ms < at_ms:
                return
            self._late = None
            self.rules.heartbeat_answered(sent, response, now_ms)
        match self.rules.next_action(now_ms):
            case SendHeartbeat(identity, ConsumerGroupHeartbeatRequest() as request):
                if self.life.happens(0.05):
                    self.rules.failed(now_ms)
                    return
                response = self.life.answer(request)
                if self.life.happens(0.05):
                    self.rules.failed(now_ms)
                elif self.life.happens(0.1):
                    self._late = now_ms + 1_000, identity, response
                else:
                    self.rules.heartbeat_answered(identity, response, now_ms)
            case LookUpCoordinator():
                self.rules.found_coordinator(ErrorCode.NONE, now_ms)
            case SendLeave() as leave:
                self._send_leave(leave)

    def _send_leave(self, leave: SendLeave) -> None:
        request = leave_request("g", self.instance_id, leave, 1)
        assert isinstance(request, ConsumerGroupHeartbeatRequest)
        if not self.life.happens(0.1):
            self.life.answer(request)


class Life(World):
    """A group of such processes, from the first one until all is quiet again."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.processes: list[Process] = []
        self.is_calm = False
        self.names = 0

    def happens(self, share: float) -> bool:
        return not self.is_calm and self.chance.random() < share

    def topic_ids(self) -> Mapping[str, bytes]:
        return {name: topic.topic_id for name, topic in self.topics.by_name.items()}

    def answer(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        asked = core_request(
            request, request.member_id, client_id="", client_host="", client_software=""
        )
        return response_for(self.heartbeat(asked))

    def live(self) -> None:
        for _ in range(40):
            self.happen()
            for _ in range(self.chance.choice([1, 4, 20])):
                self.advance()
        self.is_calm = True
        self.failing_share = 0
        for process in self.processes:
            process.is_polling, process.is_blocked = True, False
        for _ in range(4 * SESSION_MS // STEP_MS):
            self.advance()
        self.check_all_read()

    def happen(self) -> None:
        chance = self.chance.random()
        if len(self.processes) < 2 or (chance < 0.3 and len(self.processes) < 6):
            self.start(f"i{self.chance.randint(0, 2)}" if self.chance.random() < 0.4 else None)
            return
        process = self.chance.choice(self.processes)
        if chance < 0.4:
            self.processes.remove(process)
            process.leave()
        elif chance < 0.5:
            self.processes.remove(process)  # A crash; the process is started again.
            self.start(process.instance_id)
        elif chance < 0.6:
            process.is_polling = not process.is_polling
        elif chance < 0.65:
            process.is_blocked = not process.is_blocked
        elif chance < 0.75:
            process.subscription.subscribe(self.some_names() or ("t1",))
        elif chance < 0.85:
            self.topics.change(f"t{self.chance.randint(0, 2)}", self.chance.choice([1, 2, 3]))
        elif chance < 0.9:
            process.membership.enforce_rebalance("chance")
        else:
            self.restart()

    def start(self, instance_id: str | None) -> None:
        if instance_id is not None and any(p.instance_id == instance_id for p in self.processes):
            instance_id = None
        self.names += 1
        self.processes.append(Process(self, f"m{self.names}", instance_id))

    def advance(self) -> None:
        for process in self.chance.sample(self.processes, len(self.processes)):
            process.run()
            self.check_owners()
        self.pass_time(STEP_MS)

    def check_owners(self) -> None:
        """No partition is read by two members of the group. Those that left because they were not
        polled learn that they lost theirs when they are.
        """
        known = () if self.data is None else self.data.members.values()
        members = {member.member_id for member in known if member.epoch >= 0}
        held = [
            partition
            for process in self.processes
            if process.membership.identity.member_id in members
            for partition in process.subscription.assigned
        ]
        assert len(held) == len(set(held)), held

    def check_all_read(self) -> None:
        """All settle, and all partitions of the subscribed topics are read."""
        assert all(process.membership.is_settled for process in self.processes)
        read = {tp for process in self.processes for tp in process.subscription.assigned}
        subscribed = {name for process in self.processes for name in process.subscription.topics}
        assert {(tp.topic, tp.partition) for tp in read} == {
            (name, index)
            for name, topic in self.topics.by_name.items()
            if name in subscribed
            for index in range(topic.partition_count)
        }


@pytest.mark.parametrize("seed", range(20))
def test_no_partition_is_read_by_two_members_and_all_are_read_in_the_end(seed: int) -> None:
    Life(seed).live()


@pytest.mark.long
def test_many_lives() -> None:
    for seed in range(1_000):
        Life(seed).live()
