"""Tokens from an issuer's endpoint, which runs here, and from a file."""

import base64
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kohort import ClientCredentials, TokenFile
from kohort.client.core.errors import TokenError
from kohort.client.net import client_credentials
from kohort.client.net.client_credentials import (
    ANSWER_BYTES_MAX,
    TokenFetchError,
    expiry_of,
    path_of,
)
from kohort.client.net.oauth import TOKEN_BYTES_MAX
from kohort.client.net.tokens import TokenSource
from tests.support.processes.token_endpoint import TokenEndpoint

SECRET = "hidden/word"


@pytest.fixture
def endpoint() -> Iterator[TokenEndpoint]:
    with TokenEndpoint(lambda: ("a.b.c", 60)) as found:
        yield found


def credentials_of(authorization: str | None) -> str:
    assert authorization is not None
    return base64.b64decode(authorization.removeprefix("Basic ")).decode()


def test_a_token_is_asked_for_with_id_and_secret(endpoint: TokenEndpoint) -> None:
    began_s = time.time()
    provider = ClientCredentials(
        endpoint.url, "orders", SECRET, scope="read write", extensions={"pool": "7"}
    )
    token = provider.token()
    assert token.value == "a.b.c"
    assert token.expires_s is not None
    assert began_s + 60 <= token.expires_s <= time.time() + 60
    assert token.extensions == {"pool": "7"}
    [asked] = endpoint.asked
    assert asked.form == {"grant_type": "client_credentials", "scope": "read write"}
    assert credentials_of(asked.authorization) == f"orders:{SECRET}"


def test_id_and_secret_are_encoded_only_if_that_is_said(endpoint: TokenEndpoint) -> None:
    ClientCredentials(endpoint.url, "a:b", SECRET, url_encodes=True).token()
    [asked] = endpoint.asked
    assert credentials_of(asked.authorization) == "a%3Ab:hidden%2Fword"
    assert asked.form == {"grant_type": "client_credentials"}


def test_the_secret_is_not_shown(endpoint: TokenEndpoint) -> None:
    assert SECRET not in repr(ClientCredentials(endpoint.url, "orders", SECRET))


def refusal(endpoint: TokenEndpoint) -> str:
    with pytest.raises(TokenFetchError) as failed:
        ClientCredentials(endpoint.url, "orders", SECRET).token()
    assert SECRET not in str(failed.value)
    return str(failed.value).replace(endpoint.url, "URL")


def test_why_an_issuer_refuses_is_told_in_its_words(endpoint: TokenEndpoint) -> None:
    endpoint.status = 401
    endpoint.body = b'{"error":"invalid_client","error_description":"who is \\u001b[31morders?"}'
    assert refusal(endpoint) == "URL answers 401: invalid_client: who is ?[31morders?"
    endpoint.body = b"<html>"
    assert refusal(endpoint) == "URL answers 401"


def test_a_redirect_is_not_followed(endpoint: TokenEndpoint) -> None:
    with TokenEndpoint(lambda: ("stolen", 60)) as other:
        endpoint.status = 307
        endpoint.headers = {"Location": other.url}
        assert refusal(endpoint) == "URL answers 307"
        assert other.asked == []


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "URL sent a response without an access_token"),
        (b"[]", "URL sent a response without an access_token"),
        (b"[" * 100_000, "URL sent a response without an access_token"),
        (b'{"access_token":7}', "URL sent a response without an access_token"),
        (
            b" " * (ANSWER_BYTES_MAX + 1),
            f"URL sent a response of more than {ANSWER_BYTES_MAX} bytes",
        ),
    ],
)
def test_what_is_no_answer_of_an_issuer_is_told(
    endpoint: TokenEndpoint, body: bytes, said: str
) -> None:
    endpoint.body = body
    assert refusal(endpoint) == said


def test_nobody_there_is_told() -> None:
    with TokenEndpoint(lambda: ("a", 1)) as gone:
        pass
    assert refusal(gone).startswith("URL does not answer: ")


def test_an_issuer_that_answers_slowly_is_not_waited_for_beyond_the_limit(
    endpoint: TokenEndpoint,
) -> None:
    is_over = threading.Event()
    endpoint.on_request = is_over.wait  # type: ignore[assignment]  # It returns a bool.
    source = TokenSource(ClientCredentials(endpoint.url, "orders", SECRET))
    with pytest.raises(TokenError, match=r"did not return a token within 0\.3 s"):
        source.wait(source.ask(0.3), 0.3)
    is_over.set()


def test_an_answer_that_never_ends_is_not_read_for_ever(
    endpoint: TokenEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_credentials, "TIMEOUT_S", 0.2)
    endpoint.body = b" " * 20
    endpoint.pause_s = 0.1
    assert refusal(endpoint) == "URL does not answer: the response took too long"


def jwt(claims: object) -> str:
    parts = (json.dumps(one).encode() for one in ({"alg": "RS256"}, claims, "signature"))
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


def test_without_a_lifetime_the_tokens_own_claim_counts(endpoint: TokenEndpoint) -> None:
    value = jwt({"exp": 2_000_000_000})
    endpoint.body = json.dumps({"access_token": value}).encode()
    assert ClientCredentials(endpoint.url, "o", "s").token().expires_s == 2_000_000_000
    endpoint.body = json.dumps({"access_token": value, "expires_in": "60"}).encode()
    found = ClientCredentials(endpoint.url, "o", "s").token().expires_s
    assert found == pytest.approx(time.time() + 60, abs=30)


@pytest.mark.parametrize(
    ("value", "expires_s"),
    [
        (jwt({"exp": 7.5}), 7.5),
        (jwt({}), None),
        (jwt([]), None),
        (jwt({"exp": "7"}), None),
        (jwt({"exp": True}), None),
        (jwt({"exp": 1e400}), None),
        ("opaque", None),
        ("a.!.c", None),
        ("a." + "W" * 40_000 + ".c", None),
    ],
)
def test_a_token_may_say_when_it_expires(value: str, expires_s: float | None) -> None:
    assert expiry_of(value) == expires_s


@pytest.mark.parametrize(
    "url",
    [
        "http://issuer.example/token",
        "http://127.0.0.1.example/token",
        "ftp://127.0.0.1/token",
        "issuer.example/token",
        "https:///token",
        "https://orders:hidden@issuer.example/token",
        "file:///etc/token",
    ],
)
def test_a_secret_goes_nowhere_in_the_clear(url: str) -> None:
    with pytest.raises(ValueError, match=r"^it has no|^it must") as refused:
        ClientCredentials(url, "orders", SECRET)
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.1.2.3", "[::1]"])
def test_this_machine_may_be_asked_without_tls(host: str) -> None:
    url = f"http://{host}:8080/token"
    assert ClientCredentials(url, "orders", SECRET).url == url


def test_a_file_is_read_each_time(tmp_path: Path) -> None:
    path = tmp_path / "a token"
    provider = TokenFile(path, {"pool": "7"})
    with pytest.raises(TokenFetchError, match="No such file"):
        provider.token()
    path.write_text(jwt({"exp": 2_000_000_000}) + "\n")
    found = provider.token()
    assert (found.value, found.expires_s) == (path.read_text().strip(), 2_000_000_000)
    assert found.extensions == {"pool": "7"}
    path.write_text("another\n")
    assert provider.token().value == "another"
    path.write_bytes(b"\xff")
    with pytest.raises(TokenFetchError, match="not ASCII"):
        provider.token()
    path.write_text("x" * (TOKEN_BYTES_MAX + 10))
    source = TokenSource(provider)
    with pytest.raises(TokenError, match="are allowed"):
        source.wait(source.ask(30), 30)


def test_the_url_of_a_file_has_its_path() -> None:
    assert path_of("file:///a%20b/c") == Path("/a b/c")
    assert path_of("file://localhost/c") == Path("/c")
    assert path_of("https://issuer.example/c") is None
    for wrong in ("file://elsewhere/c", "file:c", "file://"):
        with pytest.raises(ValueError, match="file:///path"):
            path_of(wrong)
