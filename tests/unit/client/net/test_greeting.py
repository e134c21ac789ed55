"""The first words on a connection, with the broker's part written by hand."""

from collections.abc import Callable
from typing import Any

import pytest

from kohort.client.core.errors import AuthenticationError, ConsumerError
from kohort.client.net.greeting import Ask, Greeted, advance, greeting
from kohort.client.net.oauth import OAuthToken
from kohort.client.net.security import SecurityConfig
from kohort.client.net.versions import UnsupportedVersionError
from kohort.protocol.errors import DecodeError, ErrorCode
from tests.support import messages as m

PASSWORD = "hidden-word"

Answers = Callable[[object], object]


def security(mechanism: str = "PLAIN") -> SecurityConfig:
    return SecurityConfig(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_plain_username="alice",
        sasl_plain_password=PASSWORD,
    )


def versions(*apis: tuple[int, int, int], error: ErrorCode = ErrorCode.NONE) -> object:
    return m.ApiVersionsResponse(
        error_code=error,
        api_keys=[
            m.ApiVersion(api_key=key, min_version=low, max_version=high) for key, low, high in apis
        ],
    )


BOTH = ((3, 0, 13), (17, 0, 1), (36, 0, 2))


def talk(
    config: SecurityConfig, *answers: object, token: OAuthToken | None = None
) -> tuple[Greeted | None, list[Ask]]:
    """What comes of it, None if there were not enough answers, and all that was asked."""
    steps = greeting("broker:9092", config, software_version="1", nonce="abc", token=token)
    asked: list[Ask] = []
    answer: object = None
    for following in (*answers, None):
        step = advance(steps, answer)
        if isinstance(step, Greeted):
            return step, asked
        asked.append(step)
        answer = following
    return None, asked


def failure(config: SecurityConfig, *answers: object) -> ConsumerError:
    with pytest.raises(ConsumerError) as failed:
        talk(config, *answers)
    assert PASSWORD not in str(failed.value)
    return failed.value


def test_a_broker_that_does_not_know_our_question_is_asked_the_oldest() -> None:
    greeted, asked = talk(
        SecurityConfig(), versions((18, 0, 2), error=ErrorCode.UNSUPPORTED_VERSION), versions(*BOTH)
    )
    assert greeted is not None
    assert [ask.version for ask in asked] == [3, 0]


def test_versions_with_an_error_are_no_versions() -> None:
    with pytest.raises(DecodeError, match="INVALID_REQUEST"):
        talk(SecurityConfig(), versions(error=ErrorCode.INVALID_REQUEST))


def authenticated(lifetime_ms: int = 0, auth_bytes: bytes = b"") -> m.SaslAuthenticateResponse:
    return m.SaslAuthenticateResponse(
        error_code=0, error_message=None, auth_bytes=auth_bytes, session_lifetime_ms=lifetime_ms
    )


TOKEN = OAuthToken(PASSWORD, None, {"pool": "7", "zone": "a b"})
OAUTH = SecurityConfig(
    "SASL_SSL", sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=lambda: PASSWORD
)
OFFERED = m.SaslHandshakeResponse(error_code=0, mechanisms=["OAUTHBEARER"])


def test_a_token_is_sent_with_its_extensions() -> None:
    greeted, asked = talk(
        OAUTH, versions(*BOTH), OFFERED, authenticated(lifetime_ms=5_000), token=TOKEN
    )
    assert greeted is not None
    assert greeted.session_lifetime_ms == 5_000
    last: Any = asked[-1].request
    assert last.auth_bytes == b"n,,\1auth=Bearer hidden-word\1pool=7\1zone=a b\1\1"


def test_why_a_token_is_refused_is_told_in_the_brokers_words() -> None:
    refusal = b'{"status":"invalid_token","scope":"x"}'
    asked = [versions(*BOTH), OFFERED, authenticated(auth_bytes=refusal)]
    with pytest.raises(ConsumerError) as failed:
        talk(
            OAUTH,
            *asked,
            m.SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED,
                error_message=refusal.decode(),
                auth_bytes=b"",
            ),
            token=TOKEN,
        )
    assert isinstance(failed.value, AuthenticationError)
    text = str(failed.value)
    assert refusal.decode() in text
    assert "sasl.oauthbearer" in text
    assert "sasl_plain" not in text
    assert PASSWORD not in text
    greeted, said = talk(OAUTH, *asked, token=TOKEN)
    assert greeted is None
    last: Any = said[-1].request
    assert last.auth_bytes == b"\1"


def test_a_token_that_is_refused_and_then_accepted_is_refused() -> None:
    with pytest.raises(AuthenticationError, match=r'rejected the token: {"status":"no\?"}'):
        talk(
            OAUTH,
            versions(*BOTH),
            OFFERED,
            authenticated(auth_bytes=b'{"status":"no\x1b"}'),
            authenticated(),
            token=TOKEN,
        )


def test_a_broker_from_before_sasl_had_frames_is_too_old() -> None:
    error = failure(security(), versions((17, 0, 0)))
    assert isinstance(error, UnsupportedVersionError)


def scram_answers(final: bytes, *more: bytes) -> list[Any]:
    tokens = [b"r=abcdef,s=c2FsdA==,i=4096", final, *more]
    return [
        versions(*BOTH),
        m.SaslHandshakeResponse(error_code=0, mechanisms=["SCRAM-SHA-256"]),
        *(
            m.SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=token)
            for token in tokens
        ),
    ]


def test_a_broker_that_cannot_prove_itself_is_not_talked_to() -> None:
    error = failure(security("SCRAM-SHA-256"), *scram_answers(b"v=AAAA"))
    assert type(error) is AuthenticationError
    assert "did not prove" in str(error)


def test_an_error_that_is_not_known_yet_is_one_all_the_same() -> None:
    error = failure(
        security(), versions(*BOTH), m.SaslHandshakeResponse(error_code=1_234, mechanisms=[])
    )
    assert type(error) is AuthenticationError
    assert error.code is ErrorCode.UNKNOWN_SERVER_ERROR
