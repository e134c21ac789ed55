"""Delegation tokens are refused for the first reason that Kafka would find."""

from types import SimpleNamespace
from typing import Any

import pytest

from kohort.broker.core.security.session import Principal
from kohort.broker.handlers.delegation_tokens import create_delegation_token
from kohort.protocol.errors import ErrorCode
from tests.support import messages as m

DISABLED = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


@pytest.mark.parametrize(
    ("owner", "types", "code"),
    [
        ("", [], DISABLED),
        ("alice", ["User"], DISABLED),
        ("", ["User", "Group"], ErrorCode.INVALID_PRINCIPAL_TYPE),
        ("carol", ["User"], ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED),
    ],
)
def test_the_first_error_is_returned(owner: str, types: list[str], code: ErrorCode) -> None:
    session = SimpleNamespace(principal=Principal("User", "alice"))
    ctx: Any = SimpleNamespace(session=session, api_version=3, may=lambda *_: False)
    renewers = [m.TokenPrincipal(principal_type=kind, principal_name="bob") for kind in types]
    request = m.CreateDelegationTokenRequest(
        owner_principal_type=owner and "User",
        owner_principal_name=owner,
        renewers=renewers,
        max_lifetime_ms=-1,
    )
    answer = create_delegation_token(ctx, request)
    assert (answer.error_code, answer.principal_name) == (code, owner or "alice")
