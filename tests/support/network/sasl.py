"""Logins by PLAIN and SCRAM over one connection, request by request."""

from kohort.client.net.sasl import Plain, Scram
from kohort.protocol.scram import HASHES
from tests.support import messages as m
from tests.support.network.wire import RawClient


def scram_rules(mechanism: str, user: str, password: str) -> Scram:
    return Scram(HASHES[mechanism], user, password, "n0nce")


def choose(client: RawClient, mechanism: str = "PLAIN", version: int = 1) -> int:
    """Return the error code of the handshake."""
    request = m.SaslHandshakeRequest(mechanism=mechanism)
    return client.call(request, version, m.SaslHandshakeResponse).error_code


def say(client: RawClient, token: bytes) -> m.SaslAuthenticateResponse:
    request = m.SaslAuthenticateRequest(auth_bytes=token)
    return client.call(request, 2, m.SaslAuthenticateResponse)


def log_in(client: RawClient, user: str, password: str) -> m.SaslAuthenticateResponse:
    """Authenticate by PLAIN."""
    assert choose(client) == 0
    return say(client, Plain(user, password).first())


def log_in_by_scram(
    client: RawClient, user: str, password: str, mechanism: str = "SCRAM-SHA-256"
) -> m.SaslAuthenticateResponse:
    """Authenticate by SCRAM; return the response to the last token, which proves the broker."""
    assert choose(client, mechanism) == 0
    rules = scram_rules(mechanism, user, password)
    proof = rules.answer(say(client, rules.first()).auth_bytes)
    assert proof is not None
    answer = say(client, proof)
    if not answer.error_code:
        assert rules.answer(answer.auth_bytes) is None
    return answer
