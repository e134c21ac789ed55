import ssl
from typing import Any

import pytest

from kohort.client.core.errors import AuthenticationError, CertificateError, ConfigError, TlsError
from kohort.client.net.security import SecurityConfig, tls_error

SASL: dict[str, Any] = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_plain_username": "alice",
    "sasl_plain_password": "hidden-word",
}
OAUTH: dict[str, Any] = {
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "OAUTHBEARER",
}


def test_tls_without_a_context_checks_who_answers() -> None:
    security = SecurityConfig(security_protocol="SSL")
    context = security.tls_context
    assert context is not None
    assert context is security.tls_context
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"security_protocol": "TLS"}, "security_protocol"),
        ({"ssl_context": ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)}, "ssl_context"),
        ({"sasl_plain_username": "alice"}, "security_protocol"),
        ({**SASL, "sasl_mechanism": "GSSAPI"}, "sasl_mechanism.*PLAIN, SCRAM-SHA-256"),
        ({**SASL, "sasl_plain_password": None}, "sasl_plain_password"),
        ({**SASL, "sasl_plain_username": ""}, "sasl_plain_username"),
        ({**SASL, "sasl_plain_username": "a\0b"}, "NUL"),
        ({**SASL, "sasl_mechanism": "OAUTHBEARER"}, "sasl_plain_username.*does not use them"),
        ({**SASL, "sasl_oauth_token_provider": str}, "sasl_oauth_token_provider.*is PLAIN"),
        ({"sasl_oauth_token_provider": str}, "sasl_oauth_token_provider.*is PLAINTEXT"),
        (OAUTH, "sasl_oauth_token_provider must be set"),
        ({**OAUTH, "sasl_oauth_token_provider": "hidden-word"}, "function without arguments"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused_by_name(
    settings: dict[str, Any], named: str
) -> None:
    with pytest.raises(ConfigError, match=named) as refused:
        SecurityConfig(**settings)
    assert "hidden-word" not in str(refused.value)


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("WRONG_VERSION_NUMBER", TlsError),
        ("TLSV13_ALERT_CERTIFICATE_REQUIRED", CertificateError),
        ("TLSV1_ALERT_UNKNOWN_CA", CertificateError),
        ("TLSV1_ALERT_PROTOCOL_VERSION", TlsError),
    ],
)
def test_what_openssl_reports_becomes_an_error_with_advice(
    reason: str, kind: type[AuthenticationError]
) -> None:
    error = ssl.SSLError(1, "")
    error.reason = reason
    found = tls_error("broker:9093", error)
    assert type(found) is kind
    assert "broker:9093" in str(found)


def test_an_end_without_a_word_may_be_tried_again() -> None:
    assert tls_error("broker:9093", ssl.SSLEOFError(8, "EOF occurred")) is None
