"""kill -9 while a consumer group (KIP-848) reconciles: members go on with their epochs, and the
history has each target once.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import consumer_group_describe as describing
from kohort.protocol.messages import consumer_group_heartbeat as beating
from kohort.protocol.records.batch import split_batches
from kohort.protocol.records.record import decode_records
from tests.support import messages as m
from tests.support.brokers.kohort_server import KohortServer
from tests.support.network.requests import create_topics, fetch_request
from tests.support.network.wire import RawClient
from tests.support.waiting import wait_until

GROUP, TOPIC, PARTITIONS = "g", "t", 12
RECORD_WITHIN_S = 30
MEMBERS_MAX = 5
NOT_READY = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
SETTINGS = {
    "group.consumer.assignment.interval.ms": "200",
    "log.retention.check.interval.ms": "1000",
}

Owned = frozenset[tuple[bytes, int]]


class Member(threading.Thread):
    """A member that goes on with what it knows when its broker comes back; an error fails it."""

    def __init__(self, port: int, number: int) -> None:
        super().__init__(name=f"m{number}", daemon=True)
        self.epoch = 0
        self.owned: Owned = frozenset()
        self.problem: str | None = None
        self.is_leaving = False
        self._port = port
        self._chance = random.Random(number)
        self._is_answered = False
        """Whether its last request was; otherwise it states everything."""

    def run(self) -> None:
        while not self.is_leaving or self.epoch >= 0:
            try:
                with RawClient(self._port) as client:
                    while self.problem is None and self.epoch >= 0:
                        self._beat(client)
                        time.sleep(self._chance.uniform(0, 0.3))
            except (OSError, EOFError):
                self._is_answered = False
                time.sleep(0.05)
            if self.problem is not None:
                return

    def _beat(self, client: RawClient) -> None:
        is_leaving = self.is_leaving
        request = beating.ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.name,
            member_epoch=-1 if is_leaving else self.epoch,
            topic_partitions=[
                beating.TopicPartitions(topic_id=topic_id, partitions=[number])
                for topic_id, number in self.owned
            ],
        )
        if not self._is_answered:
            request.rebalance_timeout_ms = 60_000
            request.subscribed_topic_names = [TOPIC]
        was_answered, self._is_answered = self._is_answered, False
        answer = client.call(request, 1, beating.ConsumerGroupHeartbeatResponse)
        error = ErrorCode(answer.error_code)
        if error in NOT_READY:
            return
        self._is_answered = True
        if is_leaving and error is ErrorCode.UNKNOWN_MEMBER_ID and not was_answered:
            error = ErrorCode.NONE  # It has left, and was not told.
        elif error or (answer.member_epoch < self.epoch and not is_leaving):
            self.problem = f"{self.name} at {self.epoch} was told {error.name}, {answer}"
            return
        self.epoch = -1 if is_leaving else answer.member_epoch
        if answer.assignment is not None:
            assigned = answer.assignment.topic_partitions
            self.owned = frozenset((t.topic_id, n) for t in assigned for n in t.partitions)


class Targets:
    """What the topic of the history has of the group, read on from where it was read to before."""

    def __init__(self) -> None:
        self.position = 0
        self.records: list[dict[str, Any]] = []

    def read_on(self, port: int) -> None:
        """Fetch until a response is empty."""
        with RawClient(port) as client:
            while self._fetch(client):
                pass

    def _fetch(self, client: RawClient) -> bool:
        request = fetch_request(
            "__rebalance_history", self.position, max_wait_ms=100, max_bytes=1 << 22
        )
        (found,) = client.call(request, 4, m.FetchResponse).responses[0].partitions
        if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return False
        assert found.error_code == ErrorCode.NONE
        begun_at = self.position
        for header, batch in split_batches(found.records or b"", partial_tail=True):
            for record in decode_records(batch):
                event = json.loads(record.value or b"{}")
                if event["kind"] == "rebalance":
                    self.records.append(event)
            self.position = header.next_offset
        return self.position > begun_at

    def assigned(self) -> list[dict[str, Any]]:
        """Records of rebalances with a target, by generation. A rebalance that was interrupted by
        the kill has a second record without a target; a long one has one while it runs as well.
        """
        assigned = {
            record["sequence"]: record
            for record in self.records
            if record["generation"] is not None
        }
        return sorted(assigned.values(), key=lambda record: int(record["generation"]))

    def check(self) -> None:
        for before, after in pairwise(self.assigned()):
            assert after["previous_generation"] == before["generation"], (before, after)
        for record in self.assigned():
            causes = 1 + len(record["further_causes"]) + record["further_causes_dropped"]
            assert causes == record["generation"] - record["previous_generation"], record


def describe(port: int, *, is_new: bool = False) -> Any:  # noqa: ANN401 - the generated class.
    """Describe the group, once it is loaded; one that `is_new` may have no stored member yet."""
    not_ready = NOT_READY | {ErrorCode.GROUP_ID_NOT_FOUND} if is_new else NOT_READY
    described: list[describing.DescribedGroup] = []

    def is_ready() -> bool:
        request = describing.ConsumerGroupDescribeRequest(
            group_ids=[GROUP], include_authorized_operations=False
        )
        with RawClient(port) as client:
            answer = client.call(request, 1, describing.ConsumerGroupDescribeResponse)
        described[:] = answer.groups
        return described[0].error_code not in not_ready

    wait_until(is_ready, "the group is loaded")
    assert described[0].error_code == ErrorCode.NONE
    return described[0]


def is_stable(port: int, members: list[Member]) -> bool:
    assert not (problems := [member.problem for member in members if member.problem]), problems
    return bool(describe(port).group_state == "Stable")


def test_members_go_on_and_each_target_is_recorded_once_after_kill_9(
    tmp_path: Path, group_kills: int
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}, {group_kills} kills")
    chance = random.Random(seed)
    history, states = Targets(), Counter[str]()
    members, made = list[Member](), list[Member]()
    with KohortServer(tmp_path, overrides=SETTINGS) as broker:
        with RawClient(broker.port) as client:
            create_topics(client, TOPIC, partitions=PARTITIONS)
        last = None
        for _ in range(group_kills):
            # One or two change at a time, sometimes within one assignment interval.
            for _ in range(chance.randint(1, 2)):
                if len(members) < 2 or (len(members) < MEMBERS_MAX and chance.random() < 0.5):
                    members.append(Member(broker.port, len(made)))
                    made.append(members[-1])
                    members[-1].start()
                else:
                    members.pop(chance.randrange(len(members))).is_leaving = True
                time.sleep(chance.uniform(0, 0.06))
            time.sleep(chance.uniform(0, 0.6))
            if last is not None:
                last = describe(broker.port)
            broker.kill()
            broker.start()
            # Before the first kill the group may not have had the time to store a member.
            group = describe(broker.port, is_new=last is None)
            states[group.group_state] += 1
            if last is not None:
                assert group.group_epoch >= last.group_epoch
                assert group.assignment_epoch >= last.assignment_epoch
                epochs = {member.member_id: member.member_epoch for member in group.members}
                for member in last.members:
                    left = member.member_id not in epochs
                    assert left or epochs[member.member_id] >= member.member_epoch
            wait_until(partial(is_stable, broker.port, made), "the group is Stable")
            last = describe(broker.port)
            deadline = time.monotonic() + RECORD_WITHIN_S
            while True:
                history.read_on(broker.port)
                assigned = history.assigned()
                if assigned and assigned[-1]["generation"] >= last.assignment_epoch:
                    break
                assert time.monotonic() < deadline, (last.assignment_epoch, assigned[-2:])
            history.check()
        for member in members:
            member.is_leaving = True
        for member in made:
            member.join()
            assert member.problem is None, member.problem
    recovered = sum(record["recovered"] for record in history.records)
    print(
        f"{group_kills} kills, found {dict(states)}; {len(history.assigned())} targets, "
        f"{recovered} recorded by a start"
    )
