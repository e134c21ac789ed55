"""Listeners with OAUTHBEARER: whose tokens are taken, and that forged ones are not."""

import base64
import hmac
import http.client
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from confluent_kafka.admin import AdminClient
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from kohort.broker.app import StartError
from kohort.broker.core.security.exchange import SaslFailure
from kohort.broker.core.security.session import Principal
from kohort.broker.runtime.later import Later
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kohort.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from kohort.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.support.brokers.broker_thread import BrokerThread
from tests.support.brokers.server_process import free_port
from tests.support.clients.confluent_client import QUIET
from tests.support.network.wire import RawClient

ELLIPTIC = ec.generate_private_key(ec.SECP256R1())
RSA = rsa.generate_private_key(public_exponent=65_537, key_size=2048)
STRANGER = ec.generate_private_key(ec.SECP256R1())
_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
PEM = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def published(path: Path, keys: dict[str, Any]) -> str:
    listed = []
    for kid, key in keys.items():
        is_rsa = isinstance(key, rsa.RSAPrivateKey)
        algorithm = jwt.algorithms.RSAAlgorithm if is_rsa else jwt.algorithms.ECAlgorithm
        listed.append(json.loads(algorithm.to_jwk(key.public_key())) | {"kid": kid})
    path.write_text(json.dumps({"keys": listed}))
    return f"file://{path}"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keys") / "jwks.json"


def settings(url: str) -> dict[str, str]:
    return {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": url,
        "sasl.oauthbearer.expected.audience": "kohort,others",
        "sasl.oauthbearer.expected.issuer": "https://issuer.example",
        "connection.failed.authentication.delay.ms": "1",
    }


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, keys: Path) -> Iterator[BrokerThread]:
    url = published(keys, {"e": ELLIPTIC, "r": RSA})
    data = tmp_path_factory.mktemp("data")
    with BrokerThread(data, overrides=settings(url)) as broker:
        yield broker


def token(key: object = ELLIPTIC, alg: str = "ES256", kid: object = "e", **changes: object) -> str:
    now_s = int(time.time())
    claims: dict[str, object] = {
        "iss": "https://issuer.example",
        "aud": ["kohort"],
        "sub": "alice",
        "iat": now_s,
        "exp": now_s + 3600,
    }
    claims = {name: value for name, value in (claims | changes).items() if value is not None}
    headers = {"kid": kid} if kid is not None else {}
    made: str = jwt.encode(claims, key, algorithm=alg, headers=headers)  # type: ignore[arg-type]  # Wrong ones, too.
    return made


def forged(header: dict[str, object], claims: dict[str, object], key: bytes = b"") -> str:
    """Signed with HMAC, whatever the header says; without a key not at all."""
    parts = [
        base64.urlsafe_b64encode(json.dumps(one).encode()).rstrip(b"=") for one in (header, claims)
    ]
    signed = b".".join(parts)
    signature = hmac.digest(key, signed, "sha256") if key else b""
    return (signed + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")).decode()


def say(client: RawClient, data: bytes) -> SaslAuthenticateResponse:
    return client.call(SaslAuthenticateRequest(auth_bytes=data), 2, SaslAuthenticateResponse)


def offer(client: RawClient, text: str, authzid: str = "") -> SaslAuthenticateResponse:
    client.call(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1, SaslHandshakeResponse)
    begin = f"n,a={authzid}," if authzid else "n,,"
    return say(client, f"{begin}\x01auth=Bearer {text}\x01ext=7\x01\x01".encode())


@pytest.mark.parametrize(("key", "alg", "kid"), [(ELLIPTIC, "ES256", "e"), (RSA, "PS384", "r")])
def test_a_token_lets_its_subject_in_for_as_long_as_it_is_good(
    broker: BrokerThread, key: object, alg: str, kid: str
) -> None:
    with RawClient(broker.port) as client:
        told = offer(client, token(key, alg, kid), "alice")
        assert told.error_code == 0
        assert 3_500_000 < told.session_lifetime_ms <= 3_600_000
        assert client.call(MetadataRequest(topics=[]), 9, MetadataResponse).brokers
        connections = list(broker.broker.network._connections)
        assert Principal("User", "alice") in [one.info.session.principal for one in connections]


NOW = int(time.time())
CLAIMS: dict[str, object] = {
    "iss": "https://issuer.example",
    "aud": "kohort",
    "sub": "alice",
    "iat": NOW,
    "exp": NOW + 3600,
}
BAD = {
    "no algorithm": forged({"alg": "none", "kid": "e"}, CLAIMS),
    "hmac with the public key": forged({"alg": "HS256", "kid": "r"}, CLAIMS, PEM),
    "hmac under another name": forged({"alg": "RS256", "kid": "r"}, CLAIMS, PEM),
    "another key": token(STRANGER),
    "another key by jwk": token(STRANGER, kid="stranger"),
    "a key of another kind": token(RSA, "RS256", "e"),
    "unknown kid": token(kid="x"),
    "no kid": token(kid=None),
    "expired": token(exp=NOW - 100),
    "no exp": token(exp=None),
    "no iat": token(iat=None),
    "not yet": token(nbf=NOW + 1000),
    "issued tomorrow": token(iat=NOW + 1000),
    "other issuer": token(iss="https://evil.example"),
    "no issuer": token(iss=None),
    "other audience": token(aud="mine"),
    "no audience": token(aud=None),
    "no subject": token(sub=None),
    "empty subject": token(sub=" "),
    "exp as text": forged({"alg": "ES256", "kid": "e"}, CLAIMS | {"exp": "soon"}, b"x"),
    "two parts": "a.b",
    "nonsense": "a.b.c",
    "deep": forged({"alg": "ES256", "kid": "e", "x": json.loads("[" * 500 + "]" * 500)}, CLAIMS),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_token_that_is_not_good_is_refused_in_two_rounds(broker: BrokerThread, kind: str) -> None:
    # From an address of its own: who fails often is told so seconds later.
    with RawClient(broker.port, source=f"127.0.2.{1 + list(BAD).index(kind)}") as client:
        told = offer(client, BAD[kind])
        assert told.error_code == 0
        assert told.auth_bytes == b'{"status":"invalid_token"}'
        told = say(client, b"\x01")
        assert told.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert told.error_message == '{"status":"invalid_token"}'
        assert client.is_closed()


@pytest.mark.parametrize("data", [b"", b"n,,\x01auth=Basic x\x01\x01", b"n,,", b"y,,\x01\x01"])
def test_what_is_no_message_fails_at_once(broker: BrokerThread, data: bytes) -> None:
    with RawClient(broker.port) as client:
        client.call(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1, SaslHandshakeResponse)
        assert say(client, data).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert client.is_closed()


def test_nobody_becomes_somebody_else(broker: BrokerThread) -> None:
    with RawClient(broker.port) as client:
        assert offer(client, token(), "bob").error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_a_key_that_is_published_later_is_found(tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    url = published(path, {"e": ELLIPTIC})
    with BrokerThread(tmp_path / "data", overrides=settings(url)) as broker:
        published(path, {"e": ELLIPTIC, "new": STRANGER})
        # It was fetched just now; so often it is not looked for.
        with RawClient(broker.port) as client:
            assert offer(client, token(STRANGER, kid="new")).auth_bytes
        gates = broker.broker.listeners
        for tokens in gates.tokens:
            tokens._tried_ms -= 20_000
        with RawClient(broker.port) as client:
            assert offer(client, token(STRANGER, kid="new")).error_code == 0
            assert client.call(MetadataRequest(topics=[]), 9, MetadataResponse).brokers


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"sasl.oauthbearer.jwks.endpoint.url": None}, "never taken unverified"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "http://keys.example/x"}, "https"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "jar:file:///x"}, "https"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "file:///nowhere.json"}, "nowhere"),
        ({"sasl.oauthbearer.expected.audience": None}, "audience"),
        ({"sasl.oauthbearer.expected.issuer": None}, "issuer"),
    ],
)
def test_a_listener_that_could_not_check_tokens_stops_the_start(
    tmp_path: Path, change: dict[str, str | None], why: str
) -> None:
    url = published(tmp_path / "jwks.json", {"e": ELLIPTIC})
    given = {**settings(url), **change}
    overrides = {name: value for name, value in given.items() if value is not None}
    with (
        pytest.raises(StartError, match=why),
        BrokerThread(tmp_path / "data", overrides=overrides),
    ):
        pass


def test_librdkafka_comes_in_with_a_token(broker: BrokerThread) -> None:
    given: dict[str, Any] = {
        **QUIET,
        "bootstrap.servers": f"127.0.0.1:{broker.port}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: (token(), time.time() + 3600),
    }
    admin = AdminClient(given)
    admin.poll(0)
    assert admin.list_topics(timeout=20).brokers


def test_the_http_port_takes_the_same_tokens(tmp_path: Path) -> None:
    of_listeners = settings(published(tmp_path / "jwks.json", {"e": ELLIPTIC}))
    of_http = {
        f"listener.name.http.{name}": text
        for name, text in of_listeners.items()
        if name.startswith("sasl.oauthbearer.")
    }
    port = free_port()
    own = {
        "kohort.metrics.port": str(port),
        "kohort.http.authentication": "bearer",
        "connection.failed.authentication.delay.ms": "1",
    }
    with BrokerThread(tmp_path / "data", overrides={**of_http, **own}):

        def ask(text: str) -> int:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            connection.request("GET", "/groups", headers={"Authorization": f"Bearer {text}"})
            status = connection.getresponse().status
            connection.close()
            return status

        assert ask(token()) == 200
        assert [ask(BAD[name]) for name in ("no algorithm", "another key")] == [401, 401]
        assert ask("x" * 15_000) == 401


def test_no_changed_token_lets_anybody_in(broker: BrokerThread, long_form: bool) -> None:
    """Bytes, whole parts and claims are changed; what is decoded to the same says the same."""
    (tokens,) = broker.broker.listeners.tokens
    chance = random.Random(1)
    right = [token(), token(RSA, "PS384", "r")]
    parts = [one.split(".") for one in (*right, *BAD.values()) if one.count(".") == 2]
    admitted = 0

    def decoded(text: str) -> list[bytes]:
        padded = [one + "=" * (-len(one) % 4) for one in text.split(".")]
        try:
            return [base64.urlsafe_b64decode(one) for one in padded]
        except ValueError:
            return []

    good = [decoded(one) for one in right]
    for _ in range(50_000 if long_form else 500):
        changed = list(chance.choice(parts))
        at = chance.randrange(3)
        if chance.random() < 0.5:
            changed[at] = chance.choice(parts)[at]
        else:
            text = bytearray(changed[at].encode() or b"x")
            text[chance.randrange(len(text))] = chance.choice(_BASE64)
            changed[at] = text.decode()
        made = ".".join(changed)
        if decoded(made) in good:
            continue
        try:
            outcome = broker.call(lambda made=made: tokens.check(made))  # type: ignore[misc]
        except SaslFailure:
            continue
        admitted += not isinstance(outcome, Later)
    assert admitted == 0
