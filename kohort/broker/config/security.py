"""Settings of TLS, SASL and users. Most may be set for one listener; see `listeners`."""

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


def store_type_problem(text: str) -> str | None:
    """What is wrong with the format of a store."""
    return None if text in STORE_TYPES else f"must be one of {', '.join(STORE_TYPES)}"


class SecuritySettings(Settings):
    """Security."""

    ssl_keystore_type: String = setting(
        "PEM",
        check=store_type_problem,
        dynamic=True,
        doc="Format of the key store. Kafka's default is JKS, which only Java reads; the start is "
        "refused with the commands that convert it. PKCS12 needs `pip install kohort[oauth]`.",
    )
    ssl_keystore_location: String | None = setting(
        None,
        dynamic=True,
        doc="File with the private key (PKCS#8) and the certificates of this broker, its own "
        "first among them.",
    )
    ssl_keystore_password: Password | None = setting(
        None, dynamic=True, doc="Password of a PKCS12 key store; a PEM file has none."
    )
    ssl_keystore_key: Password | None = setting(
        None, dynamic=True, doc="The private key itself as PEM, in place of a file."
    )
    ssl_keystore_certificate_chain: Password | None = setting(
        None, dynamic=True, doc="The certificates themselves as PEM, with `ssl.keystore.key`."
    )
    ssl_key_password: Password | None = setting(
        None, dynamic=True, doc="Password of an encrypted private key in PEM."
    )
    ssl_truststore_type: String = setting(
        "PEM",
        check=store_type_problem,
        dynamic=True,
        doc="Format of the trust store, as of the key store.",
    )
    ssl_truststore_location: String | None = setting(
        None,
        dynamic=True,
        doc="File with the authorities that may sign the certificates of clients. Unset: none; the "
        "system's authorities are never trusted for that.",
    )
    ssl_truststore_certificates: Password | None = setting(
        None, dynamic=True, doc="The authorities themselves as PEM, in place of a file."
    )
    ssl_truststore_password: Password | None = setting(
        None, dynamic=True, doc="Password of a PKCS12 trust store."
    )
    ssl_client_auth: String = setting(
        "none",
        one_of=("required", "requested", "none"),
        doc="Whether clients show a certificate. `requested`: those without one are "
        "`User:ANONYMOUS`.",
    )
    ssl_enabled_protocols: List = setting(
        TLS_VERSIONS, doc="Versions of TLS that are spoken; older ones than 1.2 are not."
    )
    ssl_cipher_suites: List = setting(
        (), doc="Cipher suites for TLS 1.2 by their IANA names; empty: those that OpenSSL prefers."
    )
    ssl_principal_mapping_rules: String = setting(
        "DEFAULT",
        doc="How the subject of a client's certificate becomes the name of a principal, as "
        "`RULE:pattern/replacement/[L|U]` and DEFAULT, of which the first that matches counts.",
    )
    ssl_allow_dn_changes: Boolean = setting(
        False, doc="Whether a new key store may have another subject than the one it replaces."
    )
    ssl_allow_san_changes: Boolean = setting(
        False, doc="Whether a new key store may lack alternative names of the one it replaces."
    )
    sasl_enabled_mechanisms: List = setting(
        ("GSSAPI",),
        doc="SASL mechanisms of listeners that use SASL: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and "
        "OAUTHBEARER. Kafka's default, GSSAPI, is not served: a SASL listener needs this set.",
    )
    sasl_jaas_config: Password | None = setting(
        None,
        doc='Users of PLAIN as Kafka has them: `PlainLoginModule required user_alice="...";`. '
        "Users are better kept with `kohort users`, which works for SCRAM as well.",
    )
    sasl_server_max_receive_size: Int = setting(
        524_288,
        at_least=0,
        doc="Largest frame of a client that has not authenticated yet.",
    )
    connection_failed_authentication_delay_ms: Int = setting(
        100,
        at_least=0,
        doc="How long after a client's token its failure is told, and its connection closed.",
    )
    connections_max_reauth_ms: Long = setting(
        0,
        doc="How long after it has authenticated a client must do so again (KIP-368); 0: never.",
    )
    sasl_oauthbearer_jwks_endpoint_url: String | None = setting(
        None,
        doc="Where the keys are that tokens are signed with: https://..., or file:///... for a "
        "file. A listener with OAUTHBEARER needs it.",
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: Long = setting(
        3_600_000,
        doc="How old those keys may become before they are fetched again.",
    )
    sasl_oauthbearer_expected_audience: List = setting((), doc="A token must be for one of these.")
    sasl_oauthbearer_expected_issuer: String | None = setting(
        None, doc="A token must be from this issuer."
    )
    sasl_oauthbearer_allow_unverified_audience: Boolean = setting(
        False, doc="Lets tokens for any audience in."
    )
    sasl_oauthbearer_allow_unverified_issuer: Boolean = setting(
        False, doc="Lets tokens of any issuer in."
    )
    sasl_oauthbearer_clock_skew_seconds: Int = setting(
        30, doc="By how much the clock of who made a token may differ from ours."
    )
    sasl_oauthbearer_sub_claim_name: String = setting(
        "sub", doc="The claim that has the name of the principal."
    )
    sasl_oauthbearer_scope_claim_name: String = setting(
        "scope", honoured=False, doc="The claim that has the scope."
    )
    kohort_authentication_timeout_ms: Int = setting(
        10_000,
        at_least=1,
        doc="From the connection to the end of TLS and SASL; who takes longer is closed.",
    )
    kohort_unauthenticated_connections_max: Int = setting(
        1_000,
        at_least=1,
        doc="Connections of all listeners on which TLS and SASL have not come to their end. One "
        "more closes the oldest of the address that has most of them.",
    )
