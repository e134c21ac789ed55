"""Settings of TLS, SASL and users, of authorization and of quotas.

Most of those of TLS and SASL can be set for a single listener; see `listeners`. Access rules are
not settings, clients create them.
"""

import re
from collections.abc import Iterator
from typing import Final

from kohort.broker.config.settings import Settings

SUPPORTED_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
STORE_TYPES: Final = ("JKS", "PEM", "PKCS12")
TLS_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")


def _check_store_type(text: str) -> None:
    if text not in STORE_TYPES:
        raise ValueError(f"must be one of {', '.join(STORE_TYPES)}")


LOGIN_MODULES: Final = ("PlainLoginModule", "ScramLoginModule", "OAuthBearerLoginModule")
"""The supported classes in a JAAS setting; any other is an error."""


def jaas_problem(text: str) -> str | None:
    """Return the error in a `sasl.jaas.config`, without its values; None if it is valid."""
    if not text:
        return None
    from kohort.formats.jaas import JaasError, parse_login_module  # noqa: PLC0415 - few brokers set it.

    try:
        parse_login_module(text, LOGIN_MODULES)
    except JaasError as error:
        return str(error)
    return None


class SecuritySettings(
    Settings,
    checks={"ssl.keystore.type": _check_store_type, "ssl.truststore.type": _check_store_type},
):
    """Security."""

    ssl_keystore_type: str
    ssl_keystore_location: str | None
    ssl_keystore_password: str | None
    ssl_keystore_key: str | None
    ssl_keystore_certificate_chain: str | None
    ssl_key_password: str | None
    ssl_truststore_type: str
    ssl_truststore_location: str | None
    ssl_truststore_certificates: str | None
    ssl_truststore_password: str | None
    ssl_client_auth: str
    ssl_enabled_protocols: tuple[str, ...]
    ssl_cipher_suites: tuple[str, ...]
    ssl_principal_mapping_rules: str
    ssl_allow_dn_changes: bool
    ssl_allow_san_changes: bool
    sasl_enabled_mechanisms: tuple[str, ...]
    sasl_jaas_config: str | None
    sasl_server_max_receive_size: int
    connection_failed_authentication_delay_ms: int
    connections_max_reauth_ms: int
    sasl_oauthbearer_jwks_endpoint_url: str | None
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int
    sasl_oauthbearer_expected_audience: tuple[str, ...]
    sasl_oauthbearer_expected_issuer: str | None
    sasl_oauthbearer_allow_unverified_audience: bool
    sasl_oauthbearer_allow_unverified_issuer: bool
    sasl_oauthbearer_clock_skew_seconds: int
    sasl_oauthbearer_sub_claim_name: str
    sasl_oauthbearer_scope_claim_name: str
    kohort_oauth_unsecured: bool
    kohort_users_file: str | None
    kohort_users_disabled: tuple[str, ...]
    kohort_users_disconnected: tuple[str, ...]
    kohort_authentication_timeout_ms: int
    kohort_unauthenticated_connections_max: int


AUTHORIZERS: Final = ("", "org.apache.kafka.metadata.authorizer.StandardAuthorizer", "kohort")

USER: Final = "User"
_NEXT: Final = r",\s*User:"
"""A comma before a principal, where a semicolon was probably meant."""


def parse_super_users(text: str) -> tuple[str, ...]:
    """Split `super.users` into principals."""
    return tuple(part.strip() for part in text.split(";") if part.strip())


def super_users_problem(text: str) -> str | None:
    """Return, without names, why the list of principals is invalid; None if it is valid."""
    for number, principal in enumerate(parse_super_users(text), 1):
        if ":" not in principal:
            return f"super.users: principal {number} has no type, as in User:name"
    return None


def super_users_warnings(text: str) -> Iterator[str]:
    """Yield warnings about valid principals that probably match no user."""
    for number, principal in enumerate(parse_super_users(text), 1):
        kind, _, name = principal.partition(":")
        if not name:
            yield f"super.users: principal {number} has no type, as in User:name"
        elif kind != USER and kind.lower() == USER.lower():
            yield (
                f"super.users: principal {number} matches no user: the type is case-sensitive, "
                "as in User:name"
            )
        elif re.search(_NEXT, principal):
            yield (
                f"super.users: principal {number} contains a comma followed by User:, so it "
                "matches no user; separate principals with semicolons"
            )


class AccessSettings(Settings):
    """Access."""

    authorizer_class_name: str
    super_users: str
    allow_everyone_if_no_acl_found: bool
    kohort_access_loss_confirmed: str


class QuotaSettings(Settings):
    """Quotas."""

    quota_window_num: int
    quota_window_size_seconds: int
    controller_quota_window_num: int
    controller_quota_window_size_seconds: int
