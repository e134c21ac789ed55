"""Settings of single listeners: ``listener.name.<listener>.<setting>``, which win over the bare
ones; and of one mechanism of a listener, ``listener.name.<listener>.<mechanism>.<setting>``.

What holds for a listener is a `BrokerConfig` like any other, in which its own values have taken the
place of the broker's.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from kohort.broker.config.broker import BrokerConfig
from kohort.broker.config.security import STORE_TYPES, SUPPORTED_MECHANISMS
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
OF_MECHANISMS: Final = ("sasl.jaas.config", "connections.max.reauth.ms")
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
    return dataclasses.replace(config, **values) if values else config  # type: ignore[arg-type]


def _mechanism_of(name: str) -> str:
    found = own_setting(name)
    return "" if found is None else found.mechanism


def own_problems(config: BrokerConfig, own: Mapping[str, str]) -> list[str]:
    """What is wrong with settings of listeners, each with its name."""
    listeners = {one.listener for one in config.listener_endpoints}
    listeners |= {name.upper() for name in config.controller_listener_names} | {HTTP}
    found = []
    for name, text in own.items():
        known = own_setting(name)
        if known is None:
            found.append(f"there is no setting {name}")
        elif known.listener not in listeners:
            found.append(f"{name}: listeners has no listener {known.listener}")
        else:
            try:
                known.setting.parse(text)
            except InvalidValueError as error:
                found.append(f"{name}: {error} (allowed: {known.setting.allowed()})")
    if not found:
        for endpoint in config.listener_endpoints:
            found += listener_problems(
                of_listener(config, own, endpoint.listener),
                endpoint.listener,
                config.protocol_of(endpoint.listener),
            )
        if uses_tls_for_http(own):
            found += tls_problems(of_listener(config, own, HTTP), HTTP)
    return found


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
            if mechanism.upper() not in SUPPORTED_MECHANISMS:
                known = ", ".join(SUPPORTED_MECHANISMS)
                yield (
                    f"listener {listener} uses {protocol}, and its sasl.enabled.mechanisms "
                    f"{'has ' + mechanism if mechanism else 'is empty'}; served are {known}"
                )
    if protocol.endswith("SSL"):
        yield from tls_problems(config, listener)


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
        yield f"{who}: ssl.client.auth=required needs ssl.truststore.location"
    old = [one for one in config.ssl_enabled_protocols if one not in {"TLSv1.2", "TLSv1.3"}]
    if old or not config.ssl_enabled_protocols:
        yield f"{who}: ssl.enabled.protocols may have TLSv1.2 and TLSv1.3, not {', '.join(old)}"
