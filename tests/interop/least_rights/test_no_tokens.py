"""Delegation tokens, of which there are none: what a Kafka without them tells a user, and ours."""

import uuid
from collections.abc import Iterator
from typing import Final

import pytest

from kohort.client.net.address import Address
from kohort.client.net.blocking import BlockingConnection
from kohort.client.net.config import ConnectionConfig
from kohort.client.net.security import SecurityConfig
from kohort.protocol.errors import ErrorCode
from kohort.protocol.message import Struct
from tests.interop.least_rights.visitors import Guarded
from tests.support import messages as m
from tests.support.clients.login import Login

TIMEOUT_S: Final = 30.0
DISABLED: Final = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED

pytestmark = pytest.mark.long


@pytest.fixture
def login(guarded: Guarded) -> Login:
    login = guarded.login(f"user-{uuid.uuid4().hex[:12]}")
    guarded.wait_known(login, 0)
    return login


@pytest.fixture
def connection(login: Login) -> Iterator[BlockingConnection]:
    host, _, port = login.bootstrap.partition(":")
    config = ConnectionConfig(security=SecurityConfig(**login.python()))
    connection = BlockingConnection(Address(host, int(port)), config)
    connection.open(TIMEOUT_S)
    yield connection
    connection.close()


def asking(owner: str | None = "", renewer: str = "User") -> m.CreateDelegationTokenRequest:
    return m.CreateDelegationTokenRequest(
        owner_principal_type=owner and "User",
        owner_principal_name=owner,
        renewers=[m.CreatableRenewers(principal_type=renewer, principal_name="a")],
        max_lifetime_ms=-1,
    )


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_user_gets_none(connection: BlockingConnection, login: Login, version: int) -> None:
    told = connection.call(asking(), TIMEOUT_S, version=version)
    assert (told.error_code, told.token_id, told.hmac) == (DISABLED, "", b"")
    assert (told.principal_type, told.principal_name) == ("User", login.user)
    times = told.issue_timestamp_ms, told.expiry_timestamp_ms, told.max_timestamp_ms
    assert times == (0, 0, 0)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (asking(None), DISABLED),
        (asking("somebody"), ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED),
        (asking(renewer="Group"), ErrorCode.INVALID_PRINCIPAL_TYPE),
        (m.RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=1), DISABLED),
        (m.ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=1), DISABLED),
        (m.DescribeDelegationTokenRequest(owners=None), DISABLED),
        (m.DescribeDelegationTokenRequest(owners=[]), DISABLED),
    ],
    ids=["no owner", "another owner", "another renewer", "renew", "expire", "all", "none"],
)
def test_nor_does_it_have_any(
    connection: BlockingConnection,
    request_: Struct,
    code: ErrorCode,
) -> None:
    told = connection.call(request_, TIMEOUT_S)
    assert told.error_code == code
