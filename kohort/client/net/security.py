"""Connection security: TLS and SASL settings, for the event loop and the heartbeat thread."""

from __future__ import annotations

import dataclasses
import ssl
from dataclasses import dataclass
from typing import Final

from kohort.client.core.errors import AuthenticationError, CertificateError, ConfigError, TlsError
from kohort.client.net.oauth import SETTING, OAuthToken, TokenProvider
from kohort.client.net.sasl import MECHANISMS, OAUTHBEARER
from kohort.client.net.tls_files import RenewedContext, TlsFiles
from kohort.client.net.tokens import TokenSource

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

_FILES: Final = {
    "ssl_cafile": None,
    "ssl_cadata": None,
    "ssl_certfile": None,
    "ssl_keyfile": None,
    "ssl_password": None,
    "ssl_check_hostname": True,
}
"""The settings of certificate files and their defaults."""

_NOT_TLS: Final = frozenset(
    {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "UNKNOWN_PROTOCOL"}
)
"""OpenSSL's reason codes for a response that is not TLS; different versions have different ones."""

TLS_HINT: Final = (
    "; if this listener does not use TLS, set security_protocol to PLAINTEXT or SASL_PLAINTEXT"
)
SASL_HINT: Final = (
    "; this may be a listener that requires SASL: then set security_protocol to"
    " SASL_PLAINTEXT or SASL_SSL"
)


@dataclass(frozen=True, slots=True)
class SecuritySettings:
    """Settings of TLS and SASL, under aiokafka's names."""

    security_protocol: str = "PLAINTEXT"
    """PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL, matching the listener."""
    ssl_context: ssl.SSLContext | None = None
    """A context of your own, instead of the settings below."""
    ssl_cafile: str | None = None
    """PEM file with the CAs to trust, instead of the system's. This file, `ssl_certfile` and
    `ssl_keyfile` may be renewed: each new connection uses their current content."""
    ssl_cadata: str | None = dataclasses.field(default=None, repr=False)
    """The CAs to trust as PEM text, instead of a file."""
    ssl_certfile: str | None = None
    """PEM file with this client's certificates, and the private key unless `ssl_keyfile` has it."""
    ssl_keyfile: str | None = None
    """PEM file with the client's private key."""
    ssl_password: str | None = dataclasses.field(default=None, repr=False)
    """The password of an encrypted private key."""
    ssl_check_hostname: bool = True
    """Whether the broker's certificate must name the host; False is for tests only."""
    sasl_mechanism: str = "PLAIN"
    """PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER."""
    sasl_plain_username: str | None = None
    """Used by all mechanisms with passwords, not only PLAIN."""
    sasl_plain_password: str | None = dataclasses.field(default=None, repr=False)
    """The password of `sasl_plain_username`."""
    sasl_oauth_token_provider: TokenProvider | None = dataclasses.field(default=None, repr=False)
    """A function, or coroutine function, that returns a token and its expiry, for OAUTHBEARER; or
    an object with a method `token`, as aiokafka's AbstractTokenProvider."""


@dataclass(frozen=True, slots=True)
class SecurityConfig(SecuritySettings):
    """The checked settings, and the state that all connections share."""

    tokens: TokenSource | None = dataclasses.field(
        default=None, init=False, repr=False, compare=False
    )
    """The provider's tokens, shared by all connections."""
    files: RenewedContext | None = dataclasses.field(
        default=None, init=False, repr=False, compare=False
    )
    """The TLS context of the certificate files, if any are set."""

    def __post_init__(self) -> None:
        """Check that the settings are valid and consistent.

        Raises:
            ConfigError: the message names the setting.
        """
        if self.security_protocol not in PROTOCOLS:
            raise ConfigError(
                f"security_protocol: {self.security_protocol!r} is not one of"
                f" {', '.join(PROTOCOLS)}"
            )
        self._check_tls()
        self._check_sasl()

    @property
    def uses_tls(self) -> bool:
        return self.security_protocol.endswith("SSL")

    @property
    def tls_context(self) -> ssl.SSLContext | None:
        """The TLS context for a new connection; None without TLS.

        Without an `ssl_context`, the first use loads all of the system's CAs, which takes tens of
        milliseconds, and later uses may read changed files: avoid it on an event loop.
        """
        if self.files is not None:
            return self.files.context()
        if self.uses_tls and self.ssl_context is None:
            object.__setattr__(self, "ssl_context", ssl.create_default_context())
        return self.ssl_context

    @property
    def uses_scram(self) -> bool:
        return self.uses_sasl and self.sasl_mechanism.startswith("SCRAM-")

    @property
    def uses_tokens(self) -> bool:
        return self.uses_sasl and self.sasl_mechanism == OAUTHBEARER

    @property
    def uses_sasl(self) -> bool:
        return self.security_protocol.startswith("SASL_")

    def discard(self, token: OAuthToken | None) -> None:
        """Use a new token for the next attempt, because the broker may have rejected this one."""
        if token is not None and self.tokens is not None:
            self.tokens.discard(token)

    def _check_tls(self) -> None:
        if not self.uses_tls and self.ssl_context is not None:
            raise ConfigError(
                f"ssl_context is set, but security_protocol is {self.security_protocol};"
                " set it to SSL or SASL_SSL, or remove ssl_context"
            )
        names = [name for name, default in _FILES.items() if getattr(self, name) != default]
        if not names:
            return
        if not self.uses_tls:
            raise ConfigError(
                f"{names[0]} is set, but security_protocol is {self.security_protocol}; set it to"
                f" SSL or SASL_SSL, or remove {names[0]}"
            )
        if self.ssl_context is not None:
            raise ConfigError(
                f"{names[0]} and ssl_context are both set; remove one, or load the files into"
                " ssl_context"
            )
        files = TlsFiles(**{name.removeprefix("ssl_"): getattr(self, name) for name in _FILES})
        object.__setattr__(self, "files", RenewedContext(files))

    def _check_sasl(self) -> None:
        user, password = self.sasl_plain_username, self.sasl_plain_password
        if not self.uses_sasl:
            if user is not None or password is not None:
                raise ConfigError(
                    "sasl_plain_username and sasl_plain_password are set, but security_protocol"
                    f" is {self.security_protocol}, which does not use them; set it to"
                    " SASL_PLAINTEXT or SASL_SSL"
                )
            if self.sasl_oauth_token_provider is not None:
                raise ConfigError(
                    f"{SETTING} is set, but security_protocol is {self.security_protocol}, which"
                    " does not use it; set it to SASL_SSL or SASL_PLAINTEXT"
                )
            return
        if self.sasl_mechanism not in MECHANISMS:
            raise ConfigError(
                f"sasl_mechanism: {self.sasl_mechanism!r} is not one of {', '.join(MECHANISMS)}"
            )
        if self.uses_tokens:
            self._check_tokens()
            return
        if self.sasl_oauth_token_provider is not None:
            raise ConfigError(
                f"{SETTING} is set, but sasl_mechanism is {self.sasl_mechanism}, not {OAUTHBEARER}"
            )
        if not user or not password:
            raise ConfigError(
                f"security_protocol is {self.security_protocol}: sasl_plain_username and"
                " sasl_plain_password must both be set"
            )
        if "\0" in user + password:
            raise ConfigError("user names and passwords must not contain NUL")

    def _check_tokens(self) -> None:
        if self.sasl_plain_username is not None or self.sasl_plain_password is not None:
            raise ConfigError(
                "sasl_plain_username and sasl_plain_password are set, but sasl_mechanism is"
                f" {OAUTHBEARER}, which does not use them"
            )
        if self.sasl_oauth_token_provider is None:
            raise ConfigError(f"sasl_mechanism is {OAUTHBEARER}: {SETTING} must be set")
        try:
            tokens = TokenSource(self.sasl_oauth_token_provider)
        except ValueError as error:
            raise ConfigError(f"{SETTING}: {error}") from None
        object.__setattr__(self, "tokens", tokens)


def tls_error(address: str, error: ssl.SSLError) -> AuthenticationError | None:
    """Return the error for a failed TLS handshake; None if a retry may well succeed.

    None also for a connection that was closed without a TLS alert: brokers without TLS do that, but
    so do brokers that are just shutting down.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return CertificateError(
            f"{address}: the broker's certificate is rejected: {error.verify_message};"
            " ssl_context, or ssl_cafile, must trust its issuer, and the certificate must name the"
            " host that the broker advertises"
        )
    if isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
        return None
    reason = error.reason or str(error)
    if reason in _NOT_TLS:
        return TlsError(f"{address} does not answer with TLS ({reason}){TLS_HINT}")
    if "CERTIFICATE" in reason or "UNKNOWN_CA" in reason:
        return CertificateError(
            f"{address}: the broker does not accept this client's certificate ({reason}); load one"
            " that it trusts into ssl_context (load_cert_chain), or name it as ssl_certfile"
        )
    return TlsError(
        f"{address}: no TLS connection: {reason}; compare the versions and ciphers of ssl_context"
        " with the broker's ssl.enabled.protocols and ssl.cipher.suites"
    )
