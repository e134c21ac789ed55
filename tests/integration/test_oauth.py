"""Listeners with OAUTHBEARER: whose tokens are taken, and that forged ones are not."""

import base64
import hmac
import http.client
import json
import random
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final

import jwt
import pytest
from confluent_kafka.admin import AdminClient
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from kohort.broker.app import StartError
from kohort.broker.config import ConfigError
from kohort.broker.core.security.oauthbearer import TOKEN_CHARACTERS_MAX
from kohort.broker.core.security.sasl import Done, SaslFailure
from kohort.broker.core.security.session import Principal
from kohort.broker.runtime.deferred import Deferred
from kohort.broker.security.tokens import FETCH_AGAIN_MS
from kohort.cli.admin_http import fetch
from kohort.cli.errors import RefusedCommandError, UsageError
from kohort.client.net.address import Address
from kohort.client.net.blocking import BlockingConnection
from kohort.client.net.config import ConnectionConfig
from kohort.client.net.oauth import OAuthToken
from kohort.client.net.security import SecurityConfig
from kohort.client.net.tokens import TokenSource
from kohort.protocol.errors import ErrorCode
from tests.support import messages as m
from tests.support.brokers.broker_thread import BrokerThread
from tests.support.brokers.server_process import free_port
from tests.support.clients.confluent_client import QUIET
from tests.support.network.issuer import Issuer, saying, sized
from tests.support.network.sasl import choose, say
from tests.support.network.wire import RawClient
from tests.support.waiting import wait_until

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


def signed(payload: str, kid: str = "e", **header: object) -> str:
    """A token with this text for its claims, rightly signed."""
    made: str = jwt.PyJWS().encode(
        payload.encode(), ELLIPTIC, algorithm="ES256", headers={"kid": kid, **header}
    )
    return made


def claiming(**changes: str | None) -> str:
    """A token that is rightly signed, some of whose claims are other JSON or not there."""
    claims = {name: json.dumps(value) for name, value in CLAIMS.items()}
    given = {name: text for name, text in (claims | changes).items() if text is not None}
    return signed("{" + ",".join(f'"{name}":{text}' for name, text in given.items()) + "}")


def public(key: ec.EllipticCurvePrivateKey) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key()))
    return found


def forged(header: dict[str, object], claims: dict[str, object], key: bytes = b"") -> str:
    """Signed with HMAC, whatever the header says; without a key not at all."""
    parts = [
        base64.urlsafe_b64encode(json.dumps(one).encode()).rstrip(b"=") for one in (header, claims)
    ]
    signed = b".".join(parts)
    signature = hmac.digest(key, signed, "sha256") if key else b""
    return (signed + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")).decode()


def offer(client: RawClient, text: str, authzid: str = "") -> m.SaslAuthenticateResponse:
    assert choose(client, "OAUTHBEARER") == 0
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
        assert client.call(m.MetadataRequest(topics=[]), 9, m.MetadataResponse).brokers
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
DEEP = "[" * 5_500 + "]" * 5_500
"""Nested as deep as fits into a token of 16 KiB."""
_UNSIGNED = "invalid token signature"
_NO_KEY = "key is not known"
_NO_FIT = "algorithm does not match its key"
BAD: dict[str, tuple[str, str]] = {
    "no algorithm": (forged({"alg": "none", "kid": "e"}, CLAIMS), _NO_FIT),
    "hmac with the public key": (forged({"alg": "HS256", "kid": "r"}, CLAIMS, PEM), _NO_FIT),
    "hmac under another name": (forged({"alg": "RS256", "kid": "r"}, CLAIMS, PEM), _UNSIGNED),
    "hmac with the key's text": (
        forged({"alg": "ES256", "kid": "e"}, CLAIMS, json.dumps(public(ELLIPTIC)).encode()),
        _UNSIGNED,
    ),
    "another key": (token(STRANGER), _UNSIGNED),
    "another key by its id": (token(STRANGER, kid="stranger"), _NO_KEY),
    "a key of another kind": (token(RSA, "RS256", "e"), _NO_FIT),
    "unknown kid": (token(kid="x"), _NO_KEY),
    "no kid": (token(kid=None), _NO_KEY),
    "another type of alg": (forged({"alg": ["ES256"], "kid": "e"}, CLAIMS), "no header|not match"),
    "what is not known here": (
        signed(json.dumps(CLAIMS), crit=["x"], x=1),
        "no header|what is not known",
    ),
    "expired": (token(exp=NOW - 100), "expired"),
    "not yet": (token(nbf=NOW + 10_000), "not valid yet"),
    "other issuer": (token(iss="https://evil.example"), "another issuer"),
    "other audience": (token(aud="mine"), "another audience"),
    "no subject": (token(sub=None), "no sub"),
    "deep exp": (claiming(exp=DEEP), "invalid token signature|exp is missing"),
    "claims in a list": (signed(json.dumps([CLAIMS])), _UNSIGNED),
    "claims that are no JSON": (signed("{"), _UNSIGNED),
    "two parts": ("a.b", "three parts"),
    "nonsense": ("a.b.c", "no header"),
    "deep header": (
        forged({"alg": "ES256", "kid": "e", "x": json.loads("[" * 500 + "]" * 500)}, CLAIMS),
        _UNSIGNED,
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_token_is_refused_for_what_is_wrong_with_it(broker: BrokerThread, kind: str) -> None:
    """Each is right but for one thing: without the check of that it would be let in."""
    text, reason = BAD[kind]
    assert len(text) <= TOKEN_CHARACTERS_MAX
    with pytest.raises(SaslFailure, match=reason):
        decided(broker, text)


def test_the_claims_that_are_changed_are_good_as_they_are(broker: BrokerThread) -> None:
    assert decided(broker, claiming()).user == "alice"
    assert decided(broker, claiming(nbf="0", more="[[1e400]]")).user == "alice"


def decided(broker: BrokerThread, text: str) -> Done:
    """Let in, or SaslFailure, also where that has to wait for keys."""
    (tokens,) = broker.broker.listeners.tokens

    async def check() -> Done:
        outcome = tokens.check(text)
        return await outcome if isinstance(outcome, Deferred) else outcome

    return broker.wait_for(check)


@pytest.mark.parametrize("kind", BAD)
def test_a_token_that_is_not_good_is_refused_in_two_rounds(broker: BrokerThread, kind: str) -> None:
    # From an address of its own: who fails often is told so seconds later.
    with RawClient(broker.port, source=f"127.0.2.{1 + list(BAD).index(kind)}") as client:
        told = offer(client, BAD[kind][0])
        assert told.error_code == 0
        assert told.auth_bytes == b'{"status":"invalid_token"}'
        told = say(client, b"\x01")
        assert told.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert told.error_message == '{"status":"invalid_token"}'
        assert client.is_closed()


@pytest.mark.parametrize("data", [b"", b"n,,\x01auth=Basic x\x01\x01", b"n,,", b"y,,\x01\x01"])
def test_what_is_no_message_fails_at_once(broker: BrokerThread, data: bytes) -> None:
    with RawClient(broker.port) as client:
        assert choose(client, "OAUTHBEARER") == 0
        assert say(client, data).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert client.is_closed()


def test_no_client_becomes_another_user(broker: BrokerThread) -> None:
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
            assert client.call(m.MetadataRequest(topics=[]), 9, m.MetadataResponse).brokers


@pytest.mark.parametrize("url", ["http://keys.example/x", "jar:file:///x", "file:///nowhere.json"])
def test_a_listener_whose_keys_cannot_be_trusted_or_found_stops_the_start(
    tmp_path: Path, url: str
) -> None:
    with (
        pytest.raises((ConfigError, StartError), match=r"https|nowhere"),
        BrokerThread(tmp_path, overrides=settings(url)),
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


UNSECURED = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "kohort.oauth.unsecured": "true",
    "connection.failed.authentication.delay.ms": "1",
}


def unsigned(alg: str = "none", signature: str = "", **claims: object) -> str:
    """A token as Kafka's clients make them without an issuer."""
    now = int(time.time())
    given = {"sub": "alice", "iat": now, "exp": now + 60, **claims}
    parts = [json.dumps(one).encode() for one in ({"alg": alg}, given)]
    encoded = [base64.urlsafe_b64encode(one).decode().rstrip("=") for one in parts]
    return ".".join([*encoded, signature])


def test_librdkafka_comes_in_with_a_token_that_no_one_has_signed_where_that_is_wanted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with BrokerThread(tmp_path, overrides=UNSECURED) as broker:
        given: dict[str, Any] = {
            **QUIET,
            "bootstrap.servers": f"127.0.0.1:{broker.port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "enable.sasl.oauthbearer.unsecure.jwt": True,
            "sasl.oauthbearer.config": "principal=alice",
        }
        admin = AdminClient(given)
        assert admin.list_topics(timeout=20).brokers

        def names() -> set[str]:
            connections = broker.call(lambda: [*broker.broker.network._connections])
            return {one.info.session.principal.name for one in connections}

        # Between its first connection and the one to the broker by its id it may have none.
        wait_until(lambda: names() == {"alice"}, "its connection")
    assert caplog.text.count("everybody on this machine can log in as any user") == 1


NOT_UNSIGNED = {
    "signed": token(),
    "another spelling": unsigned(alg="None"),
    "another algorithm": unsigned(alg="RS256"),
    "a signature": unsigned(signature="c2lnbmVk"),
    "no subject": unsigned(sub=""),
    "over": unsigned(exp=1),
    "no end": unsigned(exp=None),
    "a time that is a text": unsigned(iat="now"),
    "two parts": unsigned().replace(".", "", 1),
    "nothing in it": "e30.e30.",
    "lists": "W10.W10.",
    "not base64": "e30/.e30.",
}


def test_even_then_other_tokens_are_refused(tmp_path: Path) -> None:
    with BrokerThread(tmp_path, overrides=UNSECURED) as broker:
        with RawClient(broker.port) as client:
            assert offer(client, unsigned()).auth_bytes == b""
        for kind, text in NOT_UNSIGNED.items():
            with RawClient(broker.port) as client:
                assert offer(client, text).auth_bytes == b'{"status":"invalid_token"}', kind


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"listeners": "SASL_PLAINTEXT://:0"}, "and other machines can reach it"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "https://issuer/keys"}, "without a signature"),
        ({"kohort.http.authentication": "bearer", "kohort.metrics.port": "0"}, "listener HTTP"),
    ],
)
def test_tokens_without_a_signature_are_for_this_machine_alone(
    tmp_path: Path, change: dict[str, str], why: str
) -> None:
    with (
        pytest.raises((ConfigError, StartError), match=why),
        BrokerThread(tmp_path, overrides={**UNSECURED, **change}),
    ):
        pass


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
        assert [ask(BAD[name][0]) for name in ("no algorithm", "another key")] == [401, 401]
        assert ask("x" * 15_000) == 401
        security = SecurityConfig(
            "SASL_PLAINTEXT", sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=token
        )
        assert fetch(f"http://127.0.0.1:{port}", "/groups", 30, security)["groups"] == []
        with pytest.raises(RefusedCommandError, match="401"):
            fetch(f"http://127.0.0.1:{port}", "/groups", 30, SecurityConfig())


def test_a_command_sends_no_token_where_it_is_not_meant_to_go() -> None:
    def give() -> str:
        raise AssertionError("nobody may ask for it")

    security = SecurityConfig(
        "SASL_SSL", sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=give
    )
    with pytest.raises(UsageError, match="the token is for SASL_SSL only"):
        fetch("http://broker.example:9308", "/groups", 1, security)


@pytest.mark.parametrize("kid", ["e", "stranger", None])
def test_keys_that_a_token_brings_are_not_looked_at(broker: BrokerThread, kid: str | None) -> None:
    (tokens,) = broker.broker.listeners.tokens
    jwk = public(STRANGER) | {"kid": kid}
    with Issuer(saying(sized(json.dumps({"keys": [jwk]}).encode()))) as theirs:
        brought: list[dict[str, object]] = [
            {"jku": theirs.url},
            {"x5u": theirs.url},
            {"jwk": jwk},
            {"x5c": [PEM.decode()]},
        ]
        for header in brought:
            tokens._tried_ms -= FETCH_AGAIN_MS
            text = jwt.encode(CLAIMS, STRANGER, "ES256", {"kid": kid, **header} if kid else header)
            with pytest.raises(SaslFailure, match=f"{_UNSIGNED}|{_NO_KEY}"):
                decided(broker, text)
        assert theirs.asked == []


JUNK: Final = [
    "null", "true", "false", "0", "1", "-1", "1e400", "-1e400", "NaN", "Infinity", "9" * 400,
    "1e10", "0.5", '""', '" "', '"kohort"', '"others"', '"kohort,others"', '"alice"', '"bob"',
    '"\\ud800"', '"\\u0000"', '"https://issuer.example"', '"https://issuer.example/"',
    "[]", "{}", '["kohort"]', '["a", "others"]', '[["kohort"]]', '["KOHORT"]', '{"kohort": 1}',
    DEEP,
]  # fmt: skip
"""What stands where a claim should."""


TRIMMED = "".join(map(chr, range(33)))
"""What Java takes off a text at both ends."""


def is_good(payload: str, now_s: float) -> bool:
    """By the words of the specification, about a text; times are never within 60 s of a bound."""
    try:
        claims = json.loads(payload)
        bounds = [claims["exp"], claims["iat"], claims.get("nbf", claims["iat"])]
    except (ValueError, KeyError, RecursionError):
        return False
    if any(type(one) not in {int, float} or not 0 <= one <= 2**53 for one in bounds):
        return False
    audiences = claims.get("aud")
    audiences = audiences if isinstance(audiences, list) else [audiences]
    subject = claims.get("sub")
    return (
        bounds[0] > now_s
        and max(bounds[1:]) <= now_s
        and claims.get("iss") == "https://issuer.example"
        and ("kohort" in audiences or "others" in audiences)
        and isinstance(subject, str)
        and bool(subject.strip(TRIMMED).strip())
        and "\ud800" not in subject
    )


def changed_claims(chance: random.Random) -> str:
    now_s = int(time.time())
    times = [str(now_s + shift) for shift in (-86_400, -3_600, -100, 100, 3_600, 86_400)]
    claims = {
        "iss": '"https://issuer.example"',
        "aud": '["kohort"]',
        "sub": '"alice"',
        "iat": times[1],
        "exp": times[4],
        "nbf": times[0],
    }
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        name = chance.choice([*claims])
        if chance.random() < 0.2:
            del claims[name]
        else:
            claims[name] = chance.choice(times if chance.random() < 0.3 else JUNK)
    return "{" + ",".join(f'"{name}":{text}' for name, text in claims.items()) + "}"


def test_no_changed_claims_let_anybody_in(broker: BrokerThread, long_form: bool) -> None:
    """All are rightly signed: nothing but their claims decides."""
    chance = random.Random(2)
    let_in = 0
    count = 25_000 if long_form else 500
    for _ in range(count):
        payload = changed_claims(chance)
        try:
            done = decided(broker, signed(payload))
        except SaslFailure:
            is_in = False
        else:
            is_in = True
            assert done.user == json.loads(payload)["sub"].strip(TRIMMED)
        assert is_in == is_good(payload, time.time()), payload
        let_in += is_in
    # Some changes leave a token good: the check is not that all are refused.
    assert count // 50 < let_in < count // 2


def test_no_changed_token_lets_anybody_in(broker: BrokerThread, long_form: bool) -> None:
    """Bytes, whole parts and claims are changed; what is decoded to the same says the same."""
    (tokens,) = broker.broker.listeners.tokens
    chance = random.Random(1)
    right = [token(), token(RSA, "PS384", "r")]
    bad = [text for text, _ in BAD.values()]
    parts = [one.split(".") for one in (*right, *bad) if one.count(".") == 2]
    waited = 0

    def decoded(text: str) -> list[bytes]:
        padded = [one + "=" * (-len(one) % 4) for one in text.split(".")]
        try:
            return [base64.urlsafe_b64decode(one) for one in padded]
        except ValueError:
            return []

    good = [decoded(one) for one in right]
    for number in range(25_000 if long_form else 500):
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
        if number % 10 == 0:
            # A key that is not known is looked for once in ten seconds; here more often.
            tokens._tried_ms -= FETCH_AGAIN_MS
        fetched_before = tokens._tried_ms
        with pytest.raises(SaslFailure):
            decided(broker, made)
        waited += tokens._tried_ms != fetched_before
    # Some were decided when the keys had been fetched once more.
    assert waited > 0


def test_a_request_does_not_wait_for_the_token_that_renews_its_session(
    broker: BrokerThread, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "kohort.client.net.blocking")
    security = SecurityConfig(
        "SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=lambda: (token(), time.time() + 3_600),
    )
    address = Address("127.0.0.1", broker.port)
    connection = BlockingConnection(address, ConnectionConfig(security=security))
    connection.open(30)
    # A broker refuses to authenticate a connection twice within a second.
    time.sleep(1.1)
    connection._session.begin(100_000, time.monotonic() - 96)
    wanted: Future[OAuthToken] = Future()
    monkeypatch.setattr(TokenSource, "ask", lambda *_: wanted)
    connection.call(m.MetadataRequest(topics=[]), 30)
    assert ": reauthenticated" not in caplog.text
    wanted.set_result(OAuthToken(token(), time.time() + 3_600))
    connection.call(m.MetadataRequest(topics=[]), 30)
    assert ": reauthenticated" in caplog.text
    connection.close()
