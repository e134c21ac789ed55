"""Which members fit a group, which assignor wins, what JoinReason's tag is to those without it."""

import pytest

from kohort.protocol.join_reason import JoinReason
from kohort.protocol.messages.membership import JoinGroupRequestProtocol
from tests.interop.same_answers import differences
from tests.interop.same_answers.ages import FIRST, NEWEST, REQUIRED_IDS, Age
from tests.interop.same_answers.groups import Group, Member
from tests.interop.same_answers.pair import Pair, Pending

AGES = [FIRST, REQUIRED_IDS, NEWEST]


@pytest.fixture(params=AGES, ids=lambda age: age.name)
def group(pair: Pair, request: pytest.FixtureRequest) -> Group:
    return Group(pair, request.param)


def with_offers(group: Group, name: str, *assignors: str) -> Member:
    protocols = {assignor: f"{name}'s {assignor}".encode() for assignor in assignors}
    return group.member(name, protocols=protocols)


def test_nothing_fits_into_no_group(group: Group) -> None:
    group.member("untyped", type="").join().answers()
    group.describe(eventually=True)
    group.member("empty", protocols={}).join().answers()
    group.describe(eventually=True)
    group.list()


def test_those_that_do_not_fit_are_refused(group: Group) -> None:
    one = with_offers(group, "one", "range", "sticky")
    group.settle(one)
    for other in (
        with_offers(group, "other"),
        with_offers(group, "other", "roundrobin"),
        group.member("other", type="connect"),
        group.member("other", type=""),
    ):
        other.join().answers()
    group.describe()
    one.heartbeat()
    one.protocols = {"roundrobin": b""}
    one.join().answers()
    one.protocols = {}
    one.join().answers()
    one.protocols, one.type = {"range": b""}, "connect"
    one.join().answers()
    group.describe()


def test_the_only_common_one_wins(group: Group) -> None:
    one = with_offers(group, "one", "range", "sticky")
    two = with_offers(group, "two", "roundrobin", "sticky")
    group.gather(one, two)
    with_offers(group, "three", "range").join().answers()
    with_offers(group, "three", "roundrobin").join().answers()
    waiting = with_offers(group, "four", "sticky", "range").park()
    group.wait_members(3)
    assert waiting.is_parked()
    group.rejoin(one, two)
    waiting.answers()
    group.describe()


def test_votes_decide(group: Group) -> None:
    one = with_offers(group, "one", "range", "sticky", "roundrobin")
    two = with_offers(group, "two", "roundrobin", "range", "sticky")
    three = with_offers(group, "three", "roundrobin", "range")
    group.gather(one, two, three)
    group.describe()


def test_a_vote_goes_to_the_first_that_all_have(group: Group) -> None:
    one = with_offers(group, "one", "range", "sticky")
    two = with_offers(group, "two", "new", "sticky", "range")
    three = with_offers(group, "three", "newer", "new", "sticky", "range")
    group.gather(one, two, three)


def test_a_tie(pair: Pair) -> None:
    group = Group(pair)
    one = with_offers(group, "one", "range", "sticky")
    two = with_offers(group, "two", "sticky", "range")
    one.joined()
    waiting = two.park()
    group.wait_members(2)
    one.join().answers(differs=differences.TIED_VOTES)
    waiting.answers(differs=differences.TIED_VOTES)


def test_one_assignor_is_offered_twice(pair: Pair) -> None:
    one = Group(pair).member("one", patience_s=1).ask_for_id()
    twice = [JoinGroupRequestProtocol(name="range", metadata=data) for data in (b"1", b"2")]
    one.join(protocols=twice).answers(differs=differences.ASSIGNOR_LISTED_TWICE)


def test_a_lone_member_moves_to_another_assignor_in_two_steps(group: Group) -> None:
    one = with_offers(group, "one", "range")
    group.settle(one)
    for assignors in (["sticky"], ["sticky", "range"], ["sticky"]):
        one.protocols = dict.fromkeys(assignors, b"")
        one.join().answers()
        group.describe()


def test_another_type_of_group(group: Group) -> None:
    one, two = with_offers(group, "one", "v1", "v0"), with_offers(group, "two", "v0", "v1")
    for member in (one, two):
        member.type = "connect"
    two.protocols = {"v1": b"two"}
    group.settle(one, two)
    group.describe()
    group.list()


# JoinReason's tag.


def settled(pair: Pair, age: Age) -> tuple[Group, Member, Member]:
    group = Group(pair, age)
    one, two = group.member("one"), group.member("two")
    group.settle(one, two)
    return group, one, two


@pytest.mark.parametrize("version", range(6, 10))
@pytest.mark.parametrize("reason", [*range(10), 10, 42, 63, 64, 100, 127, -1, -128])
def test_reasons_that_change_nothing(pair: Pair, version: int, reason: int) -> None:
    """Reasons of a first join, of a join to a rebalance, and while the assignment is awaited."""
    group = Group(pair, NEWEST._replace(join=version))
    one, two = group.member("one"), group.member("two")
    one.join(join_reason=reason).answers()
    one.join(join_reason=reason).answers()
    two.join(join_reason=reason).answers()
    waiting = two.join(join_reason=reason)
    group.wait_members(2)
    one.join(join_reason=reason).answers()
    waiting.answers()
    two.join(join_reason=reason).answers()
    group.assign(one, two)
    group.describe()


@pytest.mark.parametrize("version", range(6, 10))
def test_reasons_that_mean_nothing(pair: Pair, version: int) -> None:
    for reason in (0, 10, 42, 63, 64, 127, -1, -128):
        group, one, two = settled(pair, NEWEST._replace(join=version))
        two.join(join_reason=reason).answers()
        group.describe()
        waiting = one.join(join_reason=reason)
        assert waiting.is_parked(for_s=0.03)
        group.describe()


@pytest.mark.parametrize("version", range(6, 10))
def test_a_leader_that_has_restarted(pair: Pair, version: int) -> None:
    group, one, _ = settled(pair, NEWEST._replace(join=version))
    leave_open(one.join(join_reason=JoinReason.RESTART))
    group.describe(differs=differences.RESTARTED_LEADER)


def leave_open(pending: Pending) -> None:
    """The request is answered by one of the two only; wait until it has arrived at both."""
    pending.line.pair.settle()


FORCING = [
    JoinReason.UPGRADE,
    JoinReason.SUBSCRIPTION_CHANGE,
    JoinReason.PARTITIONS_REVOKED,
    JoinReason.ENFORCED,
    JoinReason.ASSIGNOR_STATE_CHANGE,
]


@pytest.mark.parametrize("reason", FORCING, ids=lambda reason: reason.name)
def test_a_follower_with_a_reason(pair: Pair, reason: JoinReason) -> None:
    for version in range(6, 10):
        group, _, two = settled(pair, NEWEST._replace(join=version))
        leave_open(two.join(join_reason=reason))
        group.describe(differs=differences.FORCED_REBALANCE)


TAG = b"\xb0\x3c"
ODD_TAGS = {
    "nothing in it": b"\x01" + TAG + b"\x00",
    "more behind it": b"\x01" + TAG + b"\x03\x00\x01\x02",
    "unknown ones around it": b"\x03\x05\x02ab" + TAG + b"\x01\x00" + b"\xb1\x3c\x00",
    "a far one": b"\x01\xff\xff\xff\xff\x07\x01x",
}


@pytest.mark.parametrize("tags", ODD_TAGS.values(), ids=ODD_TAGS)
@pytest.mark.parametrize("version", range(6, 10))
def test_odd_tags_are_skipped(pair: Pair, version: int, tags: bytes) -> None:
    def edit(body: bytes) -> bytes:
        assert body.endswith(b"\x00")
        return body[:-1] + tags

    group, one, two = settled(pair, NEWEST._replace(join=version))
    two.line().send(two.join_request(version), version, edit=edit).answers()
    group.describe()
    waiting = one.line().send(one.join_request(version), version, edit=edit)
    assert waiting.is_parked(for_s=0.03)
    two.line().send(two.join_request(version), version, edit=edit).answers()
    waiting.answers()
