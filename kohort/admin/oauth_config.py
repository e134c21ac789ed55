"""OAUTHBEARER settings of a properties file, as for Kafka's clients: tokens come from an issuer's
endpoint for a client's id and secret, or from a file (KIP-768, KIP-1139).
"""

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kohort.client.net.client_credentials import ClientCredentials, TokenFile, path_of
from kohort.formats.jaas import JaasError, parse_login_module

JAAS: Final = "sasl.jaas.config"
ENDPOINT: Final = "sasl.oauthbearer.token.endpoint.url"
HANDLER: Final = "sasl.login.callback.handler.class"
CLIENT_ID: Final = "sasl.oauthbearer.client.credentials.client.id"
CLIENT_SECRET: Final = "sasl.oauthbearer.client.credentials.client.secret"  # noqa: S105 - the name of a setting.
SCOPE: Final = "sasl.oauthbearer.scope"
URL_ENCODES: Final = "sasl.oauthbearer.header.urlencode"

KNOWN: Final = (ENDPOINT, HANDLER, CLIENT_ID, CLIENT_SECRET, SCOPE, URL_ENCODES)
"""The settings that apply to OAUTHBEARER only."""

_MODULE: Final = "OAuthBearerLoginModule"
_HANDLER: Final = "OAuthBearerLoginCallbackHandler"
_EXTENSION: Final = "extension_"
_TRUST_TYPE: Final = "ssl.truststore.type"
_TRUST: Final = "ssl.truststore.location"
_TRUSTED: Final = "ssl.truststore.certificates"
_OPTIONS: Final = ("clientId", "clientSecret", "scope", _TRUST_TYPE, _TRUST, _TRUSTED)


class OAuthConfigError(Exception):
    """A setting is invalid; the text does not contain the secret."""

    def __init__(self, setting: str, text: str) -> None:
        super().__init__(text)
        self.setting = setting


def token_provider(settings: Mapping[str, str]) -> ClientCredentials | TokenFile:
    """Create the source of tokens; `settings` contains no unknown settings.

    Raises:
        OAuthConfigError: a setting is missing or invalid.
    """
    _check_handler(settings)
    url = settings.get(ENDPOINT)
    if url is None:
        raise OAuthConfigError(
            JAAS,
            f"OAUTHBEARER needs {ENDPOINT}: the https://... URL of the issuer's token endpoint, or"
            " the file:///... URL of a file with a token",
        )
    options = _login(settings.get(JAAS, f"{_MODULE} required;"))
    extensions = {
        name.removeprefix(_EXTENSION): value
        for name, value in options.items()
        if name.startswith(_EXTENSION)
    }
    try:
        path = path_of(url)
        if path is not None:
            return TokenFile(path, extensions)
        return ClientCredentials(
            url,
            _required(settings, CLIENT_ID, options, "clientId"),
            _required(settings, CLIENT_SECRET, options, "clientSecret"),
            scope=settings.get(SCOPE, options.get("scope")),
            extensions=extensions,
            ssl_context=_trusting(options),
            url_encodes=_is_true(settings.get(URL_ENCODES, "false")),
        )
    except ValueError as error:
        raise OAuthConfigError(ENDPOINT, f"{ENDPOINT}: {error}") from None


def _check_handler(settings: Mapping[str, str]) -> None:
    handler = settings.get(HANDLER)
    if handler is not None and handler.rpartition(".")[2] != _HANDLER:
        raise OAuthConfigError(HANDLER, f"{HANDLER}: only Kafka's {_HANDLER} is supported")


def _login(text: str) -> dict[str, str]:
    try:
        _, options = parse_login_module(text, (_MODULE,))
    except JaasError as error:
        raise OAuthConfigError(JAAS, f"{JAAS}: {error}") from None
    for name in options:
        if name not in _OPTIONS and not name.startswith(_EXTENSION):
            raise OAuthConfigError(
                JAAS, f"{JAAS}: {_MODULE} has the options {', '.join(_OPTIONS)} and {_EXTENSION}..."
            )
    return options


def _required(
    settings: Mapping[str, str], name: str, options: Mapping[str, str], option: str
) -> str:
    value = settings.get(name) or options.get(option)
    if not value:
        raise OAuthConfigError(JAAS, f'{JAAS} must contain {option}="..."; or set {name}')
    return value


def _is_true(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise OAuthConfigError(URL_ENCODES, f"{URL_ENCODES} is true or false")
    return text.lower() == "true"


def _trusting(options: Mapping[str, str]) -> ssl.SSLContext | None:
    """A TLS context that trusts the CAs configured for the issuer; None for the system's CAs."""
    location, certificates = options.get(_TRUST), options.get(_TRUSTED)
    if location is None and certificates is None:
        return None
    if options.get(_TRUST_TYPE, "JKS").upper() != "PEM":
        raise OAuthConfigError(JAAS, f'{JAAS}: only PEM can be read here: {_TRUST_TYPE}="PEM"')
    try:
        if location is not None:
            return ssl.create_default_context(cafile=Path(location))
        return ssl.create_default_context(cadata=certificates)
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        name = _TRUSTED if location is None else f"{_TRUST} {location!r}"
        raise OAuthConfigError(JAAS, f"{JAAS}: {name} cannot be read: {reason}") from error
