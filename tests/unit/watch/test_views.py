"""A watcher shows the same state of a group as a coordinator that loads its records."""

from collections import Counter, defaultdict

from kohort.groups.classic.data import ClassicData
from kohort.groups.classic.membership import ClassicMembership
from kohort.groups.config import GroupConfig
from kohort.groups.consumer.membership import ConsumerMembership
from kohort.groups.description import DescribedMember
from kohort.groups.encoding import encode_key, types_of_kind
from kohort.groups.group import Group, NewMembership
from kohort.groups.history.shares import parse_share
from kohort.groups.kinds import GroupKind
from kohort.groups.member_memory import MemberAccount
from kohort.groups.records import DurableRecord, OffsetRecord, OffsetTombstone
from kohort.groups.requests import Now
from kohort.groups.topics import Topic
from kohort.watch.core.watcher import Watcher
from tests.support.groups.consumer_group import SETTINGS, Topics
from tests.unit.watch.recorded import TIMEOUTS, lab_records

EVERY = 200
"""Records between two looks."""

Log = dict[bytes, DurableRecord]
"""The records of a group that compaction keeps, by key."""


def coordinator(group_id: str, topics: Topics, records: list[DurableRecord]) -> Group:
    """Return a group as a coordinator loads it."""

    def classic(group: Group) -> ClassicMembership:
        return ClassicMembership(ClassicData(group, new_member_id=lambda prefix: prefix))

    def consumer(group: Group) -> ConsumerMembership:
        return ConsumerMembership(
            group,
            topics,
            lambda _: SETTINGS,
            MemberAccount(),
            new_classic=classic,
            new_member_id=lambda: "new",
        )

    restorers: dict[type, NewMembership] = dict.fromkeys(types_of_kind(GroupKind.CLASSIC), classic)
    restorers |= dict.fromkeys(types_of_kind(GroupKind.CONSUMER), consumer)
    group = Group(group_id, GroupConfig(), restorers)
    group.restore(records, Now(0, 0))
    return group


def assert_same(group_id: str, watcher: Watcher, log: Log, topics: Topics) -> str:
    """Compare both; return the state."""
    group = coordinator(group_id, topics, list(log.values()))
    expected, view = group.describe(), watcher.view(group_id)
    if group.membership is None:
        assert view is None
        return ""
    assert view is not None
    shown = view.describe()
    if shown.kind is GroupKind.CONSUMER:
        # The records do not have the coordinator's default.
        expected = expected._replace(assignor=shown.assignor)
    assert shown._replace(since_ms=0) == expected._replace(since_ms=0)
    assert set(map(plain, view.describe_members())) == set(map(plain, group.describe_members()))
    assert view.gauges().get("epoch") == group.gauges().get("epoch")
    return shown.state


def plain(member: DescribedMember) -> tuple[object, ...]:
    share = parse_share(member.assignment)
    return *member[:4], member.rebalance_timeout_ms, share


def test_it_agrees_with_a_coordinator_throughout_the_lab() -> None:
    records = list(lab_records())
    topics = Topics()
    for record, _, _ in records:
        if isinstance(record, OffsetRecord):
            topic_id = record.committed.topic_id
            topics.by_name[record.topic] = Topic(topic_id, 6)
    names = {topic.topic_id: name for name, topic in topics.by_name.items()}
    watcher = Watcher(names, lambda group: TIMEOUTS)
    logs: dict[str, Log] = defaultdict(dict)
    states: Counter[str] = Counter()
    at_ms, count = 0, 0
    for record, stored, place in records:
        count += 1
        if count >= EVERY and stored.timestamp != at_ms:
            count = 0
            list(watcher.flush())
            states.update(assert_same(group, watcher, log, topics) for group, log in logs.items())
        at_ms = stored.timestamp
        list(watcher.take([stored], place))
        if isinstance(record, OffsetRecord | OffsetTombstone):
            continue
        log, key = logs[record.group_id], encode_key(record)
        log.pop(key, None)
        if stored.value is not None:
            log[key] = record
    assert min(states[state] for state in ("Stable", "Empty", "Assigning", "Reconciling", "")) > 0
