"""Authenticates requests to the HTTP port by passwords or tokens.

Responses to failures are delayed as on the other listeners, depending on the recent failures of the
address, so that guessing passwords is not faster here.
"""

import asyncio
import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.core.security.addresses import FailureDelays, host_text
from kohort.broker.core.security.oauthbearer import TOKEN_CHARACTERS_MAX
from kohort.broker.core.security.sasl import Done, PlainLogin, SaslFailure, read_plain
from kohort.broker.core.security.session import USER, Principal, Session
from kohort.broker.runtime.clock import Clock
from kohort.broker.runtime.deferred import Deferred

LISTENER: Final = "HTTP"
MECHANISMS: Final = {"basic": "BASIC", "bearer": "BEARER"}
"""Schemes of the Authorization header, and their names in the metrics."""


@dataclass(slots=True, eq=False)
class HttpGuard:
    ways: tuple[str, ...]
    """The schemes enabled by `kohort.http.authentication`."""
    check_password: Callable[[PlainLogin, str], Done | Deferred[Done]]
    check_token: Callable[[str], Done | Deferred[Done]] | None
    clock: Clock
    delays: FailureDelays
    delay_ms: int
    """The minimum delay of the response to a failure."""
    count: Callable[[str, str, str], None]
    is_disabled: Callable[[str], bool]
    """Whether a user is rejected even with valid credentials."""

    async def admit(self, authorization: str, ip: str) -> Session | None:
        """Return the session for an Authorization header; None, after a delay, if authentication
        fails.
        """
        scheme, _, credentials = authorization.partition(" ")
        way = scheme.lower()
        if way not in self.ways:
            return None
        arrived_ms = self.clock.monotonic_ms()
        try:
            outcome = self._check(way, credentials.strip(), ip)
            done = await outcome if isinstance(outcome, Deferred) else outcome
            self._check_disabled(done)
        except SaslFailure:
            self.count(LISTENER, MECHANISMS[way], "failed")
            until_ms = arrived_ms + self.delays.delay_ms(ip, arrived_ms, self.delay_ms)
            await asyncio.sleep(max(0, until_ms - self.clock.monotonic_ms()) / 1_000)
            return None
        self.count(LISTENER, MECHANISMS[way], "succeeded")
        return Session(Principal(USER, done.user), host_text(ip), LISTENER, MECHANISMS[way])

    def _check_disabled(self, done: Done) -> None:
        if self.is_disabled(done.user):
            raise SaslFailure("the user is disabled")

    def _check(self, way: str, credentials: str, ip: str) -> Done | Deferred[Done]:
        """Check credentials. Raises SaslFailure, or returns a `Deferred` that fails with it."""
        if way == "basic":
            return self.check_password(_login(credentials), ip)
        if self.check_token is None or len(credentials) > TOKEN_CHARACTERS_MAX:
            raise SaslFailure("the token is too long")
        return self.check_token(credentials)


def _login(credentials: str) -> PlainLogin:
    """Return the name and password of basic authentication (RFC 7617). Raises SaslFailure."""
    try:
        text = base64.b64decode(credentials, validate=True)
    except (binascii.Error, ValueError):
        raise SaslFailure("not base64") from None
    user, _, password = text.partition(b":")
    return read_plain(b"\0" + user + b"\0" + password)


class AuthenticatedRequester(NamedTuple):
    session: Session
    may_do: Callable[[Session, Operation, ResourceType, str], bool]
    sees_of: Callable[[Session, Operation, ResourceType, str], bool]

    @property
    def principal(self) -> str:
        return str(self.session.principal)

    def may(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Whether the client may access a resource named by its request; a denial is logged."""
        return self.may_do(self.session, operation, kind, name)

    def sees(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Whether to show a resource to the client; a denial is not logged."""
        return self.sees_of(self.session, operation, kind, name)
