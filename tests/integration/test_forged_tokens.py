"""Tokens of SCRAM that were changed on their way: each is answered, none lets anybody in, and none
is a fault of the broker.
"""

from collections.abc import Iterator
from typing import Final

import pytest

from kohort.admin.users import hashed
from kohort.cli.stopped_broker import stopped_broker
from kohort.client.net.sasl import Scram
from kohort.protocol.errors import ErrorCode
from kohort.protocol.scram import HASHES
from tests.support import messages as m
from tests.support.brokers.kohort_server import KohortServer
from tests.support.brokers.server_process import free_port
from tests.support.network.wire import RawClient
from tests.unit.broker.core.security.test_forged_scram import Forger, proof_in

PASSWORD: Final = "secret"


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a listener on which one user may log in."""
    server, port = KohortServer(tmp_path_factory.mktemp("forged")), free_port()
    server.overrides |= {
        "listeners": f"PLAINTEXT://127.0.0.1:{server.port},SASL_PLAINTEXT://127.0.0.1:{port}",
        "sasl.enabled.mechanisms": ",".join(HASHES),
        "connection.failed.authentication.delay.ms": "0",
    }
    with stopped_broker(str(server.data)) as place:
        place.set_password("alice", hashed(PASSWORD, list(HASHES), 4_096))
    with server:
        yield port
    log = server.log_file.read_text()
    assert "Traceback" not in log
    assert "Internal error" not in log


def say(client: RawClient, token: bytes) -> m.SaslAuthenticateResponse:
    request = m.SaslAuthenticateRequest(auth_bytes=token)
    return client.call(request, 2, m.SaslAuthenticateResponse)


@pytest.mark.parametrize("is_last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize("mechanism", HASHES)
def test_a_changed_token_is_answered(
    port: int, mechanism: str, is_last: bool, long_form: bool
) -> None:
    forger = Forger(mechanism, seed=3)
    refused = 0
    for number in range(10_000 if long_form else 150):
        # Those who fail again and again are kept waiting, so each comes from elsewhere.
        source = f"127.{1 + (number >> 16)}.{number >> 8 & 255}.{number & 255}"
        rules = Scram(HASHES[mechanism], "alice", PASSWORD, f"n{number}")
        with RawClient(port, source=source) as client:
            client.call(m.SaslHandshakeRequest(mechanism=mechanism), 1, m.SaslHandshakeResponse)
            token = rules.first()
            if is_last:
                token = rules.answer(say(client, token).auth_bytes) or b""
            changed = forger.changed(token)
            if changed == token or (is_last and proof_in(changed) == proof_in(token)):
                continue
            answer = say(client, changed)
            if is_last:
                assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            # A first token that is still one is asked for a proof.
            if answer.error_code:
                assert not answer.auth_bytes
                assert client.is_closed()
                refused += 1
            else:
                assert answer.auth_bytes.startswith(b"r=")
            if number % 10 == 0:
                forger.heard.append(token)
    print(f"{mechanism}, {'last' if is_last else 'first'}: {refused} refused")
    assert refused > 75


def test_the_same_client_is_let_in_with_what_was_not_changed(port: int) -> None:
    for mechanism, name in HASHES.items():
        rules = Scram(name, "alice", PASSWORD, "n0nce")
        with RawClient(port) as client:
            client.call(m.SaslHandshakeRequest(mechanism=mechanism), 1, m.SaslHandshakeResponse)
            proof = rules.answer(say(client, rules.first()).auth_bytes) or b""
            assert not say(client, proof).error_code
