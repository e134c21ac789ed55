"""OAUTHBEARER tokens: what a provider may return, and how long a token is valid.

Any common form of provider is accepted: a function without arguments, plain or a coroutine
function; or an object with a method `token`, and optionally `extensions`, as for aiokafka and
kafka-python. Either returns an `OAuthToken`, a tuple as confluent-kafka's oauth_cb does, or just
the token's text.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

SETTING: Final = "sasl_oauth_token_provider"
"""The name of the setting, for error messages."""

TOKEN_BYTES_MAX: Final = 64 * 1024
"""Maximum size of a token. Kohort's broker accepts 16 KiB; Kafka limits only the whole request, to
512 KiB by default."""

RENEW_AT: Final = 0.8
"""Share of a token's lifetime after which it is renewed, as Kafka's
sasl.login.refresh.window.factor."""

_TOKEN: Final = re.compile(r"[\x21-\x7e]+")
_EXTENSION_NAME: Final = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE: Final = re.compile(r"[\x20-\x7e\t\r\n]+")
_OWN_NAME: Final = "auth"
"""The key of the token in the client's message, which no extension may use."""


class NoTokenError(ValueError):
    """The provider did not return a valid token. The message never contains the token."""


class TokenObject(Protocol):
    """A provider like aiokafka's AbstractTokenProvider; it may also have a method `extensions`."""

    def token(self) -> Any:  # noqa: ANN401 - or a coroutine of it.
        """Return a token in any of the accepted forms."""


TokenProvider: TypeAlias = Callable[[], Any] | TokenObject


@dataclass(frozen=True, slots=True)
class OAuthToken:
    value: str = dataclasses.field(repr=False)
    """The token as it is sent, usually a JWT."""
    expires_s: float | None = None
    """Expiry, in seconds as `time.time`. None: unknown, so every authentication fetches a new
    token."""
    extensions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """SASL extensions that are sent to the broker with the token (KIP-342), by name."""


def token_from(given: object, now_s: float) -> OAuthToken:
    """Convert a provider's return value to a token.

    Args:
        given: an OAuthToken, a text, or a tuple: token, expiry, principal, extensions, the last
            two optional. The principal is not used: brokers find it in the token.

    Raises:
        NoTokenError: it is not a valid token, or it has expired.
    """
    match given:
        case OAuthToken():
            token = given
        case str():
            token = OAuthToken(given)
        case (str(value), expires_s) | (str(value), expires_s, _):
            token = OAuthToken(value, _seconds(expires_s))
        case (str(value), expires_s, _, extensions):
            token = OAuthToken(value, _seconds(expires_s), _texts(extensions or {}))
        case _:
            raise NoTokenError(
                f"an object of type {type(given).__name__} is not a token; return an OAuthToken,"
                " or the token and its expiry (in seconds, as time.time)"
            )
    _check(token, now_s)
    return token


def is_fresh(token: OAuthToken, fetched_s: float, now_s: float) -> bool:
    """Whether a token fetched at `fetched_s` is recent enough not to be renewed; see RENEW_AT."""
    if token.expires_s is None:
        return False
    return now_s < fetched_s + RENEW_AT * (token.expires_s - fetched_s)


def is_good(token: OAuthToken, now_s: float) -> bool:
    """Whether the token is known to be still valid, for use if no new one can be fetched."""
    return token.expires_s is not None and now_s < token.expires_s


class Provider:
    def __init__(self, given: object) -> None:
        """Raises ValueError if `given` is not a provider."""
        token = getattr(given, "token", None)
        call = token if callable(token) else given
        if not callable(call) or isinstance(given, type):
            raise ValueError(  # noqa: TRY004 - as for all settings.
                "it must be a function without arguments, or an object with a method token()"
            )
        self._call: Callable[[], Any] = call
        extensions = getattr(given, "extensions", None) if callable(token) else None
        self._extensions: Callable[[], Any] | None = extensions if callable(extensions) else None
        self.is_async = inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(
            type(call).__call__
        )
        """Whether calling the provider returns a coroutine, so that the call does not block."""

    def begin(self) -> Any:  # noqa: ANN401 - as the application has it.
        """Call the provider; return its result, an awaitable if `is_async`."""
        return self._call()

    def finish(self, answer: object, now_s: float) -> OAuthToken:
        """Convert the provider's result. Raises NoTokenError, and whatever `extensions` raises."""
        token = token_from(answer, now_s)
        if self._extensions is None or token.extensions:
            return token
        token = dataclasses.replace(token, extensions=_texts(self._extensions() or {}))
        _check(token, now_s)
        return token


def is_awaitable(answer: object) -> bool:
    return isinstance(answer, Awaitable)


def _check(token: OAuthToken, now_s: float) -> None:
    if not _TOKEN.fullmatch(token.value):
        raise NoTokenError("a token must be printable ASCII without spaces")
    if len(token.value) > TOKEN_BYTES_MAX:
        raise NoTokenError(
            f"the token has {len(token.value)} bytes; at most {TOKEN_BYTES_MAX} are allowed"
        )
    if token.expires_s is not None and not _seconds(token.expires_s) > now_s:
        raise NoTokenError(f"the token expired {now_s - token.expires_s:.0f} s ago")
    if sum(map(len, _texts(token.extensions).values())) > TOKEN_BYTES_MAX:
        raise NoTokenError(f"extensions of more than {TOKEN_BYTES_MAX} bytes")


def _seconds(given: object) -> float:
    if isinstance(given, bool) or not isinstance(given, (int, float)):
        raise NoTokenError(
            f"its expiry is a {type(given).__name__}, not seconds as returned by time.time"
        )
    return given


def _texts(given: object) -> Mapping[str, str]:
    """Check the extensions; return them as text."""
    if not isinstance(given, Mapping):
        raise NoTokenError(f"its extensions are a {type(given).__name__}, not a dict")
    for name, value in given.items():
        if not isinstance(name, str) or not _EXTENSION_NAME.fullmatch(name) or name == _OWN_NAME:
            raise NoTokenError(f"an extension's name is letters, and not {_OWN_NAME}: {name!r}")
        if not isinstance(value, str) or not _EXTENSION_VALUE.fullmatch(value):
            raise NoTokenError(f"the value of the extension {name} is not printable ASCII")
    return given
