"""What a group of thousands does within one step, counted for each of its members."""

import itertools
from collections import Counter

import pytest

from kohort.groups.classic.data import ClassicData
from kohort.groups.classic.member import JOIN_TIMER
from kohort.groups.classic.membership import ClassicMembership
from kohort.groups.classic.states import ClassicState
from kohort.groups.config import GroupConfig
from kohort.groups.effects import Append
from kohort.groups.group import Group
from kohort.groups.requests import JoinRequest, Now
from tests.support.groups.scenario import Scenario, subscription
from tests.support.measures.bytecodes import Meter, metered

SIZE = 500


class Large:
    """A group whose members have all joined, at the end of its initial delay."""

    def __init__(self) -> None:
        ids = itertools.count()
        self.group = Group("g", GroupConfig())
        self.members = ClassicMembership(
            ClassicData(self.group, new_member_id=lambda prefix: f"{prefix}-{next(ids)}")
        )
        self.group.membership = self.members
        for _ in range(SIZE):
            request = JoinRequest(
                member_id="",
                instance_id=None,
                client_id="c",
                client_host="/h",
                session_timeout_ms=10_000,
                rebalance_timeout_ms=60_000,
                protocol_type="consumer",
                protocols=(("range", subscription("t")),),
                requires_known_id=False,
            )
            self.members.join(request, object(), Now(0, 0))
            if any(isinstance(effect, Append) for effect in self.group.take_effects()):
                self.group.on_appended(Now(0, 0))

    def begin(self) -> Meter:
        self.group.on_deadlines([JOIN_TIMER], Now(3_000, 3_000))
        with metered() as meter:
            self.group.on_deadlines([JOIN_TIMER], Now(6_000, 6_000))
        assert self.members.data.state is ClassicState.COMPLETING_REBALANCE
        return meter


@pytest.fixture(scope="module", autouse=True)
def warm() -> None:
    """What is made when it is first needed is no work of a member."""
    Large().begin()


def test_a_generation_begins_with_little_work_for_each_member() -> None:
    large = Large()
    assert 10 < large.begin().count / SIZE < 300


def test_the_lists_of_protocols_are_counted_as_members_come_change_and_go() -> None:
    s = Scenario()
    first, second, third = s.stable(3)
    s.join(second, protocols=(("range", subscription("t")), ("other", b"")))
    s.leave(third)
    s.join(first)
    lists = Counter(member.protocol_names for member in s.classic.roster)
    assert lists[("range", "other")] == 1
    assert s.classic.roster._lists == lists
    s.leave(first, second)
    assert s.classic.roster._lists == {}
