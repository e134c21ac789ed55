"""The lives of `what_if`, lived as consumer groups: the coordinator's rules and the client's, with
nothing between them. The advisor's own members have no part in it.
"""

from heapq import heappop, heappush
from random import Random
from typing import Any

from kohort.broker.handlers.consumer_groups import core_request, response_for
from kohort.client.core.group.actions import Apply
from kohort.client.core.group.heartbeat import LookUpCoordinator, SendHeartbeat, SendLeave, Wait
from kohort.groups.history.json_form import as_json
from kohort.groups.topics import Topic
from kohort.insight.advisor.setting import Setting
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tests.simulation.assigning import PARTITIONS
from tests.simulation.test_consumer_members import Process
from tests.simulation.what_if import Place, Plan, Step
from tests.support.groups.consumer_group import ConsumerGroup

LATE_MS = 20
"""How late a heartbeat may be."""
NAMES = ("t", "watched")


class PlannedProcess(Process):
    """A process that does what its plan says, and runs when it has something to do."""

    max_poll_ms = 300_000

    def __init__(
        self, life: "PlannedLife", member_id: str, instance_id: str | None, place: Place
    ) -> None:
        self.place = place
        self.wake_ms: int | None = None
        self.frozen_until_ms = 0
        super().__init__(life, member_id, instance_id)  # type: ignore[arg-type]

    def busy_ms(self, action: Apply) -> int:
        jitter_ms = self.life.chance.randint(1, self.place.jitter_ms)
        return jitter_ms + (self.place.slowness_ms if action.revoked else 0)

    def _beat(self) -> None:
        now_ms = self.life.now.ms
        while True:
            match self.rules.next_action(now_ms):
                case SendHeartbeat(identity, ConsumerGroupHeartbeatRequest() as request):
                    self.rules.heartbeat_answered(identity, self.life.answer(request), now_ms)
                case LookUpCoordinator():
                    self.rules.found_coordinator(ErrorCode.NONE, now_ms)
                case SendLeave() as leave:
                    self._send_leave(leave)
                case Wait(until_ms):
                    self.wake_ms = until_ms
                    return

    def act(self) -> int:
        """Do all there is to do; return when there is more."""
        now_ms = self.life.now.ms
        if now_ms < self.frozen_until_ms:
            return self.frozen_until_ms
        for _ in range(3):  # A heartbeat, what the application makes of it, its acknowledgement.
            self.run()
        if self.wake_ms is None:
            return now_ms + 1_000
        wake_ms = max(self.wake_ms + self.life.chance.randint(0, LATE_MS), now_ms + 1)
        return min(wake_ms, self._busy_until_ms) if self._busy_until_ms > now_ms else wake_ms


class PlannedLife(ConsumerGroup):
    def __init__(self, plan: Plan, setting: Setting, run: str) -> None:
        super().__init__()
        self.plan, self.setting = plan, setting
        self.settings = self.settings._replace(
            session_timeout_ms=setting.session_timeout_ms,
            heartbeat_interval_ms=setting.heartbeat_interval_ms,
            assignment_interval_ms=setting.assignment_interval_ms,
            max_size=1_000,
        )
        self.chance = Random(f"{plan.seed}.{run}")
        self.topics.change("t", PARTITIONS)
        self.processes: dict[int, PlannedProcess] = {}
        self._due: list[tuple[int, int, Step | PlannedProcess | None]] = []
        self._entries = 0

    def happens(self, share: float) -> bool:
        return False

    def some_names(self) -> tuple[str, ...]:
        return NAMES

    def topic_ids(self) -> dict[str, bytes]:
        return {name: topic.topic_id for name, topic in self.topics.by_name.items()}

    def answer(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        if not self.setting.states_reasons:
            request.join_reason, request.reason = 0, None
        name = request.member_id.partition("/")[2].partition(".")[0]
        asked = core_request(
            request, request.member_id, client_id=name, client_host=f"/{name}", client_software=""
        )
        return response_for(self.heartbeat(asked))

    def live(self) -> list[dict[str, Any]]:
        begun_ms = self.now.ms
        for step in self.plan.steps:
            self._at(begun_ms + step.at_ms, step)
        self._at(begun_ms + self.plan.end_ms, None)
        while True:
            at_ms, _, due = heappop(self._due)
            while (timer_ms := min(self.timers.values(), default=at_ms)) < at_ms:
                self.pass_time(max(timer_ms - self.now.ms, 0))
            self.pass_time(at_ms - self.now.ms)
            if due is None:
                return [as_json(record) for record in self.rebalances]
            if isinstance(due, Step):
                self._take(due)
            elif due in self.processes.values():
                self._at(due.act(), due)

    def _at(self, at_ms: int, due: Step | PlannedProcess | None) -> None:
        self._entries += 1
        heappush(self._due, (at_ms, self._entries, due))

    def _take(self, step: Step) -> None:
        process = self.processes.get(step.slot)
        if step.what == "grow":
            # Not in partitions, which those of the other protocol do not do either.
            self.topics.version += 1
            topic_id = self.topics.version.to_bytes(16, "little")
            self.topics.by_name["watched"] = Topic(topic_id, 0)
        elif step.what == "start":
            name = f"billing-{step.slot}"
            # By chance, as clients make them: their order decides between members that are equal
            # otherwise.
            member_id = f"{self.chance.getrandbits(64):016x}/{name}"
            instance_id = name if self.setting.static else None
            process = PlannedProcess(self, member_id, instance_id, self.plan.places[step.slot])
            self.processes[step.slot] = process
            self._at(process.act(), process)
        elif process is None:
            pass
        elif step.what == "freeze":
            process.frozen_until_ms = self.now.ms + step.duration_ms
        elif step.what == "subscribe":
            process.subscription.subscribe((*NAMES, f"other-{step.at_ms}"))
            process.act()
        else:
            del self.processes[step.slot]
            if step.what == "leave":
                process.leave()


def live_as_consumers(plan: Plan, setting: Setting, *, run: str) -> list[dict[str, Any]]:
    """The history of `plan` as a consumer group under `setting`; see `what_if.live`."""
    return PlannedLife(plan, setting, run).live()
