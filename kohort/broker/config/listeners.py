"""Settings of a listener, ``listener.name.<listener>.<setting>``, which override the broker's; and
of a SASL mechanism of a listener, ``listener.name.<listener>.<mechanism>.<setting>``.

The config of a listener is a `BrokerConfig` in which its own settings replace the broker's.
"""

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from kohort.broker.config.broker import BrokerConfig
from kohort.broker.config.ignored import ignored_settings, misspelt
from kohort.broker.config.network import parse_protocol_map
from kohort.broker.config.security import (
    STORE_TYPES,
    SUPPORTED_MECHANISMS,
    TLS_VERSIONS,
    jaas_problem,
)
from kohort.broker.config.settings import InvalidValueError, Setting, Value, settings_of

PREFIX: Final = "listener.name."
HTTP: Final = "HTTP"
"""Listener name of the HTTP port in settings; a Kafka listener cannot have this name."""

OF_LISTENERS: Final = (
    "sasl.enabled.mechanisms",
    "connections.max.reauth.ms",
    "sasl.server.max.receive.size",
    "connection.failed.authentication.delay.ms",
    "max.connections",
    "max.connection.creation.rate",
)
_FAMILIES: Final = ("ssl.", "sasl.oauthbearer.")
_HANDLER: Final = "sasl.server.callback.handler.class"
OF_MECHANISMS: Final = (
    "sasl.jaas.config",
    "connections.max.reauth.ms",
    # Accepted because Kafka's settings files have them: Java classes, and logins between brokers.
    _HANDLER,
    "sasl.login.callback.handler.class",
    "sasl.login.class",
)
_OWN_HANDLER: Final = "OAuthBearerValidatorCallbackHandler"
"""Kafka's class that validates tokens; the broker validates them in the same way."""
_DYNAMIC: Final = ("ssl.keystore.", "ssl.truststore.", "ssl.key.", "max.connection")
PER_LISTENER: Final = frozenset(
    name for name in settings_of(BrokerConfig) if name.startswith(_DYNAMIC[:3])
)
"""Settings that can be changed at run time for one listener, but not for all at once."""

PER_BROKER: Final = ("ssl.client.auth", "sasl.jaas.config")
"""Settings that can be changed at run time for one broker, but not cluster-wide; they apply to
listeners without this setting of their own."""

CONVERSION: Final = (
    "keytool -importkeystore -srckeystore OLD.jks -destkeystore NEW.p12 -deststoretype PKCS12, and "
    "then openssl pkcs12 -in NEW.p12 -nodes -out NEW.pem"
)


class OwnSetting(NamedTuple):
    """The parts of a name that begins with ``listener.name.``."""

    listener: str
    """The listener's name, in upper case."""
    mechanism: str
    """The SASL mechanism, in upper case; empty if the setting is for the whole listener."""
    setting: Setting

    @property
    def is_dynamic(self) -> bool:
        """Whether it can be changed at run time."""
        return self.setting.name.startswith(_DYNAMIC)


def _split(name: str) -> tuple[str, str, str]:
    """Return the listener, the mechanism in upper case, and the rest of a listener's setting."""
    listener, _, rest = name.removeprefix(PREFIX).partition(".")
    for mechanism in SUPPORTED_MECHANISMS:
        if rest.upper().startswith(f"{mechanism}."):
            return listener, mechanism, rest[len(mechanism) + 1 :]
    return listener, "", rest


def canonical(name: str) -> str:
    """Return the name with its listener and mechanism, if any, in lower case."""
    if not name.startswith(PREFIX):
        return name
    _, _, bare = _split(name)
    return name[: len(name) - len(bare)].lower() + bare


def own_setting(name: str) -> OwnSetting | None:
    """Parse a name in its canonical form; None if it is not a listener's setting."""
    if not name.startswith(PREFIX):
        return None
    listener, mechanism, bare = _split(name)
    allowed = bare in OF_MECHANISMS if mechanism else _is_of_listeners(bare)
    setting = settings_of(BrokerConfig).get(bare) or ignored_settings().get(bare)
    if not listener or setting is None or not allowed:
        return None
    return OwnSetting(listener.upper(), mechanism, setting)


def _is_of_listeners(name: str) -> bool:
    return name in OF_LISTENERS or name.startswith(_FAMILIES)


def of_listener(
    config: BrokerConfig, own: Mapping[str, str], listener: str, mechanism: str = ""
) -> BrokerConfig:
    """Return the config of a listener, or of one mechanism of it. `own` has the listeners' settings
    as texts, by full name.

    Raises InvalidValueError.
    """
    values: dict[str, Value] = {}
    known = settings_of(BrokerConfig)
    # Settings of the mechanism last, so that they override those of the listener.
    for name, text in sorted(own.items(), key=lambda item: bool(_mechanism_of(item[0]))):
        parsed = own_setting(name)
        if parsed is None or parsed.listener != listener:
            continue
        if parsed.mechanism in {"", mechanism} and parsed.setting.name in known:
            values[parsed.setting.attribute] = parsed.setting.parse(text)
    if not takes_client_auth(config, own, listener):
        values["ssl_client_auth"] = "none"
    return dataclasses.replace(config, **values) if values else config  # type: ignore[arg-type]


def takes_client_auth(config: BrokerConfig, own: Mapping[str, str], listener: str) -> bool:
    """Whether the broker's ``ssl.client.auth`` applies to a listener.

    As in Kafka, not to a listener with SASL, which requests certificates only if it has the setting
    itself (KIP-684).
    """
    protocol = parse_protocol_map(config.listener_security_protocol_map).get(listener)
    return (
        protocol != "SASL_SSL"
        or config.ssl_client_auth == "none"
        or f"{PREFIX}{listener.lower()}.ssl.client.auth" in own
    )


def _mechanism_of(name: str) -> str:
    own = own_setting(name)
    return "" if own is None else own.mechanism


def own_problems(
    config: BrokerConfig, own: Mapping[str, str], origins: Mapping[str, str] | None = None
) -> list[str]:
    """Return the errors in listeners' settings, with the names and, if given, the origins."""
    listeners = _listeners(config)
    errors = []
    for name, text in own.items():
        problem = _own_problem(name, text, listeners)
        if problem is not None:
            errors.append(f"{origins[name]}: {problem}" if origins else problem)
    if not errors:
        for endpoint in config.listener_endpoints:
            listener, protocol = endpoint.listener, config.protocol_of(endpoint.listener)
            errors += listener_problems(of_listener(config, own, listener), listener, protocol)
            if protocol.startswith("SASL_"):
                errors += _login_problems(config, own, listener)
        if uses_tls_for_http(own):
            errors += tls_problems(of_listener(config, own, HTTP), HTTP)
        has_http = config.kohort_metrics_port >= 0 or config.kohort_console_port >= 0
        if has_http and "bearer" in config.kohort_http_authentication:
            errors += token_problems(of_listener(config, own, HTTP), HTTP)
    return errors


def _own_problem(name: str, text: str, listeners: Collection[str]) -> str | None:
    """Return the error in a single listener's setting; None if it is valid."""
    known = own_setting(name)
    if known is None:
        return f"unknown listener setting {name}{_hint(name)}"
    if known.listener not in listeners:
        names = ", ".join(sorted(set(listeners) - {HTTP}))
        return f"{name}: listeners has no listener {known.listener}, but {names}"
    if known.setting.name == _HANDLER and text.strip().rpartition(".")[2] != _OWN_HANDLER:
        return (
            f"{name}: Java classes are not supported; add users with `kohort users`, and configure "
            "the validation of tokens with sasl.oauthbearer.*"
        )
    try:
        known.setting.parse(text)
    except InvalidValueError as error:
        return f"{name}: {error}{known.setting.what_is_allowed()}"
    return None


def why_without_effect(config: BrokerConfig, name: str) -> str | None:
    """Return why a listener's setting has no effect, although Kafka would accept it.

    None if it has an effect, or if its name or its listener is misspelt, which is an error.
    """
    known = own_setting(name)
    if known is None:
        if _hint(name):
            return None
        return f"unknown listener setting {name}: it has no effect"
    listeners = _listeners(config)
    if known.listener in listeners or misspelt(known.listener, listeners - {HTTP}):
        return None
    return f"{name} has no effect: listeners has no listener {known.listener}"


def _listeners(config: BrokerConfig) -> set[str]:
    """Return the names of the listeners that may have settings, in upper case."""
    controllers = {name.upper() for name in config.controller_listener_names}
    return {endpoint.listener for endpoint in config.listener_endpoints} | controllers | {HTTP}


def _hint(name: str) -> str:
    """Return a suggestion for an unknown listener setting; empty if it resembles none."""
    listener, mechanism, bare = _split(name)
    if mechanism and _is_of_listeners(bare) and bare in settings_of(BrokerConfig):
        return f"; it is a setting of the listener: {PREFIX}{listener}.{bare}"
    if not mechanism and bare in OF_MECHANISMS:
        example = SUPPORTED_MECHANISMS[0].lower()
        return f"; it is a setting of a mechanism, as {PREFIX}{listener}.{example}.{bare}"
    known = OF_MECHANISMS if mechanism else filter(_is_of_listeners, settings_of(BrokerConfig))
    meant = misspelt(bare, known)
    before = f"{listener}.{mechanism.lower()}" if mechanism else listener
    return f"; did you mean {PREFIX}{before}.{meant}?" if meant else ""


def uses_tls_for_http(own: Mapping[str, str]) -> bool:
    """Whether the HTTP port has TLS settings of its own; without them it does not use TLS."""
    return any(
        known.listener == HTTP and known.setting.name.startswith("ssl.")
        for known in map(own_setting, own)
        if known is not None
    )


def listener_problems(config: BrokerConfig, listener: str, protocol: str) -> Iterable[str]:
    """Yield the errors in the config of a listener with this protocol."""
    if protocol.startswith("SASL_"):
        for mechanism in config.sasl_enabled_mechanisms or ("",):
            if mechanism not in SUPPORTED_MECHANISMS:
                known = ", ".join(SUPPORTED_MECHANISMS)
                yield (
                    f"listener {listener} uses {protocol}, but its sasl.enabled.mechanisms "
                    f"{'has ' + mechanism if mechanism else 'is empty'}; supported are {known}: "
                    f"set it, or {PREFIX}{listener.lower()}.sasl.enabled.mechanisms"
                )
            if mechanism == "OAUTHBEARER":
                yield from (_unsecured if config.kohort_oauth_unsecured else token_problems)(
                    config, listener
                )
    if protocol.endswith("SSL"):
        yield from tls_problems(config, listener)


def _login_problems(config: BrokerConfig, own: Mapping[str, str], listener: str) -> Iterable[str]:
    """Return the distinct errors in the login modules of a listener's mechanisms."""
    mechanisms = of_listener(config, own, listener).sasl_enabled_mechanisms
    configs = (of_listener(config, own, listener, mechanism) for mechanism in mechanisms)
    reasons = dict.fromkeys(jaas_problem(config.sasl_jaas_config or "") for config in configs)
    return [f"listener {listener}: sasl.jaas.config: {reason}" for reason in reasons if reason]


def _unsecured(config: BrokerConfig, listener: str) -> Iterable[str]:
    if config.sasl_oauthbearer_jwks_endpoint_url:
        yield (
            f"listener {listener}: kohort.oauth.unsecured accepts only tokens without a signature; "
            "remove it, or sasl.oauthbearer.jwks.endpoint.url"
        )


def token_problems(config: BrokerConfig, listener: str) -> Iterable[str]:
    """Yield the token settings' errors, for an OAUTHBEARER listener or the HTTP port."""
    prefix = f"listener {listener}: sasl.oauthbearer"
    if not config.sasl_oauthbearer_jwks_endpoint_url:
        yield (
            f"{prefix}.jwks.endpoint.url has to be set to the location of the issuer's keys: "
            "unverified tokens are never accepted"
        )
    if not (
        config.sasl_oauthbearer_expected_audience
        or config.sasl_oauthbearer_allow_unverified_audience
    ):
        yield (
            f"{prefix}.expected.audience has to be set, or allow.unverified.audience=true to "
            "accept tokens for other services too"
        )
    if not (
        config.sasl_oauthbearer_expected_issuer or config.sasl_oauthbearer_allow_unverified_issuer
    ):
        yield (
            f"{prefix}.expected.issuer has to be set, or allow.unverified.issuer=true to accept "
            "tokens of other issuers with the same keys"
        )


def tls_problems(config: BrokerConfig, listener: str) -> Iterable[str]:
    """Yield the errors in the config of a listener with TLS."""
    who = f"listener {listener}"
    for kind in ("keystore", "truststore"):
        given = str(getattr(config, f"ssl_{kind}_type"))
        if given == "JKS":
            yield f"{who}: ssl.{kind}.type=JKS: only Java reads it. Convert it to PEM: {CONVERSION}"
        assert given in STORE_TYPES
    inline = config.ssl_keystore_key, config.ssl_keystore_certificate_chain
    if config.ssl_keystore_location is None and inline == (None, None):
        yield f"{who} needs ssl.keystore.location, or the key itself in ssl.keystore.key"
    elif (inline[0] is None) != (inline[1] is None):
        yield f"{who}: ssl.keystore.key and ssl.keystore.certificate.chain must be set together"
    elif config.ssl_keystore_location is not None and inline[0] is not None:
        yield f"{who}: ssl.keystore.location and ssl.keystore.key cannot both be set"
    trust = config.ssl_truststore_location, config.ssl_truststore_certificates
    if config.ssl_client_auth == "required" and trust == (None, None):
        yield (
            f"{who}: ssl.client.auth=required needs ssl.truststore.location, a file with the "
            "authorities that sign clients' certificates"
        )
    elif None not in trust:
        yield f"{who}: ssl.truststore.location and ssl.truststore.certificates cannot both be set"
    if config.ssl_keystore_type == "PEM" and config.ssl_keystore_password is not None:
        yield (
            f"{who}: ssl.keystore.password is for PKCS12 (ssl.keystore.type); the password of a "
            "key in PEM is ssl.key.password"
        )
    if config.ssl_truststore_type == "PEM" and config.ssl_truststore_password is not None:
        yield f"{who}: ssl.truststore.password is for PKCS12 (ssl.truststore.type)"
    old = [version for version in config.ssl_enabled_protocols if version not in TLS_VERSIONS]
    if old or not config.ssl_enabled_protocols:
        yield f"{who}: ssl.enabled.protocols may have TLSv1.2 and TLSv1.3, not {', '.join(old)}"
