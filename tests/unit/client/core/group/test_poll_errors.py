"""What polls of a member raise."""

import pytest

from kohort.client.core.errors import (
    AuthorizationError,
    FencedInstanceError,
    InconsistentProtocolError,
)
from kohort.client.core.group.base_membership import PollErrors
from kohort.protocol.errors import ErrorCode


def test_a_refusal_is_raised_once() -> None:
    errors = PollErrors("g")
    errors.refuse("JoinGroup", ErrorCode.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(AuthorizationError, match="JoinGroup in group g"):
        errors.raise_next()
    assert not errors.is_due
    errors.raise_next()


def test_a_fenced_member_is_told_by_every_poll_until_it_subscribes() -> None:
    errors = PollErrors("g")
    errors.fence("heartbeat", ErrorCode.FENCED_INSTANCE_ID)
    errors.refuse("JoinGroup", ErrorCode.GROUP_AUTHORIZATION_FAILED)
    for _ in range(2):
        assert errors.is_due
        with pytest.raises(FencedInstanceError, match="heartbeat in group g"):
            errors.raise_next()
    errors.clear()
    assert (errors.lasting, errors.is_due) == (None, False)
    errors.raise_next()


def test_a_foreign_protocol_is_named() -> None:
    errors = PollErrors("g")
    errors.refuse_protocol("roundrobin")
    with pytest.raises(InconsistentProtocolError, match="the group uses roundrobin, which"):
        errors.raise_next()
