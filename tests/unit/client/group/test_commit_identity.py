"""What becomes of a commit that the group refuses."""

import pytest

from kohort.client.core.backoff import Backoff
from kohort.client.core.errors import CommitError, CommitFailedError, RebalanceInProgressError
from kohort.client.core.group.assignors import ASSIGNORS
from kohort.client.core.group.base_membership import MemberState
from kohort.client.core.group.config import MembershipConfig
from kohort.client.core.group.identity import NO_MEMBER, Identity
from kohort.client.core.group.membership import Membership
from kohort.client.core.group.subscription import Subscription
from kohort.client.group.commit_identity import MemberCommits
from kohort.protocol.errors import ErrorCode

SENT = Identity(4, "m-1", "cooperative-sticky")
LATER = Identity(5, "m-1", "cooperative-sticky")


def refuse(
    now: Identity, state: MemberState, code: ErrorCode
) -> tuple[CommitError | None, Identity]:
    """What is raised for a commit of SENT, and who the member is after it."""
    subscription = Subscription()
    subscription.subscribe(["t"])
    membership = Membership(
        MembershipConfig("g"),
        assignors=[ASSIGNORS["cooperative-sticky"]()],
        subscription=subscription,
        backoff=Backoff(100, 1_000, lambda: 0.5),
    )
    membership.identity, membership.state = now, state
    commits = MemberCommits(
        membership, is_joining=lambda: False, learn=lambda: None, on_changed=lambda: None
    )
    return commits.commit_refused(SENT, code), membership.identity


@pytest.mark.parametrize("code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID])
@pytest.mark.parametrize("state", [MemberState.COMPLETING_REBALANCE, MemberState.STABLE])
def test_a_member_that_went_on_with_its_group_may_commit_again(
    code: ErrorCode, state: MemberState
) -> None:
    error, identity = refuse(LATER, state, code)
    assert isinstance(error, RebalanceInProgressError)
    assert identity == LATER


def test_a_member_that_the_group_does_not_know_has_lost_its_partitions() -> None:
    error, identity = refuse(SENT, MemberState.STABLE, ErrorCode.UNKNOWN_MEMBER_ID)
    assert isinstance(error, CommitFailedError)
    assert identity == NO_MEMBER


def test_a_member_whose_generation_is_over_keeps_its_id() -> None:
    error, identity = refuse(SENT, MemberState.STABLE, ErrorCode.ILLEGAL_GENERATION)
    assert isinstance(error, CommitFailedError)
    assert identity == Identity(member_id="m-1")


def test_one_that_was_lost_meanwhile_is_told_so() -> None:
    error, identity = refuse(NO_MEMBER, MemberState.UNJOINED, ErrorCode.ILLEGAL_GENERATION)
    assert isinstance(error, CommitFailedError)
    assert identity == NO_MEMBER
