"""How long a comparison takes says nothing of a secret: none is compared by `==`, which ends at the
first byte that differs.
"""

import asyncio
from collections.abc import Iterator
from typing import Final

import pytest

from kohort.broker.core.security.sasl import (
    Challenge,
    Credential,
    Done,
    PlainLogin,
    SaslFailure,
    ScramExchange,
)
from kohort.broker.runtime.deferred import Deferred
from kohort.broker.security.passwords import Passwords, PlainExchange
from kohort.broker.security.users import CredentialKey, Users
from kohort.broker.storage.metadata.store import MetadataStore
from kohort.client.net.sasl import Scram
from kohort.protocol.scram import HASHES, Keys, keys_of, salted_password
from kohort.testing.virtual_clock import VirtualClock

SALT: Final = b"0123456789abcdef"
PASSWORD: Final = "secret"


class Secret(bytes):
    """Bytes that may be compared by `hmac.compare_digest` alone."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        raise AssertionError("a secret is compared by ==")

    def __ne__(self, other: object) -> bool:
        raise AssertionError("a secret is compared by !=")

    __hash__ = bytes.__hash__


def secret_credential(mechanism: str) -> Credential:
    name = HASHES[mechanism]
    keys = keys_of(name, salted_password(name, PASSWORD.encode(), SALT, 4_096))
    secret = Keys(stored_key=Secret(keys.stored_key), server_key=Secret(keys.server_key))
    return Credential(SALT, secret, 4_096)


def test_a_secret_notices_a_comparison() -> None:
    with pytest.raises(AssertionError, match="=="):
        assert Secret(b"abc") == b"abc"
    with pytest.raises(AssertionError, match="!="):
        assert Secret(b"abd") != b"abc"


@pytest.mark.parametrize("mechanism", HASHES)
@pytest.mark.parametrize("password", [PASSWORD, "wrong"])
def test_the_proof_of_scram_is_compared_in_constant_time(mechanism: str, password: str) -> None:
    credential = secret_credential(mechanism)
    server = ScramExchange(mechanism, lambda _: credential, "theirs")
    client = Scram(HASHES[mechanism], "alice", password, "n0nce")
    challenge = server.step(client.first())
    assert isinstance(challenge, Challenge)
    proof = client.answer(challenge.token) or b""
    if password == PASSWORD:
        assert isinstance(server.step(proof), Done)
    else:
        with pytest.raises(SaslFailure):
            server.step(proof)


@pytest.fixture
def passwords() -> Iterator[Passwords]:
    store = MetadataStore(None, new_cluster_id="c")
    users = Users(store)
    users.load_secret()
    users.apply([(CredentialKey("alice", "SCRAM-SHA-256"), secret_credential("SCRAM-SHA-256"))])
    made = Passwords(users, VirtualClock())
    yield made
    made.close()
    store.close()


@pytest.mark.parametrize("password", [PASSWORD, "wrong"])
def test_a_password_is_compared_in_constant_time_the_second_time_too(
    passwords: Passwords, password: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = passwords._mark
    monkeypatch.setattr(passwords, "_mark", lambda login: Secret(mark(login)))

    async def log_in() -> str:
        outcome = passwords.check(PlainLogin("", "alice", Secret(password.encode())), "10.0.0.1")
        return (await outcome if isinstance(outcome, Deferred) else outcome).user

    async def twice() -> None:
        for _ in range(2):
            if password == PASSWORD:
                assert await log_in() == "alice"
            else:
                with pytest.raises(SaslFailure, match="wrong password"):
                    await log_in()

    asyncio.run(twice())


@pytest.mark.parametrize("password", [PASSWORD, "wrong"])
def test_a_password_of_the_settings_is_compared_in_constant_time(
    passwords: Passwords, password: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    login = PlainLogin("", "given", Secret(password.encode()))
    monkeypatch.setattr("kohort.broker.security.passwords.read_plain", lambda _: login)

    async def step() -> Done:
        outcome = PlainExchange(passwords, {"given": PASSWORD}, "10.0.0.1").step(b"")
        return await outcome if isinstance(outcome, Deferred) else outcome

    if password == PASSWORD:
        assert asyncio.run(step()).user == "given"
    else:
        with pytest.raises(SaslFailure, match="wrong password"):
            asyncio.run(step())
