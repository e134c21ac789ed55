"""The handshake of a connection: version negotiation, then SASL, which is repeated before the
session ends.

A generator, so that asyncio and blocking connections share it: it yields requests, receives the
responses, and returns the result. Authentication follows KIP-152, reauthentication KIP-368.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Generator
from typing import Any, Final, NamedTuple

from kohort.client.core.errors import AuthenticationError, UnsupportedMechanismError
from kohort.client.net.oauth import OAuthToken
from kohort.client.net.sasl import Mechanism, OAuthBearer, SaslError, mechanism, printable
from kohort.client.net.security import SecurityConfig
from kohort.client.net.versions import ApiVersionTable, UnsupportedVersionError
from kohort.protocol.errors import DecodeError, ErrorCode
from kohort.protocol.messages.api_versions import ApiVersionsRequest
from kohort.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

SOFTWARE_NAME: Final = "kohort-python"

ROUNDS_MAX: Final = 4
"""Maximum number of tokens that a client sends: PLAIN one, SCRAM two, OAUTHBEARER one or two."""

NONCE_BYTES: Final = 24


class Ask(NamedTuple):
    """A request to send in `version`; pass its response to the generator."""

    request: object
    version: int


class Greeted(NamedTuple):
    versions: ApiVersionTable
    session_lifetime_ms: int
    """The broker accepts requests for this long after authentication (KIP-368); 0: for ever."""


Greeting = Generator[Ask, Any, Greeted]


def greeting(
    address: str,
    security: SecurityConfig,
    *,
    software_version: str,
    nonce: str,
    token: OAuthToken | None = None,
) -> Greeting:
    """Perform the handshake; drive it with `advance`.

    Args:
        nonce: for SCRAM, see `mechanism`.
        token: for OAUTHBEARER.

    Raises:
        AuthenticationError: the broker rejects the credentials.
        UnsupportedVersionError: the broker is too old.
        DecodeError: the peer does not behave like a broker.
    """
    versions = yield from _ask_versions(software_version)
    if not security.uses_sasl:
        return Greeted(versions, 0)
    return (yield from authentication(address, security, versions, nonce=nonce, token=token))


def authentication(
    address: str,
    security: SecurityConfig,
    versions: ApiVersionTable,
    *,
    nonce: str,
    token: OAuthToken | None,
) -> Greeting:
    """Authenticate or reauthenticate (KIP-368). Raises the errors of `greeting`."""
    yield from _choose_mechanism(address, security, versions)
    rules = _rules(security, nonce, token)
    try:
        lifetime_ms = yield from _authenticate(address, security, versions, rules)
    except SaslError as error:
        raise AuthenticationError(
            f"{_attempt(address, security)} failed: {error}", ErrorCode.SASL_AUTHENTICATION_FAILED
        ) from error
    return Greeted(versions, lifetime_ms)


def advance(dialogue: Greeting, answer: object) -> Ask | Greeted:
    """Return the next request, or the result; `answer` is None at first."""
    try:
        return dialogue.send(answer)
    except StopIteration as end:
        greeted: Greeted = end.value
        return greeted


def _ask_versions(software_version: str) -> Generator[Ask, Any, ApiVersionTable]:
    """Request the supported versions. A broker without ApiVersions v3 answers in v0, with an
    error.
    """
    request = ApiVersionsRequest(
        client_software_name=SOFTWARE_NAME, client_software_version=software_version
    )
    answer = yield Ask(request, 3)
    if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
        answer = yield Ask(request, 0)
    if answer.error_code:
        raise DecodeError(f"ApiVersions: {ErrorCode(answer.error_code).name}")
    features = {feature.name: feature.max_version_level for feature in answer.finalized_features}
    return ApiVersionTable(
        {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}, features
    )


def _rules(security: SecurityConfig, nonce: str, token: OAuthToken | None) -> Mechanism:
    if token is not None:
        return OAuthBearer(token)
    user, password = security.sasl_plain_username, security.sasl_plain_password
    assert user is not None
    assert password is not None
    return mechanism(security.sasl_mechanism, user, password, nonce)


def _choose_mechanism(
    address: str, security: SecurityConfig, versions: ApiVersionTable
) -> Generator[Ask, Any, None]:
    name = security.sasl_mechanism
    try:
        version = versions.best(SaslHandshakeRequest)
    except UnsupportedVersionError:
        # A listener without SASL does not offer this request.
        raise _without_sasl(address, security) from None
    if version < 1:
        raise UnsupportedVersionError(
            f"{address}: the broker is too old for SASL, which needs Kafka 1.0 or later",
            ErrorCode.UNSUPPORTED_VERSION,
        )
    answer = yield Ask(SaslHandshakeRequest(mechanism=name), version)
    code = ErrorCode(answer.error_code)
    if code is ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        offered = ", ".join(sorted(answer.mechanisms)[:10]) or "none"
        raise UnsupportedMechanismError(
            f"{address}: the broker does not offer {name} on this listener; it offers {offered};"
            " change sasl_mechanism, or the broker's sasl.enabled.mechanisms",
            code,
        )
    if code is ErrorCode.ILLEGAL_SASL_STATE:
        raise _without_sasl(address, security)
    if code is not ErrorCode.NONE:
        raise AuthenticationError(f"{_attempt(address, security)} failed: {code.name}", code)


def _authenticate(
    address: str, security: SecurityConfig, versions: ApiVersionTable, rules: Mechanism
) -> Generator[Ask, Any, int]:
    """Authenticate; return the session lifetime in milliseconds, 0 for unlimited."""
    version = versions.best(SaslAuthenticateRequest)
    token: bytes | None = rules.first()
    lifetime_ms = 0
    for _ in range(ROUNDS_MAX):
        if token is None:
            return lifetime_ms
        answer = yield Ask(SaslAuthenticateRequest(auth_bytes=token), version)
        code = ErrorCode(answer.error_code)
        if code is not ErrorCode.NONE:
            detail = f" ({printable(answer.error_message)})" if answer.error_message else ""
            raise AuthenticationError(
                f"{_attempt(address, security)} failed: {code.name}{detail}; {_advice(security)}",
                code,
            )
        lifetime_ms = max(answer.session_lifetime_ms, 0)
        token = rules.answer(answer.auth_bytes)
    raise SaslError("the broker requested more tokens than the mechanism has")


def _without_sasl(address: str, security: SecurityConfig) -> UnsupportedMechanismError:
    return UnsupportedMechanismError(
        f"{address}: this listener does not use SASL; security_protocol must be"
        f" {'SSL' if security.uses_tls else 'PLAINTEXT'} for this address",
        ErrorCode.ILLEGAL_SASL_STATE,
    )


def _attempt(address: str, security: SecurityConfig) -> str:
    name = security.sasl_mechanism
    if security.uses_tokens:
        return f"{address}: {name} authentication"
    return f"{address}: {name} authentication of user {security.sasl_plain_username!r}"


def _advice(security: SecurityConfig) -> str:
    if security.uses_tokens:
        return (
            "check the issuer, audience, expiry and key of the token against the broker's"
            " sasl.oauthbearer settings; the broker's log may say more"
        )
    return (
        "check sasl_plain_username and sasl_plain_password, and that the broker knows this user"
        f" for {security.sasl_mechanism}"
    )


RENEW_AT: Final = 0.85
"""Share of the session lifetime after which the connection reauthenticates, with its next request:
between 85 and 95 percent, as in Java."""
RENEW_JITTER: Final = 0.1
"""Spreads the reauthentications of connections that were opened together."""

PAUSE_S: Final = 1.0
"""Brokers reject a second authentication of a connection within a second."""


class Session:
    """The session of one connection, which ends unless the client reauthenticates (KIP-368);
    unlimited at first. Times are in seconds of whichever clock the connection uses.
    """

    def __init__(self, fraction: Callable[[], float] = random.random) -> None:
        """`fraction` returns the part of `RENEW_JITTER` to add to `RENEW_AT`, 0 to 1."""
        self._fraction = fraction
        self._began_s = 0.0
        self._due_s = math.inf
        self._end_s = math.inf

    def begin(self, lifetime_ms: int, now_s: float) -> None:
        """Record a successful authentication; a lifetime of 0 is unlimited."""
        self._began_s = now_s
        lifetime_s = lifetime_ms / 1000 if lifetime_ms else math.inf
        self._end_s = now_s + lifetime_s
        self._due_s = now_s + lifetime_s * (RENEW_AT + RENEW_JITTER * self._fraction())

    def is_due(self, now_s: float) -> bool:
        """Whether to reauthenticate, before the next request or concurrently with it."""
        return now_s >= self._due_s

    def is_over(self, now_s: float) -> bool:
        """Whether the session has ended: the broker now accepts nothing but reauthentication."""
        return now_s >= self._end_s

    def pause_s(self, now_s: float) -> float:
        """The delay before reauthenticating, to limit its rate."""
        return max(0.0, self._began_s + PAUSE_S - now_s)

    def postpone(self, now_s: float) -> None:
        """Schedule another attempt within the remaining lifetime, because renewing failed."""
        self._due_s = now_s + max(PAUSE_S, (self._end_s - now_s) / 4)
