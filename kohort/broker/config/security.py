"""Settings of TLS, SASL and users, of authorization and of quotas.

Most TLS and SASL settings can be set for a single listener; see `listeners`. Access rules (ACLs)
are not settings: clients create them.
"""

import re
from collections.abc import Iterator
from typing import Final

from kohort.broker.config.settings import (
    Boolean,
    Int,
    List,
    Long,
    Password,
    Settings,
    String,
    setting,
)

SUPPORTED_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
STORE_TYPES: Final = ("JKS", "PEM", "PKCS12")
TLS_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")


def _check_store_type(text: str) -> None:
    if text not in STORE_TYPES:
        raise ValueError(f"must be one of {', '.join(STORE_TYPES)}")


LOGIN_MODULES: Final = ("PlainLoginModule", "ScramLoginModule", "OAuthBearerLoginModule")
"""The supported classes in a JAAS setting; any other is an error."""


def jaas_problem(text: str) -> str | None:
    """Return why a `sasl.jaas.config` is invalid, without its option values; None if valid."""
    if not text:
        return None
    from kohort.formats.jaas import JaasError, parse_login_module  # noqa: PLC0415 - few brokers set it.

    try:
        parse_login_module(text, LOGIN_MODULES)
    except JaasError as error:
        return str(error)
    return None


class SecuritySettings(Settings):
    """Security."""

    ssl_keystore_type: String = setting(
        "PEM",
        check=_check_store_type,
        dynamic=True,
        doc="Format of the key store. Kafka's default is JKS, which only Java reads; the "
        "broker refuses to start and names the commands that convert it. PKCS12 needs "
        "`pip install kohort[oauth]`.",
    )
    ssl_keystore_location: String | None = setting(
        None,
        dynamic=True,
        doc="File with the private key (PKCS#8) and the certificate chain of this broker, "
        "its own certificate first.",
    )
    ssl_keystore_password: Password | None = setting(
        None, dynamic=True, doc="Password of a PKCS12 key store; a PEM file has none."
    )
    ssl_keystore_key: Password | None = setting(
        None, dynamic=True, doc="The private key itself as PEM, instead of a file."
    )
    ssl_keystore_certificate_chain: Password | None = setting(
        None, dynamic=True, doc="The certificates themselves as PEM, with `ssl.keystore.key`."
    )
    ssl_key_password: Password | None = setting(
        None, dynamic=True, doc="Password of an encrypted private key in PEM."
    )
    ssl_truststore_type: String = setting(
        "PEM",
        check=_check_store_type,
        dynamic=True,
        doc="Format of the trust store, like that of the key store.",
    )
    ssl_truststore_location: String | None = setting(
        None,
        dynamic=True,
        doc="File with the certificate authorities that are trusted to sign client certificates. "
        "Unset: none. The system's authorities are never used.",
    )
    ssl_truststore_certificates: Password | None = setting(
        None,
        dynamic=True,
        doc="The certificates of the authorities themselves as PEM, instead of a file.",
    )
    ssl_truststore_password: Password | None = setting(
        None, dynamic=True, doc="Password of a PKCS12 trust store."
    )
    ssl_client_auth: String = setting(
        "none",
        one_of=("required", "requested", "none"),
        dynamic=True,
        doc="Whether clients present a certificate. `requested`: clients without one are "
        "`User:ANONYMOUS`. SASL listeners ignore it without the prefix `listener.name.<name>.`.",
    )
    ssl_enabled_protocols: List = setting(
        TLS_VERSIONS, doc="Enabled TLS versions; versions before 1.2 are not supported."
    )
    ssl_cipher_suites: List = setting(
        (), doc="Cipher suites for TLS 1.2 by their IANA names; empty: OpenSSL's defaults."
    )
    ssl_principal_mapping_rules: String = setting(
        "DEFAULT",
        doc="How the subject of a client's certificate becomes a principal name, as "
        "`RULE:pattern/replacement/[L|U]` and DEFAULT; the first rule that matches "
        "applies.",
    )
    ssl_allow_dn_changes: Boolean = setting(
        False, doc="Whether a new key store may have another subject than the one it replaces."
    )
    ssl_allow_san_changes: Boolean = setting(
        False,
        doc="Whether a new key store may lack subject alternative names of the one it replaces.",
    )
    sasl_enabled_mechanisms: List = setting(
        ("GSSAPI",),
        doc="SASL mechanisms of listeners that use SASL: PLAIN, SCRAM-SHA-256, "
        "SCRAM-SHA-512 and OAUTHBEARER. Kafka's default, GSSAPI, is not supported: set "
        "this for a SASL listener.",
    )
    sasl_jaas_config: Password | None = setting(
        None,
        dynamic=True,
        doc="Users of PLAIN in Kafka's format: `PlainLoginModule required "
        'user_alice="...";`. Prefer `kohort users`, which also works for SCRAM.',
    )
    sasl_server_max_receive_size: Int = setting(
        524_288,
        doc="Largest frame of a client that has not authenticated yet. More than 98 KiB has no "
        "effect, because no valid frame is larger; a negative value means the default.",
    )
    connection_failed_authentication_delay_ms: Int = setting(
        100,
        at_least=0,
        doc="Delay before a failed authentication is answered and the connection closed.",
    )
    connections_max_reauth_ms: Long = setting(
        0,
        doc="Time after which a client must authenticate again (KIP-368); 0: never.",
    )
    sasl_oauthbearer_jwks_endpoint_url: String | None = setting(
        None,
        doc="Location of the keys that verify tokens: https://..., or file:///... for a "
        "file. A listener with OAUTHBEARER needs it.",
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: Long = setting(
        3_600_000,
        doc="Interval at which these keys are fetched again.",
    )
    sasl_oauthbearer_expected_audience: List = setting(
        (), doc="Accepted audiences; a token must have one of them."
    )
    sasl_oauthbearer_expected_issuer: String | None = setting(
        None, doc="Accepted issuer of tokens."
    )
    sasl_oauthbearer_allow_unverified_audience: Boolean = setting(
        False, doc="Accepts tokens for any audience."
    )
    sasl_oauthbearer_allow_unverified_issuer: Boolean = setting(
        False, doc="Accepts tokens of any issuer."
    )
    sasl_oauthbearer_clock_skew_seconds: Int = setting(
        30, doc="Allowed difference between the clock of a token's issuer and ours."
    )
    sasl_oauthbearer_sub_claim_name: String = setting(
        "sub", doc="The claim that contains the principal's name."
    )
    sasl_oauthbearer_scope_claim_name: String = setting(
        "scope", honoured=False, doc="The claim that has the scope."
    )
    kohort_oauth_unsecured: Boolean = setting(
        False,
        doc="For testing clients with OAUTHBEARER without an issuer: accepts only tokens without a "
        "signature (`alg` is `none`), so any client can be any user. All listeners with "
        "OAUTHBEARER must be reachable from this machine only. Does not apply to the HTTP ports.",
    )
    kohort_users_file: String | None = setting(
        None,
        doc="File with users in addition to the stored ones, for example for container images: "
        "lines as printed by `kohort users hash`. It is read at the start, within a minute of a "
        "change and on SIGHUP. If a user is stored, its lines in the file are ignored.",
    )
    kohort_users_disabled: List = setting(
        (),
        dynamic=True,
        doc="Users who cannot authenticate, by any mechanism, certificate or token; commas and "
        "percent signs in names are written as %2C and %25. `kohort users disable` and "
        "`enable` change it; it cannot be set at the start.",
    )
    kohort_users_disconnected: List = setting(
        (),
        dynamic=True,
        doc="Users of `kohort.users.disabled` whose open connections are closed, too "
        "(`kohort users disable --disconnect`).",
    )
    kohort_authentication_timeout_ms: Int = setting(
        10_000,
        at_least=1,
        doc="Time limit for TLS and SASL on a new connection; connections that take longer "
        "are closed.",
    )
    kohort_unauthenticated_connections_max: Int = setting(
        1_000,
        at_least=1,
        doc="Maximum number of connections, over all listeners, that have not completed TLS and "
        "SASL. Beyond it, each new connection closes the oldest one of the IP address that has the "
        "most of them; an IPv6 /64 counts as one address.",
    )


AUTHORIZERS: Final = ("", "org.apache.kafka.metadata.authorizer.StandardAuthorizer", "kohort")

USER: Final = "User"
_NEXT: Final = r",\s*User:"
"""A comma before a principal, where a semicolon was probably meant."""


def parse_super_users(text: str) -> tuple[str, ...]:
    """Split `super.users` into principals."""
    return tuple(part.strip() for part in text.split(";") if part.strip())


def super_users_problem(text: str) -> str | None:
    """Return why the list of principals is invalid, without quoting it; None if it is valid."""
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

    authorizer_class_name: String = setting(
        "",
        one_of=AUTHORIZERS,
        doc="Empty: all operations are allowed. Either of the other values: only operations "
        "that rules allow; kafka-acls.sh or `kohort acl` create them. Both names mean "
        "the same.",
    )
    super_users: Password = setting(
        "",
        doc="Principals that may do everything, regardless of rules, separated by "
        "semicolons: `User:admin;User:CN=ops,OU=it`.",
    )
    allow_everyone_if_no_acl_found: Boolean = setting(
        False,
        doc="Whether all operations on a resource are allowed while no rule matches its "
        "name, for any principal.",
    )
    kohort_access_loss_confirmed: String = setting(
        "",
        dynamic=True,
        doc="If ACLs may have been lost with damaged metadata, only super users have access until "
        "an administrator sets this to the id of the loss, which the log shows. Then the "
        "remaining ACLs apply again.",
    )


class QuotaSettings(Settings):
    """Quotas."""

    quota_window_num: Int = setting(
        11, at_least=1, doc="Number of samples of a client's recent usage."
    )
    quota_window_size_seconds: Int = setting(
        1, at_least=1, doc="Length of each of these samples in seconds."
    )
    controller_quota_window_num: Int = setting(
        11,
        at_least=1,
        doc="Number of windows for which a client can save up `controller_mutation_rate` "
        "and use it at once.",
    )
    controller_quota_window_size_seconds: Int = setting(
        1, at_least=1, doc="Length of each of these windows in seconds."
    )
