"""Records of share groups (KIP-932), in __consumer_offsets and in __share_group_state: both brokers
write the same ones, in the same order.
"""

import struct
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from kohort.protocol.codec import decode_versioned
from kohort.protocol.layout import to_plain
from kohort.protocol.messages import share_groups_log as groups_log
from kohort.protocol.messages import share_state_log as state_log
from kohort.protocol.records.batch import split_batches
from kohort.protocol.records.record import decode_records
from tests.interop.same_answers.each import Value
from tests.interop.same_answers.pair import TWIN_SETTINGS, Pair
from tests.interop.same_answers.scenes import END, Topic, fetch_request, offsets_request
from tests.interop.same_answers.share import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    ShareGroup,
    create_topic,
)
from tests.interop.same_answers.share_scenes import Scene
from tests.support import messages as m
from tests.support.waiting import wait_until

OFFSETS: Final = Topic("__consumer_offsets", bytes(16))
STATE: Final = Topic("__share_group_state", bytes(16))
OF_GROUPS: Final[Mapping[int, tuple[type, type]]] = {
    10: (groups_log.ShareGroupMemberMetadataKey, groups_log.ShareGroupMemberMetadataValue),
    11: (groups_log.ShareGroupMetadataKey, groups_log.ShareGroupMetadataValue),
    12: (groups_log.ShareGroupMetadataKey, groups_log.ShareGroupTargetAssignmentMetadataValue),
    13: (groups_log.ShareGroupAssignmentKey, groups_log.ShareGroupTargetAssignmentMemberValue),
    14: (groups_log.ShareGroupAssignmentKey, groups_log.ShareGroupCurrentMemberAssignmentValue),
    15: (
        groups_log.ShareGroupStatePartitionMetadataKey,
        groups_log.ShareGroupStatePartitionMetadataValue,
    ),
}
OF_STATES: Final[Mapping[int, tuple[type, type]]] = {
    0: (state_log.ShareStateKey, state_log.ShareSnapshotValue),
    1: (state_log.ShareStateKey, state_log.ShareUpdateValue),
}
OWN: Final = frozenset(
    {"topic_id", "assignment_timestamp", "create_timestamp", "write_timestamp", "metadata_hash"}
)
"""Fields that are each broker's own."""


class Log:
    """An internal topic of both, from the moment on at which it is looked at first."""

    def __init__(
        self, pair: Pair, topic: Topic, count: int, types: Mapping[int, tuple[type, type]]
    ) -> None:
        self.pair = pair
        self.topic = topic
        self.types = types
        self.count = count
        self.begins = [self._ends(side) for side in range(2)]

    def _ends(self, side: int) -> dict[int, int]:
        request = offsets_request(self.topic, END, *range(self.count))
        (listed,) = self.pair.peek(request, 1)[side].topics
        return {one.partition_index: max(one.offset, 0) for one in listed.partitions}

    def records(self, group_id: str) -> list[list[tuple[int, str, Value]]]:
        """Type, member and value of each of the group's records, of Kafka and of us."""
        found = []
        for side, name in enumerate(("kafka", "kohort")):
            request = fetch_request(self.topic, self.begins[side])
            answer = self.pair.line.ask_alone(getattr(self.pair, name), request, 12)
            found.append(
                [
                    record
                    for partition in sorted(answer.responses[0].partitions, key=_index)
                    for record in self._decoded(bytes(partition.records or b""), group_id)
                ]
            )
        return found

    def _decoded(self, data: bytes, group_id: str) -> Iterator[tuple[int, str, Value]]:
        for header, batch in split_batches(data):
            for record in decode_records(batch, header):
                if header.is_control or record.key is None:
                    continue
                (kind,) = struct.unpack_from(">h", record.key)
                if kind not in self.types:
                    continue
                key_type, value_type = self.types[kind]
                key: Value = decode_versioned(key_type, record.key)[0]
                if key.group_id == group_id:
                    value = None
                    if record.value is not None:
                        value = _masked(to_plain(*decode_versioned(value_type, record.value)))
                    yield kind, getattr(key, "member_id", ""), value

    def compare(
        self, group_id: str, *, change: Callable[[list[Value]], list[Value]] = list
    ) -> list[Value]:
        """Wait until both have the same; `change` takes what is meant to differ out."""
        seen: list[list[Value]] = []

        def is_alike() -> bool:
            seen[:] = [change(records) for records in self.records(group_id)]
            return seen[0] == seen[1]

        wait_until(is_alike, lambda: f"{seen[0]}\n is \n{seen[1]}", timeout_s=5)
        return seen[0]


def _index(partition: Value) -> int:
    index: int = partition.partition_index
    return index


def _without_deleting(records: list[Value]) -> list[Value]:
    """Kafka stores first which topics it deletes the state of; here that is one step."""
    return [record for record in records if not (record[2] or {}).get("deleting_topics")]


def _masked(value: Value) -> Value:
    if isinstance(value, dict):
        return {name: _masked(one) for name, one in value.items() if name not in OWN}
    return [_masked(one) for one in value] if isinstance(value, list) else value


def state_of(pair: Pair) -> Log:
    count = int(TWIN_SETTINGS["share.coordinator.state.topic.num.partitions"])
    return Log(pair, STATE, count, OF_STATES)


def offsets_of(pair: Pair) -> Log:
    count = int(TWIN_SETTINGS["offsets.topic.num.partitions"])
    return Log(pair, OFFSETS, count, OF_GROUPS)


def test_states(pair: Pair) -> None:
    """One update for each request that changes something; a snapshot after five."""
    scene = Scene(pair, 10, share_delivery_count_limit="3")
    log = state_of(pair)
    assert scene.fetch(scene.one) == [0, 9, 1]
    for batches in (
        [(2, 3, [ACCEPT])],
        [(0, 0, [REJECT]), (5, 6, [ACCEPT, RELEASE])],
        [(1, 1, [GAP])],
        [(4, 4, [RELEASE]), (7, 7, [RELEASE])],
        [(8, 9, [RELEASE, ACCEPT])],
    ):
        scene.acknowledge(scene.one, *batches)
    scene.acknowledge(scene.one, (2, 2, [ACCEPT]))
    assert scene.fetch(scene.two) == [4, 4, 2, 6, 8, 2]
    scene.two.close()
    pair.settle()
    # Alone, and archived by its release.
    assert scene.fetch(scene.two) == [4, 4, 3]
    scene.acknowledge(scene.two, (4, 4, [RELEASE]))
    assert len(log.compare(scene.group.id)) == 7


def test_a_lock_that_ends(pair: Pair) -> None:
    scene = Scene(pair, 4, share_record_lock_duration_ms="1000")
    log = state_of(pair)
    assert scene.fetch(scene.one) == [0, 3, 1]
    assert scene.fetch(scene.two) == [0, 3, 2]
    scene.acknowledge(scene.two, (0, 3, [ACCEPT]))
    assert len(log.compare(scene.group.id)) == 2


def test_altered_and_deleted_offsets(pair: Pair) -> None:
    scene = Scene(pair, 10)
    assert scene.fetch(scene.one) == [0, 9, 1]
    scene.acknowledge(scene.one, (0, 4, [ACCEPT]))
    scene.one.line.close()
    time.sleep(0.3)
    log = state_of(pair)
    scene.group.alter_offsets({scene.place: 3})
    scene.group.delete_offsets(scene.topic)
    records = log.compare(scene.group.id)
    assert [(kind, value is None) for kind, _, value in records] == [(0, False), (0, True)]


def test_groups(pair: Pair) -> None:
    """Of a group whose partitions are initialized."""
    topic, other = create_topic(pair), create_topic(pair)
    group = ShareGroup(pair, topic, other)
    log = offsets_of(pair)
    group.join("one", topic)
    assert [kind for kind, *_ in log.compare(group.id)][:5] == [10, 11, 13, 12, 14]
    epoch = group.join("two", topic)
    group.beat("one", epoch, rack_id="r")
    group.beat("two", epoch, topic, other)
    log.compare(group.id)
    group.beat("two", -1)
    group.join("one", topic)
    group.beat("one", -1)
    log.compare(group.id)
    pair.ask(m.DeleteGroupsRequest(groups_names=[group.id]), 2)
    log.compare(group.id, change=_without_deleting)
