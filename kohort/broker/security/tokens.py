"""Verifies OAUTHBEARER tokens with the keys of their issuer, and fetches these keys.

Keys come only from the configured URL, never from a URL in a token. A token's algorithm must be one
of `ALGORITHMS` and match the key's type. If keys cannot be refreshed, the old ones stay in use for
a day.
"""

import asyncio
import base64
import json
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from kohort.broker.config import BrokerConfig
from kohort.broker.config.listeners import token_problems
from kohort.broker.core.security.addresses import is_loopback
from kohort.broker.core.security.oauthbearer import (
    REFUSAL,
    TokenRules,
    checked_subject,
    read_message,
)
from kohort.broker.core.security.sasl import Challenge, Done, SaslFailure
from kohort.broker.runtime.clock import Clock
from kohort.broker.runtime.deferred import Deferred
from kohort.broker.security.errors import StoreError

logger = logging.getLogger(__name__)


ALGORITHMS: Final = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), ("RSA", None)),
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", "Ed25519"),
}
"""Key type and curve required by each algorithm."""

FETCH_AGAIN_MS: Final = 10_000
"""The minimum time between two fetches of keys, however many tokens have unknown keys."""
STALE_MS: Final = 86_400_000
"""Time for which keys stay in use if they cannot be refreshed."""

_PARTS: Final = 3
_UNCHECKED: Final = dict.fromkeys(
    ("verify_exp", "verify_nbf", "verify_iat", "verify_aud", "verify_iss", "verify_sub"), False
)
"""Options for PyJWT to verify only the signature; `checked_subject` applies Kafka's rules."""


class Tokens:
    def __init__(
        self, listener: str, config: BrokerConfig, *, clock: Clock, executor: Executor
    ) -> None:
        """Fetch the keys.

        Raises:
            StoreError: a setting is invalid, PyJWT is missing, or a key file is unusable.
        """
        try:
            # An optional package: only listeners with OAUTHBEARER need it.
            import jwt  # noqa: PLC0415
        except ImportError:
            raise StoreError(
                f"listener {listener}: OAUTHBEARER needs `pip install kohort[oauth]`"
            ) from None
        for problem in token_problems(config, listener):
            raise StoreError(problem)
        self._jwt: Any = jwt
        self._url = checked_url(config, listener)
        self._rules = token_rules(config)
        self._refresh_ms = config.sasl_oauthbearer_jwks_endpoint_refresh_ms
        self._clock = clock
        self._executor = executor
        self._keys: Mapping[str | None, Any] = {}
        self._fetched_ms: int | None = None
        self._tried_ms = clock.monotonic_ms()
        self._fetching: Deferred[None] | None = None
        try:
            self._set_keys(fetch_keys(self._url))
        except (OSError, ValueError) as error:
            if self._url.startswith("file:"):
                raise StoreError(f"listener {listener}: {self._url}: {error}") from None
            logger.warning("Listener %s has no token keys yet: %s", listener, error)

    def check(self, token: str) -> Done | Deferred[Done]:
        """Verify a token. Raises SaslFailure, or returns a `Deferred` that waits for keys."""
        header = self._header(token)
        self._drop_stale_keys()
        is_known = header.get("kid") in self._keys
        now_ms = self._clock.monotonic_ms()
        is_old = self._fetched_ms is None or now_ms - self._fetched_ms >= self._refresh_ms
        if (is_old or not is_known) and now_ms - self._tried_ms >= FETCH_AGAIN_MS:
            self._fetch_soon()
        if is_known:
            return self._verified(token, header)
        if self._fetching is None:
            raise SaslFailure("the token's key is not known")
        return _after(self._fetching, lambda: self._verified(token, self._header(token)))

    def _drop_stale_keys(self) -> None:
        if self._fetched_ms is None or self._clock.monotonic_ms() - self._fetched_ms < STALE_MS:
            return
        logger.warning("Discarded the token keys, which could not be refreshed for a day")
        self._keys = {}
        self._fetched_ms = None

    def _header(self, token: str) -> Mapping[str, Any]:
        if token.count(".") != _PARTS - 1:
            raise SaslFailure("not a token of three parts")
        try:
            header: Mapping[str, Any] = self._jwt.get_unverified_header(token)
        except (self._jwt.PyJWTError, ValueError, RecursionError):
            raise SaslFailure("the token has no header") from None
        kid = header.get("kid")
        if kid is not None and not isinstance(kid, str):
            raise SaslFailure("the token's kid is not a string")
        if header.get("crit"):
            raise SaslFailure("the token has critical extensions")
        return header

    def _verified(self, token: str, header: Mapping[str, Any]) -> Done:
        key = self._keys.get(header.get("kid"))
        if key is None:
            raise SaslFailure("the token's key is not known")
        algorithm = header.get("alg")
        needed = ALGORITHMS.get(algorithm) if isinstance(algorithm, str) else None
        if needed is None or key.key_type != needed[0]:
            raise SaslFailure("the token's algorithm does not match its key")
        try:
            claims = self._jwt.decode(
                token, key.key, algorithms=[algorithm], options={**_UNCHECKED}
            )
        except Exception as error:  # noqa: BLE001 - from two libraries, for invalid input.
            raise SaslFailure(f"invalid token signature ({type(error).__name__})") from None
        subject, lifetime_ms = checked_subject(claims, self._rules, self._clock.wall_ms() / 1000)
        return Done(b"", subject, lifetime_ms)

    def _fetch_soon(self) -> None:
        if self._fetching is not None:
            return
        self._tried_ms = self._clock.monotonic_ms()
        fetching = self._fetching = Deferred[None]()
        work = asyncio.get_running_loop().run_in_executor(self._executor, fetch_keys, self._url)

        def finish(done: asyncio.Future[bytes]) -> None:
            self._fetching = None
            try:
                self._set_keys(done.result())
            except (OSError, ValueError) as error:
                logger.warning("Cannot fetch the token keys: %s", error)
            finally:
                # Checks of tokens wait for the end of the fetch, even if it fails.
                fetching.set_result(None)

        work.add_done_callback(finish)

    def _set_keys(self, data: bytes) -> None:
        """Replace the keys with those of a JWK set. Raises ValueError if it has no usable key."""
        usable: dict[str | None, Any] = {}
        try:
            listed = json.loads(data)
        except RecursionError:
            raise ValueError("it is nested too deep") from None
        keys = listed.get("keys") if isinstance(listed, dict) else None
        for key in keys if isinstance(keys, list) else ():
            # Symmetric keys are ignored: a published one is not a secret.
            if not isinstance(key, dict) or key.get("kty") == "oct":
                continue
            try:
                usable[key.get("kid")] = self._jwt.PyJWK(key)
            except Exception:  # noqa: BLE001 - the other keys are used.
                logger.warning("Ignored an unusable key of %s: %r", self._url, key.get("kid"))
        if not usable:
            raise ValueError("it has no usable keys")
        self._keys = usable
        self._fetched_ms = self._clock.monotonic_ms()


class OAuthExchange:
    """One attempt to authenticate with OAUTHBEARER."""

    def __init__(self, tokens: "Tokens | UnsecuredTokens") -> None:
        self.user = ""
        self._tokens = tokens
        self._refused: SaslFailure | None = None

    def step(self, token: bytes) -> "Challenge | Done | Deferred[Challenge | Done]":
        """Process a token; rejecting a token takes two rounds (RFC 7628). Raises SaslFailure."""
        if self._refused is not None:
            raise SaslFailure(str(self._refused), REFUSAL.decode())
        claimed = read_message(token)
        try:
            outcome = self._tokens.check(claimed.token)
        except SaslFailure as failure:
            return self._refuse(failure)
        if isinstance(outcome, Deferred):
            return outcome.finally_(lambda later: self._outcome(later, claimed.authzid))
        return self._checked(outcome, claimed.authzid)

    def _outcome(self, later: Deferred[Done], authzid: str) -> Challenge | Done:
        try:
            return self._checked(later.result(), authzid)
        except SaslFailure as failure:
            if failure.client_message is not None:
                raise
            return self._refuse(failure)

    def _checked(self, done: Done, authzid: str) -> Done:
        self.user = done.user
        if authzid and authzid != done.user:
            raise SaslFailure(
                "the authorization id is not the subject",
                "Authentication failed: Client requested an authorization id that is different"
                " from the token's principal name",
            )
        return done

    def _refuse(self, failure: SaslFailure) -> Challenge:
        self._refused = failure
        return Challenge(REFUSAL)


def checked_url(config: BrokerConfig, listener: str) -> str:
    """Return the configured URL of the keys. Raises StoreError if its scheme is not allowed."""
    url = config.sasl_oauthbearer_jwks_endpoint_url or ""
    setting = f"listener {listener}: sasl.oauthbearer.jwks.endpoint.url"
    parts = urlsplit(url)
    is_here = is_loopback(parts.hostname or "")
    if parts.scheme in {"file", "https"} or (parts.scheme == "http" and is_here):
        return url
    raise StoreError(f"{setting}={url} must be https://... or file:///...")


def token_rules(config: BrokerConfig) -> TokenRules:
    """Return the token requirements in a listener's settings."""
    audiences = config.sasl_oauthbearer_expected_audience
    issuer = config.sasl_oauthbearer_expected_issuer
    skew_s = config.sasl_oauthbearer_clock_skew_seconds
    return TokenRules(audiences, issuer or None, skew_s, config.sasl_oauthbearer_sub_claim_name)


def _after(waited: Deferred[None], make: Callable[[], Done]) -> Deferred[Done]:
    """Return a `Deferred` of the result of `make`, called when `waited` is done. Cancelling it does
    not cancel `waited`.
    """
    made: Deferred[Done] = Deferred()

    def finish(_: Deferred[None]) -> None:
        try:
            made.set_result(make())
        except Exception as error:  # noqa: BLE001 - raised by `result`.
            made.set_exception(error)

    waited.add_done_callback(finish)
    return made


class UnsecuredTokens:
    """Validates unsigned tokens (RFC 7515, algorithm "none"), in place of `Tokens`.

    Kafka's clients create them (`unsecuredLoginStringClaim_sub` in `sasl.jaas.config`), and so does
    librdkafka (`enable.sasl.oauthbearer.unsecure.jwt`). They prove nothing: a client that reaches
    the listener can claim to be any user.
    """

    def __init__(self, rules: TokenRules, clock: Clock) -> None:
        self._rules = rules
        self._clock = clock

    def check(self, token: str) -> Done:
        """Check the form and the claims of a token. Raises SaslFailure."""
        parts = token.split(".")
        if len(parts) != _PARTS or parts[2]:
            raise SaslFailure("not a token without a signature")
        header = _decoded(parts[0])
        if header.get("alg") != "none" or header.get("crit"):
            raise SaslFailure("the token's algorithm is not none")
        now_s = self._clock.wall_ms() / 1000
        subject, lifetime_ms = checked_subject(_decoded(parts[1]), self._rules, now_s)
        return Done(b"", subject, lifetime_ms)


def _decoded(part: str) -> Mapping[str, object]:
    """Decode a JSON object in URL-safe base64 without padding."""
    try:
        data = base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise SaslFailure("a part of the token cannot be read") from None
    if not isinstance(found, dict):
        raise SaslFailure("a part of the token is not an object")
    return found


KEYS_BYTES_MAX: Final = 1 << 20
FETCH_TIMEOUT_S: Final = 5.0


def fetch_keys(url: str, timeout_s: float = FETCH_TIMEOUT_S) -> bytes:
    """Return the JSON at a URL (file, http or https). Raises OSError or ValueError."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        with open(unquote(parts.path), "rb") as file:  # noqa: PTH123 - a text, as in urllib.
            data = file.read(KEYS_BYTES_MAX + 1)
    else:
        data = _fetch_by_http(url, timeout_s)
    if len(data) > KEYS_BYTES_MAX:
        raise ValueError("it is too long for a key set")
    return data


def _fetch_by_http(url: str, timeout_s: float) -> bytes:
    # Imported only for http and https, because the imports slow down the start.
    from http.client import HTTPException  # noqa: PLC0415
    from urllib.error import HTTPError  # noqa: PLC0415
    from urllib.request import HTTPRedirectHandler, build_opener  # noqa: PLC0415

    class NoRedirect(HTTPRedirectHandler):
        """Rejects redirects: keys are fetched only from the configured URL."""

        def redirect_request(self, *_: object, **__: object) -> None:
            return None

    data = b""
    try:
        with build_opener(NoRedirect).open(url, timeout=timeout_s) as answer:
            ends_s = time.monotonic() + timeout_s
            while len(data) <= KEYS_BYTES_MAX and (part := answer.read1(KEYS_BYTES_MAX)):
                data += part
                if time.monotonic() > ends_s:
                    raise TimeoutError("its answer is not complete in time")
    except HTTPException as error:
        raise ValueError(f"not HTTP ({type(error).__name__}: {error})") from None
    except HTTPError as error:
        error.close()
        raise
    return data
