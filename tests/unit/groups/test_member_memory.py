"""What members of all groups take is bounded, and is given back with them."""

from kohort.groups.events import TriggerKind
from kohort.groups.member_memory import SMALL_BYTES, MemberMemory
from kohort.groups.requests import JoinResult, SyncResult
from kohort.protocol.errors import ErrorCode
from tests.support.groups.scenario import RANGE, Scenario

FULL = JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED)
LARGE = (("range", bytes(2 * SMALL_BYTES)),)
SMALL = (("range", bytes(SMALL_BYTES // 2)),)
FOR_TWO_LARGE = 2 * (4 * SMALL_BYTES + 100)


def groups(memory: MemberMemory, count: int) -> list[Scenario]:
    """Groups that share the memory, as those of a broker."""
    made = [Scenario() for _ in range(count)]
    for one in made:
        one.classic.roster.memory = memory
    return made


def test_large_members_of_all_groups_share_half_and_leave_the_rest_to_small_ones() -> None:
    memory = MemberMemory(FOR_TWO_LARGE)
    first, second, third = groups(memory, 3)
    for one in (first, second):
        one.stable(1, protocols=LARGE)
    assert third.join(protocols=LARGE).answer == FULL
    third.stable(2, protocols=SMALL)
    assert memory.used_bytes <= FOR_TWO_LARGE


def test_small_members_find_an_end_too() -> None:
    first, second = groups(MemberMemory(SMALL_BYTES), 2)
    first.stable(1, protocols=SMALL)
    assert second.join(protocols=SMALL).answer == FULL
    second.stable(1, protocols=RANGE)


def test_a_member_that_tells_no_more_than_before_is_not_put_out() -> None:
    memory = MemberMemory(FOR_TWO_LARGE)
    first, second = groups(memory, 2)
    members = first.stable_static("a", protocols=LARGE)
    second.stable(1, protocols=LARGE)
    assert first.join(instance="a", protocols=LARGE).answer.error is ErrorCode.NONE
    assert first.join(members["a"], instance="a", protocols=SMALL).answers != [FULL]


def test_an_assignment_beyond_it_is_one_that_cannot_be_stored() -> None:
    memory = MemberMemory(FOR_TWO_LARGE)
    first, second = groups(memory, 2)
    (leader,) = first.completing(1)
    first.settle([leader])
    (other,) = second.completing(1)
    before = memory.used_bytes
    refused = second.sync(other, assignments={other: bytes(FOR_TWO_LARGE // 2)})
    assert refused.answer == SyncResult(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert memory.used_bytes == before
    assert second.trigger().kind is TriggerKind.STORE_FAILED
    assert second.state == "PreparingRebalance"


def test_what_members_and_assignments_took_is_given_back() -> None:
    memory = MemberMemory()
    one, other = groups(memory, 2)
    one.leave(*one.stable(2, protocols=LARGE))
    assert memory.used_bytes == 0
    other.stable(2, protocols=LARGE)
    taken = other.classic.roster.kept_bytes
    assert memory.used_bytes == taken > 2 * 2 * SMALL_BYTES
    other.group.close()
    assert memory.used_bytes == 0
    # It is dropped, and whatever becomes of it is on no account.
    other.leave(*[member.member_id for member in list(other.classic.roster)])
    assert memory.used_bytes == 0
