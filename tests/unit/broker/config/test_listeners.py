"""Settings of single listeners."""

import pytest

from kohort.broker.config.listeners import own_setting
from kohort.broker.config.load import ConfigError, LoadedConfig, load

TLS = "SSL://localhost:9093"
SASL = "SASL_PLAINTEXT://localhost:9094"


def loaded(*overrides: str) -> LoadedConfig:
    return load(overrides=[*overrides])


def refusal(*overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        loaded(*overrides)
    return str(caught.value)


def test_a_setting_of_a_listener_wins_over_the_bare_one() -> None:
    config = loaded(
        "listeners=PLAINTEXT://localhost:9092,SASL_PLAINTEXT://localhost:9094",
        "sasl.enabled.mechanisms=PLAIN",
        "listener.name.sasl_plaintext.sasl.enabled.mechanisms=SCRAM-SHA-256,SCRAM-SHA-512",
    )
    mechanisms = config.of_listener("SASL_PLAINTEXT").sasl_enabled_mechanisms
    assert mechanisms == ("SCRAM-SHA-256", "SCRAM-SHA-512")
    assert config.of_listener("PLAINTEXT").sasl_enabled_mechanisms == ("PLAIN",)


def test_a_setting_of_a_mechanism_wins_over_that_of_its_listener() -> None:
    config = loaded(
        f"listeners={SASL}",
        "listener.name.sasl_plaintext.plain.connections.max.reauth.ms=500",
        "listener.name.sasl_plaintext.connections.max.reauth.ms=3000",
        "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256",
    )
    assert config.of_listener("SASL_PLAINTEXT").connections_max_reauth_ms == 3000
    assert config.of_listener("SASL_PLAINTEXT", "PLAIN").connections_max_reauth_ms == 500
    assert config.of_listener("SASL_PLAINTEXT", "SCRAM-SHA-256").connections_max_reauth_ms == 3000


def test_names_of_listeners_and_mechanisms_are_in_lower_case() -> None:
    found = own_setting("listener.name.outside.scram-sha-512.sasl.jaas.config")
    assert found is not None
    assert (found.listener, found.mechanism) == ("OUTSIDE", "SCRAM-SHA-512")


def test_environment_variables_name_settings_of_listeners() -> None:
    config = load(
        overrides=[f"listeners={SASL}"],
        environment={"KAFKA_LISTENER_NAME_SASL__PLAINTEXT_SASL_ENABLED_MECHANISMS": "PLAIN"},
    )
    assert config.of_listener("SASL_PLAINTEXT").sasl_enabled_mechanisms == ("PLAIN",)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("listener.name.plaintext.num.partitions", "no setting"),
        ("listener.name.plaintext.nonsense", "no setting"),
        ("listener.name.plaintext.plain.ssl.client.auth", "no setting"),
        ("listener.name.other.ssl.client.auth", "no listener OTHER"),
        ("listener.name.plaintext.ssl.client.auth", "must be one of"),
    ],
)
def test_what_no_listener_has_stops_the_start(name: str, why: str) -> None:
    assert why in refusal(f"{name}=7")


def test_a_listener_without_what_its_protocol_needs_stops_the_start() -> None:
    assert "needs ssl.keystore.location" in refusal(f"listeners={TLS}")
    assert "GSSAPI" in refusal(f"listeners={SASL}")
    assert "is empty" in refusal(f"listeners={SASL}", "sasl.enabled.mechanisms=")
    key = "ssl.keystore.location=key.pem"
    assert "needs ssl.truststore" in refusal(f"listeners={TLS}", key, "ssl.client.auth=required")
    assert "TLSv1.1" in refusal(f"listeners={TLS}", key, "ssl.enabled.protocols=TLSv1.1,TLSv1.3")
    assert "keytool" in refusal(f"listeners={TLS}", key, "ssl.keystore.type=JKS")
    assert "go together" in refusal(f"listeners={TLS}", "ssl.keystore.key=k")
    both = "ssl.keystore.key=k", "ssl.keystore.certificate.chain=c"
    assert "cannot both" in refusal(f"listeners={TLS}", key, *both)


def test_a_secret_is_in_no_text_of_what_was_loaded() -> None:
    secret = "correct horse"
    config = loaded(
        f"ssl.key.password={secret}",
        f"listeners={SASL}",
        "sasl.enabled.mechanisms=PLAIN",
        f"listener.name.sasl_plaintext.plain.sasl.jaas.config={secret}",
    )
    assert secret not in repr(config)
    assert secret not in repr(config.of_listener("SASL_PLAINTEXT", "PLAIN"))
    assert config.config.ssl_key_password == secret


def test_a_secret_that_cannot_be_used_is_not_repeated() -> None:
    assert "horse" not in refusal("sasl.jaas.config=horse" + "x" * 70_000)
