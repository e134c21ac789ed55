"""What scripts about share groups are made of: groups that both brokers have, members that beat,
and share sessions.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Self, TypeAlias

from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import incremental_alter_configs as altering
from kohort.protocol.messages import share_acknowledge as acknowledging
from kohort.protocol.messages import share_fetch as fetching
from kohort.protocol.messages import share_group_heartbeat as beating
from kohort.protocol.messages import share_group_offsets as offsets
from tests.interop.same_answers import scenes
from tests.interop.same_answers.deliberate import Difference
from tests.interop.same_answers.each import Value, for_broker
from tests.interop.same_answers.groups import Group
from tests.interop.same_answers.pair import Answers, Line, Pair, Pending
from tests.interop.same_answers.scenes import Topic
from tests.support import messages as m
from tests.support.waiting import wait_until

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
CLOSE: Final = -1
WAIT_MS: Final = 20_000
"""Of a fetch that is to be answered as soon as there is a record."""
GROUP_CONFIGS: Final = 32
"""Resource type."""
SHORT_MS: Final = 100
APPLIED_S: Final = 0.5
"""Kafka answers before it has applied a change of configs."""
LOADED_S: Final = 20.0
"""The longest time in which Kafka loads the state of partitions."""
"""Of a fetch that may find nothing. One that does not wait at all may miss records in Kafka that
are there.
"""

Place: TypeAlias = tuple[Topic, int]
"""A topic, and the number of a partition."""
Batch: TypeAlias = tuple[int, int, list[int]]
"""First offset, last offset and types."""
Acks: TypeAlias = Mapping[Place, Sequence[Batch]]
Acquired: TypeAlias = list[tuple[int, int, int, int]]
"""Partition, first offset, last offset, delivery count."""


def create_topic(pair: Pair, *, partitions: int = 1, **settings: Value) -> Topic:
    """A topic whose id has a name in messages, so that those of one answer can be told apart."""
    topic = scenes.create_topic(pair, partitions=partitions, **settings)
    for side in pair.sides:
        side.facts.topic_names[for_broker(topic.id, side.name)] = topic.name
    return topic


def produce(pair: Pair, topic: Topic, *sizes: int, partition: int = 0) -> None:
    """Batches of that many records."""
    for size in sizes:
        scenes.produce(pair, topic, scenes.batch(*[b"value"] * size), partition=partition)


def delete_records(pair: Pair, topic: Topic, before: int, partition: int = 0) -> None:
    place = m.DeleteRecordsPartition(partition_index=partition, offset=before)
    listed = m.DeleteRecordsTopic(name=topic.name, partitions=[place])
    pair.ask(m.DeleteRecordsRequest(topics=[listed], timeout_ms=30_000), 2)


def alter_group_configs(pair: Pair, group_id: str, configs: Mapping[str, str | None]) -> None:
    resource = altering.AlterConfigsResource(
        resource_type=GROUP_CONFIGS,
        resource_name=group_id,
        configs=[
            altering.AlterableConfig(name=name, config_operation=int(value is None), value=value)
            for name, value in configs.items()
        ],
    )
    request = altering.IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    for answer in pair.ask(request, 1):
        assert answer.responses[0].error_code == ErrorCode.NONE, answer


class ShareGroup:
    """A group that no other test uses, which delivers from the start of its topics."""

    def __init__(
        self, pair: Pair, *topics: Topic, configs: Mapping[str, str] | None = None
    ) -> None:
        """With `topics`, their partitions are initialized, and have been loaded."""
        self.pair = pair
        self.id = Group(pair, what="share").id
        configs = {"share.auto.offset.reset": "earliest", **(configs or {})}
        alter_group_configs(pair, self.id, configs)
        if topics:
            self.initialize(*topics)

    def configure(self, **configs: str | None) -> None:
        """Change configs; a name is `share_isolation_level` for `share.isolation.level`."""
        named = {name.replace("_", "."): value for name, value in configs.items()}
        alter_group_configs(self.pair, self.id, named)
        time.sleep(APPLIED_S)

    # Membership.

    def beat(
        self,
        member_id: Value,
        epoch: Value,
        *topics: Topic,
        differs: Difference | None = None,
        **fields: Value,
    ) -> Answers:
        """A heartbeat; names are stated if there are topics."""
        request = self.heartbeat(member_id, epoch, *topics, **fields)
        return self.pair.ask(request, 1, differs=differs)

    def heartbeat(
        self, member_id: Value, epoch: Value, *topics: Topic, **fields: Value
    ) -> beating.ShareGroupHeartbeatRequest:
        if topics:
            fields = {"subscribed_topic_names": [topic.name for topic in topics], **fields}
        stated = {"group_id": self.id, "member_id": member_id, "member_epoch": epoch, **fields}
        return beating.ShareGroupHeartbeatRequest(**stated)

    def join(self, member_id: str, *topics: Topic) -> Value:
        """Join, and beat until Kafka has initialized the partitions; return each one's epoch."""
        wanted = sum(map(self.count, topics))
        epochs = self.pair.peek(self.heartbeat(member_id, 0, *topics), 1).each(
            lambda answer: answer.member_epoch
        )

        def is_assigned() -> bool:
            nonlocal epochs
            answers = self.pair.peek(self.heartbeat(member_id, epochs, *topics), 1)
            epochs = answers.each(lambda answer: answer.member_epoch)
            return all(assigned_count(answer) == wanted for answer in answers)

        wait_until(is_assigned, "the partitions are initialized and assigned")
        return epochs

    def initialize(self, *topics: Topic, member_id: str = "founder") -> None:
        """Keep a member until the partitions are initialized. Kafka loads them when they are
        first fetched, and leaves them out until then.

        Afterwards both groups have the same epoch: a Kafka has assigned the partitions in an epoch
        of its own.
        """
        epochs = self.join(member_id, *topics)
        by_side = {side.name: for_broker(epochs, side.name) for side in self.pair.sides}
        for side in self.pair.sides:
            names = [topic.name for topic in topics]
            while by_side[side.name] < max(by_side.values()):
                names.append(f"{names[0]}-{len(names)}")
                bump = self.heartbeat(
                    member_id, by_side[side.name], subscribed_topic_names=list(names)
                )
                by_side[side.name] = self.pair.line.ask_alone(side, bump, 1).member_epoch
        self.pair.peek(self.heartbeat(member_id, CLOSE), 1)
        self.load("loader", *topics).line.close()

    def load(self, member_id: str, *topics: Topic) -> "Session":
        """Open a session that has fetched nothing from all partitions; Kafka has loaded each."""
        places = [(topic, number) for topic in topics for number in range(self.count(topic))]
        deadline_s = time.monotonic() + LOADED_S
        while True:
            session = self.session(member_id)
            found = session.peek(places, max_wait_ms=SHORT_MS, max_records=-1).kafka
            answered = sum(len(topic.partitions) for topic in found.responses)
            if answered >= len(places) or time.monotonic() >= deadline_s:
                return session
            session.line.close()

    def count(self, topic: Topic) -> int:
        """The partitions that Kafka has."""
        asked = m.MetadataRequest(topics=[m.MetadataRequestTopic(name=topic.name)])
        return len(self.pair.peek(asked, 9).kafka.topics[0].partitions)

    # Sessions.

    def session(self, member_id: str = "one", line: Line | None = None) -> "Session":
        return Session(self, member_id, line or self.pair.open(timeout_s=30))

    # Offsets.

    def describe_offsets(
        self, *places: Place, version: int = 1, differs: Difference | None = None
    ) -> Answers:
        """Of these partitions, or of all."""
        topics = [
            offsets.DescribeShareGroupOffsetsRequestTopic(topic_name=topic.name, partitions=numbers)
            for topic, numbers in by_topic(places).items()
        ]
        asked = offsets.DescribeShareGroupOffsetsRequestGroup(
            group_id=self.id, topics=topics or None
        )
        request = offsets.DescribeShareGroupOffsetsRequest(groups=[asked])
        return self.pair.ask(request, version, differs=differs)

    def alter_offsets(
        self, starts: Mapping[Place, int], *, differs: Difference | None = None
    ) -> Answers:
        topics: dict[Topic, list[Value]] = {}
        for (topic, number), start in starts.items():
            altered = offsets.AlterShareGroupOffsetsRequestPartition(
                partition_index=number, start_offset=start
            )
            topics.setdefault(topic, []).append(altered)
        request = offsets.AlterShareGroupOffsetsRequest(
            group_id=self.id,
            topics=[
                offsets.AlterShareGroupOffsetsRequestTopic(topic_name=topic.name, partitions=places)
                for topic, places in topics.items()
            ],
        )
        return self.pair.ask(request, 0, differs=differs)

    def delete_offsets(self, *topics: Topic, differs: Difference | None = None) -> Answers:
        request = offsets.DeleteShareGroupOffsetsRequest(
            group_id=self.id,
            topics=[
                offsets.DeleteShareGroupOffsetsRequestTopic(topic_name=topic.name)
                for topic in topics
            ],
        )
        return self.pair.ask(request, 0, differs=differs)


class Session:
    """The share sessions of a member, on a connection of its own. Each request has the epoch that
    the session expects unless the test states another.
    """

    def __init__(self, group: ShareGroup, member_id: str, line: Line) -> None:
        self.group = group
        self.member_id = member_id
        self.line = line
        self.epoch = 0
        self.version = 2

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.line.close()

    def fetch(
        self,
        add: Sequence[Place] = (),
        *,
        epoch: int | None = None,
        version: int | None = None,
        differs: Difference | None = None,
        **fields: Value,
    ) -> Answers:
        """Fetch from these partitions and those that the session has; see `fetch_request`."""
        pending = self.send(add, epoch=epoch, version=version, **fields)
        return pending.answers(differs=differs)

    def send(
        self,
        add: Sequence[Place] = (),
        *,
        epoch: int | None = None,
        version: int | None = None,
        **fields: Value,
    ) -> Pending:
        """Send a fetch without waiting."""
        request = self.fetch_request(add, epoch=epoch, **fields)
        pending = self.line.send(request, version or self.version)
        pending.then = self._advance(request.share_session_epoch)
        return pending

    def peek(self, add: Sequence[Place] = (), **fields: Value) -> Answers:
        """Fetch without comparing."""
        return self.send(add, **fields).uncompared()

    def fetch_request(
        self,
        add: Sequence[Place] = (),
        *,
        epoch: int | None = None,
        acks: Acks | None = None,
        forget: Sequence[Place] = (),
        **fields: Value,
    ) -> fetching.ShareFetchRequest:
        """By default of at most 500 records, waiting for one if none is there."""
        listed: Acks = {**dict.fromkeys(add, ()), **(acks or {})}
        stated = {
            "group_id": self.group.id,
            "member_id": self.member_id,
            "share_session_epoch": self.epoch if epoch is None else epoch,
            "max_wait_ms": WAIT_MS,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
            "topics": _topics(fetching.FetchTopic, fetching.FetchPartition, listed),
            "forgotten_topics_data": [
                fetching.ForgottenTopic(topic_id=topic.id, partitions=numbers)
                for topic, numbers in by_topic(forget).items()
            ],
            **fields,
        }
        return fetching.ShareFetchRequest(**stated)

    def acknowledge(
        self,
        acks: Acks,
        *,
        epoch: int | None = None,
        version: int | None = None,
        differs: Difference | None = None,
        **fields: Value,
    ) -> Answers:
        pending = self.send_acknowledge(acks, epoch=epoch, version=version, **fields)
        return pending.answers(differs=differs)

    def send_acknowledge(
        self, acks: Acks, *, epoch: int | None = None, version: int | None = None, **fields: Value
    ) -> Pending:
        """Send it without waiting."""
        request = self.acknowledge_request(acks, epoch=epoch, **fields)
        pending = self.line.send(request, version or self.version)
        pending.then = self._advance(request.share_session_epoch)
        return pending

    def acknowledge_request(
        self, acks: Acks, *, epoch: int | None = None, **fields: Value
    ) -> acknowledging.ShareAcknowledgeRequest:
        stated = {
            "group_id": self.group.id,
            "member_id": self.member_id,
            "share_session_epoch": self.epoch if epoch is None else epoch,
            "topics": _topics(
                acknowledging.AcknowledgeTopic, acknowledging.AcknowledgePartition, acks
            ),
            **fields,
        }
        return acknowledging.ShareAcknowledgeRequest(**stated)

    def close(self) -> Answers:
        """End the session."""
        return self.acknowledge({}, epoch=CLOSE)

    def _advance(self, epoch: int) -> Callable[[Answers], None]:
        def advance(answers: Answers) -> None:
            # A broker that closes the connection has no error code.
            if not getattr(answers.kafka, "error_code", True):
                self.epoch = 0 if epoch == CLOSE else epoch % 0x7FFFFFFF + 1

        return advance


def by_topic(places: Sequence[Place]) -> dict[Topic, list[int]]:
    found: dict[Topic, list[int]] = {}
    for topic, number in places:
        found.setdefault(topic, []).append(number)
    return found


def _topics(topic_type: type, partition_type: type, acks: Acks) -> list[Value]:
    topics: dict[Topic, list[Value]] = {}
    for (topic, number), batches in acks.items():
        listed = [
            acknowledging.AcknowledgementBatch(
                first_offset=first, last_offset=last, acknowledge_types=types
            )
            for first, last, types in batches
        ]
        partition = partition_type(partition_index=number, acknowledgement_batches=listed)
        topics.setdefault(topic, []).append(partition)
    return [
        topic_type(topic_id=topic.id, partitions=partitions) for topic, partitions in topics.items()
    ]


def assigned_count(answer: beating.ShareGroupHeartbeatResponse) -> int:
    """The partitions in the assignment."""
    listed = answer.assignment.topic_partitions if answer.assignment else []
    return sum(len(one.partitions) for one in listed)


def acquired(answer: fetching.ShareFetchResponse) -> Acquired:
    """What a fetch of one topic got."""
    return sorted(
        (partition.partition_index, one.first_offset, one.last_offset, one.delivery_count)
        for topic in answer.responses
        for partition in topic.partitions
        for one in partition.acquired_records
    )


def errors(answer: Value) -> list[int]:
    """The errors of partitions: of a ShareFetch those of acknowledgements follow."""
    found = []
    for topic in answer.responses:
        for partition in topic.partitions:
            found.append(partition.error_code)
            found += [getattr(partition, "acknowledge_error_code", 0)] * hasattr(
                partition, "acknowledge_error_code"
            )
    return found
