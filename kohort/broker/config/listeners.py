"""Settings of single listeners: ``listener.name.<listener>.<setting>``, which win over the bare
ones; and of one mechanism of a listener, ``listener.name.<listener>.<mechanism>.<setting>``.

What holds for a listener is a `BrokerConfig` like any other, in which its own values have taken the
place of the broker's.
"""

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from kohort.broker.config.broker import BrokerConfig
from kohort.broker.config.endpoints import parse_protocol_map
from kohort.broker.config.names import misspelt
from kohort.broker.config.security import STORE_TYPES, SUPPORTED_MECHANISMS, jaas_problem
from kohort.broker.config.settings import InvalidValueError, Setting, Value, settings_of
from kohort.broker.config.unused import unused_settings

PREFIX: Final = "listener.name."
HTTP: Final = "HTTP"
"""Name that the HTTP port has in such settings; no listener of clients may have it."""

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
    # As files for Kafka have them; what they name is Java's, or for brokers among themselves.
    _HANDLER,
    "sasl.login.callback.handler.class",
    "sasl.login.class",
)
_OWN_HANDLER: Final = "OAuthBearerValidatorCallbackHandler"
"""Kafka's class that checks tokens; they are checked here as it checks them."""
_DYNAMIC: Final = ("ssl.keystore.", "ssl.truststore.", "ssl.key.", "max.connection")
PER_LISTENER: Final = frozenset(
    name for name in settings_of(BrokerConfig) if name.startswith(_DYNAMIC[:3])
)
"""Changed while the broker runs for one listener each, never for all."""

PER_BROKER: Final = ("ssl.client.auth", "sasl.jaas.config")
"""Changed while the broker runs for one broker, never for all: for those of its listeners that have
no such setting of their own."""

CONVERSION: Final = (
    "keytool -importkeystore -srckeystore OLD.jks -destkeystore NEW.p12 -deststoretype PKCS12, and "
    "then openssl pkcs12 -in NEW.p12 -nodes -out NEW.pem"
)


_LOWER: Final = tuple(one.lower() for one in SUPPORTED_MECHANISMS)


class OwnSetting(NamedTuple):
    """What a name that begins with ``listener.name.`` means."""

    listener: str
    """The listener's name, in upper case."""
    mechanism: str
    """The SASL mechanism, in upper case; empty where the setting is for all of them."""
    setting: Setting

    @property
    def is_dynamic(self) -> bool:
        """Whether it can be changed while the broker runs."""
        return self.setting.name.startswith(_DYNAMIC)


def canonical(name: str) -> str:
    """The name of a setting with its listener and mechanism in lower case, if it has them."""
    if not name.startswith(PREFIX):
        return name
    listener, dot, rest = name.removeprefix(PREFIX).partition(".")
    for mechanism in SUPPORTED_MECHANISMS:
        if rest.upper().startswith(f"{mechanism}."):
            rest = mechanism.lower() + rest[len(mechanism) :]
    return f"{PREFIX}{listener.lower()}{dot}{rest}"


def own_setting(name: str) -> OwnSetting | None:
    """The meaning of a name; None if there is no such setting of listeners."""
    if not name.startswith(PREFIX):
        return None
    listener, _, rest = name.removeprefix(PREFIX).partition(".")
    mechanism = next(
        (one for one in SUPPORTED_MECHANISMS if rest.startswith(one.lower() + ".")), ""
    )
    bare = rest.removeprefix(f"{mechanism.lower()}.") if mechanism else rest
    allowed = bare in OF_MECHANISMS if mechanism else _is_of_listeners(bare)
    setting = settings_of(BrokerConfig).get(bare)
    if setting is None and bare in unused_settings():
        setting = unused_settings()[bare].setting
    if not listener or setting is None or not allowed:
        return None
    return OwnSetting(listener.upper(), mechanism, setting)


def _is_of_listeners(name: str) -> bool:
    return name in OF_LISTENERS or name.startswith(_FAMILIES)


def of_listener(
    config: BrokerConfig, own: Mapping[str, str], listener: str, mechanism: str = ""
) -> BrokerConfig:
    """What holds for a listener, or for one mechanism of it. `own` are texts by their full names.

    Raises InvalidValueError.
    """
    values: dict[str, Value] = {}
    known = settings_of(BrokerConfig)
    # Settings for the mechanism come last, and win.
    for name, text in sorted(own.items(), key=lambda one: bool(_mechanism_of(one[0]))):
        found = own_setting(name)
        if found is None or found.listener != listener or found.mechanism not in {"", mechanism}:
            continue
        if found.setting.name in known:
            values[found.setting.attribute] = found.setting.parse(text)
    if not takes_client_auth(config, own, listener):
        values["ssl_client_auth"] = "none"
    return dataclasses.replace(config, **values) if values else config  # type: ignore[arg-type]


def takes_client_auth(config: BrokerConfig, own: Mapping[str, str], listener: str) -> bool:
    """Whether the bare ``ssl.client.auth`` is for a listener: not for one with SASL, as in Kafka,
    whose own setting has it ask for certificates besides (KIP-684).
    """
    protocol = parse_protocol_map(config.listener_security_protocol_map).get(listener)
    return (
        protocol != "SASL_SSL"
        or config.ssl_client_auth == "none"
        or f"{PREFIX}{listener.lower()}.ssl.client.auth" in own
    )


def _mechanism_of(name: str) -> str:
    found = own_setting(name)
    return "" if found is None else found.mechanism


def own_problems(
    config: BrokerConfig, own: Mapping[str, str], origins: Mapping[str, str] | None = None
) -> list[str]:
    """What is wrong with settings of listeners, each with its name; `origins` has where each was
    given, if that is to be told.
    """
    listeners = _listeners(config)
    found = []
    for name, text in own.items():
        problem = _own_problem(name, text, listeners)
        if problem is not None:
            found.append(f"{origins[name]}: {problem}" if origins else problem)
    if not found:
        for endpoint in config.listener_endpoints:
            listener, protocol = endpoint.listener, config.protocol_of(endpoint.listener)
            found += listener_problems(of_listener(config, own, listener), listener, protocol)
            if protocol.startswith("SASL_"):
                found += _login_problems(config, own, listener)
        if uses_tls_for_http(own):
            found += tls_problems(of_listener(config, own, HTTP), HTTP)
        if "bearer" in config.kohort_http_authentication and _has_http(config):
            found += token_problems(of_listener(config, own, HTTP), HTTP)
    return found


def _own_problem(name: str, text: str, listeners: Collection[str]) -> str | None:
    """What is wrong with one setting of a listener by itself."""
    known = own_setting(name)
    if known is None:
        return f"there is no setting {name} of a listener{_hint(name)}"
    if known.listener not in listeners:
        there = ", ".join(sorted(set(listeners) - {HTTP}))
        return f"{name}: listeners has no listener {known.listener}, but {there}"
    if known.setting.name == _HANDLER and text.strip().rpartition(".")[2] != _OWN_HANDLER:
        return (
            f"{name}: a class of Java cannot check clients here; users are those of `kohort "
            "users`, and tokens are checked by the settings sasl.oauthbearer.*"
        )
    try:
        known.setting.parse(text)
    except InvalidValueError as error:
        return f"{name}: {error}{known.setting.what_is_allowed()}"
    return None


def why_without_effect(config: BrokerConfig, name: str) -> str | None:
    """Why a listener's setting has no effect, although Kafka would accept it.

    None if it has an effect, or if its name or its listener is misspelt, which is an error.
    """
    known = own_setting(name)
    if known is None:
        if _hint(name):
            return None
        return f"there is no setting {name} of a listener: it has no effect"
    listeners = _listeners(config)
    if known.listener in listeners or misspelt(known.listener, listeners - {HTTP}):
        return None
    return f"{name} has no effect: listeners has no listener {known.listener}"


def _listeners(config: BrokerConfig) -> set[str]:
    """The names of listeners that may have settings, in upper case."""
    controllers = {name.upper() for name in config.controller_listener_names}
    return {one.listener for one in config.listener_endpoints} | controllers | {HTTP}


def _hint(name: str) -> str:
    """A suggestion for an unknown setting of a listener; empty if it resembles none."""
    listener, _, rest = name.removeprefix(PREFIX).partition(".")
    mechanism = next((one for one in _LOWER if rest.startswith(f"{one}.")), None)
    bare = rest if mechanism is None else rest.removeprefix(f"{mechanism}.")
    if mechanism is not None and _is_of_listeners(bare) and bare in settings_of(BrokerConfig):
        return f"; it is one of the whole listener: {PREFIX}{listener}.{bare}"
    if mechanism is None and bare in OF_MECHANISMS:
        return f"; it is one of a mechanism: {PREFIX}{listener}.{_LOWER[0]}.{bare}, or another one"
    known = OF_MECHANISMS if mechanism else filter(_is_of_listeners, settings_of(BrokerConfig))
    meant = misspelt(bare, known)
    before = f"{PREFIX}{listener}." if mechanism is None else f"{PREFIX}{listener}.{mechanism}."
    return f"; did you mean {before}{meant}?" if meant else ""


def uses_tls_for_http(own: Mapping[str, str]) -> bool:
    """Whether the HTTP port has settings of TLS, which it has for itself alone."""
    return any(
        known.listener == HTTP and known.setting.name.startswith("ssl.")
        for known in map(own_setting, own)
        if known is not None
    )


def listener_problems(config: BrokerConfig, listener: str, protocol: str) -> Iterable[str]:
    """What a listener of a protocol lacks; `config` is what holds for it."""
    if protocol.startswith("SASL_"):
        for mechanism in config.sasl_enabled_mechanisms or ("",):
            if mechanism not in SUPPORTED_MECHANISMS:
                known = ", ".join(SUPPORTED_MECHANISMS)
                yield (
                    f"listener {listener} uses {protocol}, and its sasl.enabled.mechanisms "
                    f"{'has ' + mechanism if mechanism else 'is empty'}; served are {known}: set "
                    f"it, or {PREFIX}{listener.lower()}.sasl.enabled.mechanisms"
                )
            if mechanism == "OAUTHBEARER":
                yield from (_unsecured if config.kohort_oauth_unsecured else token_problems)(
                    config, listener
                )
    if protocol.endswith("SSL"):
        yield from tls_problems(config, listener)


def _login_problems(config: BrokerConfig, own: Mapping[str, str], listener: str) -> Iterable[str]:
    """What is wrong with login modules of a listener's mechanisms, each sentence once."""
    mechanisms = of_listener(config, own, listener).sasl_enabled_mechanisms
    texts = (of_listener(config, own, listener, one).sasl_jaas_config for one in mechanisms)
    problems = dict.fromkeys(jaas_problem(text or "") for text in texts)
    return [f"listener {listener}: sasl.jaas.config: {one}" for one in problems if one]


def _has_http(config: BrokerConfig) -> bool:
    return config.kohort_metrics_port >= 0 or config.kohort_console_port >= 0


def _unsecured(config: BrokerConfig, listener: str) -> Iterable[str]:
    if config.sasl_oauthbearer_jwks_endpoint_url:
        yield (
            f"listener {listener}: kohort.oauth.unsecured accepts tokens without a signature "
            "alone; take it or sasl.oauthbearer.jwks.endpoint.url away"
        )


def token_problems(config: BrokerConfig, listener: str) -> Iterable[str]:
    """What a listener with OAUTHBEARER lacks, or the HTTP port with ``bearer``."""
    prefix = f"listener {listener}: sasl.oauthbearer"
    if not config.sasl_oauthbearer_jwks_endpoint_url:
        yield (
            f"{prefix}.jwks.endpoint.url has to be set, to where the issuer has its keys: tokens "
            "are never taken unverified"
        )
    if not (
        config.sasl_oauthbearer_expected_audience
        or config.sasl_oauthbearer_allow_unverified_audience
    ):
        yield (
            f"{prefix}.expected.audience has to be set, or allow.unverified.audience=true where "
            "tokens for other services are to be taken, too"
        )
    if not (
        config.sasl_oauthbearer_expected_issuer or config.sasl_oauthbearer_allow_unverified_issuer
    ):
        yield (
            f"{prefix}.expected.issuer has to be set, or allow.unverified.issuer=true where tokens "
            "of others who share these keys are to be taken"
        )


def tls_problems(config: BrokerConfig, listener: str) -> Iterable[str]:
    """What a listener with TLS lacks."""
    who = f"listener {listener}"
    for kind in ("keystore", "truststore"):
        given = str(getattr(config, f"ssl_{kind}_type"))
        if given == "JKS":
            yield f"{who}: ssl.{kind}.type=JKS: only Java reads that. Make PEM of it: {CONVERSION}"
        assert given in STORE_TYPES
    inline = config.ssl_keystore_key, config.ssl_keystore_certificate_chain
    if config.ssl_keystore_location is None and inline == (None, None):
        yield f"{who} needs ssl.keystore.location, or the key itself in ssl.keystore.key"
    elif (inline[0] is None) != (inline[1] is None):
        yield f"{who}: ssl.keystore.key and ssl.keystore.certificate.chain go together"
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
    old = [one for one in config.ssl_enabled_protocols if one not in {"TLSv1.2", "TLSv1.3"}]
    if old or not config.ssl_enabled_protocols:
        yield f"{who}: ssl.enabled.protocols may have TLSv1.2 and TLSv1.3, not {', '.join(old)}"
