"""What every assignment has to keep to, whatever members and topics there are."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kohort.client.core.group.assignors import (
    ASSIGNORS,
    Assignor,
    CooperativeStickyAssignor,
    GroupMember,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
)
from kohort.client.core.group.assignors.assignor import Assignment
from kohort.client.core.group.assignors.sticky import encode_held
from kohort.client.core.partitions import TopicPartition
from tests.support.measures.bytecodes import metered
from tests.support.suites.examples import examples

TOPICS = ("a", "b", "c", "d", "gone")
Counts = dict[str, int]
Members = list[GroupMember]
Group = tuple[Counts, Members]

counts = st.fixed_dictionaries({topic: st.integers(1, 7) for topic in TOPICS[:-1]})


@st.composite
def groups(draw: st.DrawFn, *, alike: bool = False) -> Group:
    """Topics and members without a past; alike: all subscribe to the same."""
    subscriptions = st.frozensets(st.sampled_from(TOPICS), min_size=1)
    common = draw(subscriptions)
    members = [
        GroupMember(
            f"member-{number}",
            common if alike else draw(subscriptions),
            instance_id=draw(st.none() | st.just(f"instance-{9 - number}")),
        )
        for number in range(draw(st.integers(1, 6)))
    ]
    return draw(counts), members


@st.composite
def groups_with_a_past(draw: st.DrawFn, *, alike: bool = False) -> Group:
    """Members that claim whatever they like, of whatever generation, even of the same."""
    partition_counts, members = draw(groups(alike=alike))
    claims = st.lists(
        st.builds(TopicPartition, st.sampled_from(TOPICS), st.integers(0, 8)),
        unique=True,
        max_size=8,
    )
    return partition_counts, [
        remembering(member, draw(claims), draw(st.integers(0, 4))) for member in members
    ]


@st.composite
def groups_with_owners(draw: st.DrawFn) -> Group:
    """Members that hold what they hold alone, more or less evenly."""
    partition_counts, members = draw(groups())
    held: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
    for topic, count in partition_counts.items():
        takers = [member.member_id for member in members if topic in member.topics]
        for index in range(count if takers else 0):
            owner = draw(st.none() | st.sampled_from(takers))
            if owner is not None:
                held[owner].append(TopicPartition(topic, index))
    return partition_counts, [remembering(member, held[member.member_id], 4) for member in members]


def remembering(
    member: GroupMember, partitions: Sequence[TopicPartition], generation: int
) -> GroupMember:
    """The member with what it held, as both sticky assignors hear of it."""
    return replace(
        member,
        owned=tuple(partitions),
        generation=generation,
        user_data=encode_held(partitions, generation),
    )


def holding(member_id: str, topics: str, partitions: str) -> GroupMember:
    """For topics with names of one letter: "t3 t5"."""
    held = [TopicPartition(one[0], int(one[1:])) for one in partitions.split()]
    return remembering(GroupMember(member_id, frozenset(topics)), held, 4)


SWAPPING: Group = (
    {"t": 14, "u": 3},
    [
        holding("1", "t", "t0 t2 t13"),
        holding("2", "t", "t1 t3 t7"),
        holding("3", "u", ""),
        holding("4", "tu", "u0 u1 u2"),
        holding("5", "tu", "t8 t10 t11"),
        holding("6", "t", ""),
    ],
)
"""Here 3 is to have two partitions of 4, which gets two others, by way of 1."""


def after(members: Members, assignment: Assignment, generation: int = 5) -> Members:
    return [remembering(member, assignment[member.member_id], generation) for member in members]


def owners(assignment: Assignment) -> dict[TopicPartition, str]:
    """Owner of each partition; no member has what another one has."""
    found: dict[TopicPartition, str] = {}
    for member_id, partitions in assignment.items():
        for partition in partitions:
            assert partition not in found
            found[partition] = member_id
    return found


def wanted(partition_counts: Mapping[str, int], members: Members) -> set[TopicPartition]:
    topics = {topic for member in members for topic in member.topics}
    return {
        TopicPartition(topic, index)
        for topic in topics & set(partition_counts)
        for index in range(partition_counts[topic])
    }


def settled(
    partition_counts: Mapping[str, int], members: Members
) -> tuple[Members, Assignment, int]:
    """A cooperative group from its first round to its last; how many it took."""
    assignor = CooperativeStickyAssignor()
    generation = 10
    for rounds in range(1, 10):
        assignment = assignor.assign(partition_counts, members)
        lost = any(set(member.owned) - set(assignment[member.member_id]) for member in members)
        generation += 1
        members = after(members, assignment, generation)
        if not lost:
            return members, assignment, rounds
    raise AssertionError("the group never settled")


every_assignor = pytest.mark.parametrize("assignor_class", ASSIGNORS.values(), ids=ASSIGNORS)
sticky_ones = pytest.mark.parametrize(
    "assignor_class", [StickyAssignor, CooperativeStickyAssignor], ids=lambda one: one.name
)
eager_ones = pytest.mark.parametrize(
    "assignor_class",
    [RangeAssignor, RoundRobinAssignor, StickyAssignor],
    ids=lambda one: one.name,
)


@eager_ones
@given(group=groups_with_a_past())
def test_every_partition_has_exactly_one_owner(
    assignor_class: type[Assignor], group: Group
) -> None:
    partition_counts, members = group
    assignment = assignor_class().assign(partition_counts, members)
    assert set(owners(assignment)) == wanted(partition_counts, members)


@every_assignor
@given(group=groups_with_a_past())
def test_no_member_gets_what_it_did_not_ask_for(
    assignor_class: type[Assignor], group: Group
) -> None:
    partition_counts, members = group
    assignment = assignor_class().assign(partition_counts, members)
    assert set(assignment) == {member.member_id for member in members}
    for member in members:
        for topic, index in assignment[member.member_id]:
            assert topic in member.topics
            assert index < partition_counts[topic]


@every_assignor
@given(group=groups_with_a_past(), random=st.randoms())
def test_the_order_of_the_members_does_not_matter(
    assignor_class: type[Assignor], group: Group, random: object
) -> None:
    partition_counts, members = group
    shuffled = list(members)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert assignor_class().assign(partition_counts, members) == assignor_class().assign(
        partition_counts, shuffled
    )


@given(group=groups_with_a_past(alike=True))
def test_sticky_shares_equal_wishes_evenly(group: Group) -> None:
    assignment = StickyAssignor().assign(*group)
    assert max(map(len, assignment.values())) - min(map(len, assignment.values())) <= 1


@given(group=groups_with_a_past())
def test_no_partition_of_sticky_could_move_to_a_member_that_has_two_fewer(group: Group) -> None:
    _check_that_nothing_could_move(StickyAssignor().assign(*group), *group)


@given(group=groups_with_a_past())
def test_a_settled_cooperative_group_is_as_even(group: Group) -> None:
    partition_counts, members = group
    members, assignment, _ = settled(partition_counts, members)
    _check_that_nothing_could_move(assignment, partition_counts, members)
    assert set(owners(assignment)) == wanted(partition_counts, members)


def _check_that_nothing_could_move(
    assignment: Assignment, partition_counts: Mapping[str, int], members: Members
) -> None:
    for partition, owner in owners(assignment).items():
        for member in members:
            if partition.topic in member.topics:
                assert len(assignment[owner]) - len(assignment[member.member_id]) < 2
    assert partition_counts


@sticky_ones
@given(group=groups())
def test_without_any_change_everything_stays(assignor_class: type[Assignor], group: Group) -> None:
    partition_counts, members = group
    first = assignor_class().assign(partition_counts, members)
    again = assignor_class().assign(partition_counts, after(members, first))
    assert owners(again) == owners(first)


@given(group=groups_with_owners())
@example(group=SWAPPING)
def test_sticky_takes_nothing_from_a_member_that_gets_as_much_of_the_same_topic(
    group: Group,
) -> None:
    partition_counts, members = group
    assignment = StickyAssignor().assign(partition_counts, members)
    for member in members:
        before, now = set(member.owned), set(assignment[member.member_id])
        assert {one.topic for one in before - now}.isdisjoint(one.topic for one in now - before)


@sticky_ones
@given(group=groups(alike=True), data=st.data())
def test_when_a_member_leaves_only_its_partitions_move(
    assignor_class: type[Assignor], group: Group, data: st.DataObject
) -> None:
    partition_counts, members = group
    first = owners(assignor_class().assign(partition_counts, members))
    rest = after(members, assignor_class().assign(partition_counts, members))
    gone = data.draw(st.sampled_from(rest))
    rest.remove(gone)
    if rest:
        second = owners(assignor_class().assign(partition_counts, rest))
        for partition, owner in first.items():
            if owner != gone.member_id:
                assert second[partition] == owner


@given(group=groups(alike=True))
def test_when_a_member_comes_no_more_moves_than_it_gets(group: Group) -> None:
    partition_counts, members = group
    first = StickyAssignor().assign(partition_counts, members)
    newcomer = GroupMember("newcomer", members[0].topics)
    second = StickyAssignor().assign(partition_counts, [*after(members, first), newcomer])
    before = owners(first)
    moved = {partition for partition, owner in owners(second).items() if before[partition] != owner}
    assert moved == set(second["newcomer"])


@sticky_ones
@given(partition_counts=counts, ages=st.lists(st.integers(0, 3), min_size=2, max_size=5))
def test_the_claim_of_the_highest_generation_holds(
    assignor_class: type[Assignor], partition_counts: Counts, ages: list[int]
) -> None:
    """One partition that all claim, and one partition each, so that balance takes nothing away."""
    disputed = TopicPartition("x", 0)
    members = [
        remembering(GroupMember(f"member-{number}", frozenset({"x"})), [disputed], generation)
        for number, generation in enumerate(ages)
    ]
    partition_counts = {"x": len(members)}
    assignor = assignor_class()
    assignment = assignor.assign(partition_counts, members)
    newest = [number for number, age in enumerate(ages) if age == max(ages)]
    if len(newest) == 1:
        assert disputed in assignment[f"member-{newest[0]}"]
    elif isinstance(assignor, CooperativeStickyAssignor):
        assert disputed not in owners(assignment)


@given(partition_counts=counts, generation=st.integers(0, 3))
def test_an_old_claim_holds_where_no_one_newer_has_one(
    partition_counts: Counts, generation: int
) -> None:
    members = [
        remembering(GroupMember("old", frozenset({"x"})), [TopicPartition("x", 1)], generation),
        remembering(GroupMember("new", frozenset({"x"})), [TopicPartition("x", 0)], 4),
    ]
    for assignor in (StickyAssignor(), CooperativeStickyAssignor()):
        assert assignor.assign({**partition_counts, "x": 2}, members) == {
            "old": [TopicPartition("x", 1)],
            "new": [TopicPartition("x", 0)],
        }


@given(group=groups_with_a_past())
def test_no_member_is_given_what_another_one_still_holds(group: Group) -> None:
    partition_counts, members = group
    claimed = [
        (partition, member.member_id, member.generation)
        for member in members
        for partition in member.owned
        if partition.topic in member.topics
    ]
    for partition, owner in owners(
        CooperativeStickyAssignor().assign(partition_counts, members)
    ).items():
        others = [(who, when) for what, who, when in claimed if what == partition and who != owner]
        mine = [when for what, who, when in claimed if what == partition and who == owner]
        # Only those remain whose own claim is older than the one that was kept.
        assert all(mine and when < mine[0] for _, when in others)


@settings(max_examples=examples(300))
@given(group=groups_with_a_past())
def test_a_cooperative_group_settles_in_two_rounds(group: Group) -> None:
    assert settled(*group)[2] <= 2


@given(group=groups(), steps=st.lists(st.integers(0, 5), max_size=4))
def test_a_cooperative_group_settles_in_two_rounds_after_each_change(
    group: Group, steps: list[int]
) -> None:
    partition_counts, members = group
    members, _, _ = settled(partition_counts, members)
    for step in steps:
        if len(members) > 1:
            members = [member for place, member in enumerate(members) if place != step]
        newcomer = GroupMember(f"newcomer-{step}-{len(members)}", frozenset(TOPICS[: step + 1]))
        members = [
            *(one for one in members if one.member_id != newcomer.member_id),
            newcomer,
        ]
        members, _, rounds = settled(partition_counts, members)
        assert rounds <= 2


@given(group=groups())
def test_range_gives_runs_of_neighbours(group: Group) -> None:
    for partitions in RangeAssignor().assign(*group).values():
        for one, other in pairwise(partitions):
            assert one.topic != other.topic or other.partition == one.partition + 1


@every_assignor
def test_a_thousand_members_share_ten_thousand_partitions(assignor_class: type[Assignor]) -> None:
    partition_counts = {f"topic-{number}": 100 for number in range(100)}
    members = [
        GroupMember(f"member-{number:04}", frozenset(partition_counts)) for number in range(1000)
    ]
    first = assignor_class().assign(partition_counts, members)
    second = assignor_class().assign(partition_counts, after(members, first)[:-1])
    shares = {len(one) for one in first.values()}
    # By range, the first hundred members have the same partition of every topic.
    assert shares == ({0, 100} if assignor_class is RangeAssignor else {10})
    everything = wanted(partition_counts, members)
    assert set(owners(first)) == everything
    left = everything - set(owners(second))
    # A cooperative assignor does not assign in this round what another member has to revoke first.
    assert left == set() or assignor_class is CooperativeStickyAssignor
    assert len(left) < 100


@every_assignor
def test_twice_the_members_and_partitions_are_about_twice_the_work(
    assignor_class: type[Assignor],
) -> None:
    """In bytecodes, of which a busy machine runs as many as an idle one."""

    def work(size: int) -> int:
        partition_counts = {f"topic-{number}": size for number in range(10)}
        members = [
            GroupMember(f"member-{number:04}", frozenset(partition_counts))
            for number in range(size)
        ]
        first = assignor_class().assign(partition_counts, members)
        with metered() as meter:
            assignor_class().assign(partition_counts, after(members, first)[:-1])
        return meter.count

    assert 0 < work(200) < 3 * work(100)
