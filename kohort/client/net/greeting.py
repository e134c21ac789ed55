"""What both sides say on a new connection before it can be used: versions first, then SASL.

A generator, so that the loop's connections and the thread's share the rules: it yields what is to
be asked, gets the answers, and returns what came of it. Authentication is that of KIP-152.
"""

from __future__ import annotations

import random
from collections.abc import Generator
from typing import Any, Final, NamedTuple

from kohort.client.core.errors import AuthenticationError, UnsupportedMechanismError
from kohort.client.net.sasl import Mechanism, SaslError, mechanism
from kohort.client.net.security import SecurityConfig
from kohort.client.net.versions import ApiVersionTable, UnsupportedVersionError
from kohort.protocol.errors import DecodeError, ErrorCode
from kohort.protocol.messages.api_versions import ApiVersionsRequest
from kohort.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kohort.protocol.messages.sasl_handshake import SaslHandshakeRequest

SOFTWARE_NAME: Final = "kohort-python"

ROUNDS_MAX: Final = 4
"""Tokens that a client sends: PLAIN one, SCRAM two."""

NONCE_BYTES: Final = 24

RETIRE_AT: Final = 0.85
"""Share of the session's lifetime: from then on other connections are used, and this one is closed
when the last answer is there. Java begins to authenticate again between 85 and 95 percent."""
RETIRE_JITTER: Final = 0.1
"""So that not all connections that were made together end together."""


class Ask(NamedTuple):
    """Send this, in this version, and give the answer to the generator."""

    request: object
    version: int


class Greeted(NamedTuple):
    """What is known of a connection that can be used."""

    versions: ApiVersionTable
    session_lifetime_ms: int
    """The broker closes the connection some time after that (KIP-368); 0: never."""


Greeting = Generator[Ask, Any, Greeted]


def greeting(
    address: str, security: SecurityConfig, *, software_version: str, nonce: str
) -> Greeting:
    """To be driven by `advance`.

    Raises:
        AuthenticationError: the broker does not let this client in.
        UnsupportedVersionError: the broker is too old.
        DecodeError: it does not behave as a broker does.
    """
    versions = yield from _ask_versions(software_version)
    if not security.uses_sasl:
        return Greeted(versions, 0)
    yield from _choose_mechanism(address, security, versions)
    assert security.sasl_plain_username is not None
    assert security.sasl_plain_password is not None
    rules = mechanism(
        security.sasl_mechanism,
        security.sasl_plain_username,
        security.sasl_plain_password,
        nonce,
    )
    try:
        lifetime_ms = yield from _authenticate(address, security, versions, rules)
    except SaslError as error:
        raise AuthenticationError(
            f"{_attempt(address, security)} failed: {error}", ErrorCode.SASL_AUTHENTICATION_FAILED
        ) from error
    return Greeted(versions, lifetime_ms)


def advance(steps: Greeting, answer: object) -> Ask | Greeted:
    """The next question, or what came of all. `answer` to the question before, None at first."""
    try:
        return steps.send(answer)
    except StopIteration as end:
        greeted: Greeted = end.value
        return greeted


def retire_after_s(lifetime_s: float) -> float:
    """When to begin to replace a connection whose session lasts so long."""
    return lifetime_s * (RETIRE_AT + RETIRE_JITTER * random.random())  # noqa: S311 - no secret.


def _ask_versions(software_version: str) -> Generator[Ask, Any, ApiVersionTable]:
    """A broker that is too old for our question answers in version 0, with its error in it."""
    request = ApiVersionsRequest(
        client_software_name=SOFTWARE_NAME, client_software_version=software_version
    )
    answer = yield Ask(request, 3)
    if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
        answer = yield Ask(request, 0)
    if answer.error_code:
        raise DecodeError(f"ApiVersions: {ErrorCode(answer.error_code).name}")
    return ApiVersionTable(
        {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
    )


def _choose_mechanism(
    address: str, security: SecurityConfig, versions: ApiVersionTable
) -> Generator[Ask, Any, None]:
    name = security.sasl_mechanism
    try:
        version = versions.best(SaslHandshakeRequest)
    except UnsupportedVersionError:
        # Nothing that this client could say would be understood.
        raise _without_sasl(address, security) from None
    if version < 1:
        raise UnsupportedVersionError(
            f"{address}: the broker is too old: SASL needs Kafka 1.0 or later",
            ErrorCode.UNSUPPORTED_VERSION,
        )
    answer = yield Ask(SaslHandshakeRequest(mechanism=name), version)
    code = ErrorCode(answer.error_code)
    if code is ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        offered = ", ".join(sorted(answer.mechanisms)[:10]) or "none"
        raise UnsupportedMechanismError(
            f"{address}: the broker does not offer {name} on this listener, but {offered};"
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
    """How long the session may last, in milliseconds; 0 for ever."""
    version = versions.best(SaslAuthenticateRequest)
    token: bytes | None = rules.first()
    lifetime_ms = 0
    for _ in range(ROUNDS_MAX):
        if token is None:
            return lifetime_ms
        answer = yield Ask(SaslAuthenticateRequest(auth_bytes=token), version)
        code = ErrorCode(answer.error_code)
        if code is not ErrorCode.NONE:
            said = f" ({answer.error_message[:300]})" if answer.error_message else ""
            raise AuthenticationError(
                f"{_attempt(address, security)} failed: {code.name}{said}; check"
                " sasl_plain_username and sasl_plain_password, and that the broker knows this user"
                f" for {security.sasl_mechanism}",
                code,
            )
        lifetime_ms = max(answer.session_lifetime_ms, 0)
        token = rules.answer(answer.auth_bytes)
    raise SaslError("the broker goes on asking")


def _without_sasl(address: str, security: SecurityConfig) -> UnsupportedMechanismError:
    return UnsupportedMechanismError(
        f"{address}: this listener does not use SASL; security_protocol must be"
        f" {'SSL' if security.uses_tls else 'PLAINTEXT'} there, or the address another one",
        ErrorCode.ILLEGAL_SASL_STATE,
    )


def _attempt(address: str, security: SecurityConfig) -> str:
    return (
        f"{address}: {security.sasl_mechanism} authentication of user"
        f" {security.sasl_plain_username!r}"
    )
