"""Settings of single listeners."""

import pytest

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


def test_environment_variables_name_settings_of_listeners() -> None:
    config = load(
        overrides=[f"listeners={SASL}"],
        environment={"KAFKA_LISTENER_NAME_SASL__PLAINTEXT_SASL_ENABLED_MECHANISMS": "PLAIN"},
    )
    assert config.of_listener("SASL_PLAINTEXT").sasl_enabled_mechanisms == ("PLAIN",)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("listener.name.plaintext.plain.ssl.client.auth", "unknown listener setting"),
        ("listener.name.plaintex.ssl.client.auth", "no listener PLAINTEX, but PLAINTEXT"),
        ("listener.name.plaintext.ssl.client.auth", "must be one of"),
    ],
)
def test_what_no_listener_has_stops_the_start(name: str, why: str) -> None:
    assert why in refusal(f"{name}=7")


@pytest.mark.parametrize(
    "name",
    [
        "listener.name.plaintext.num.partitions",
        "listener.name.plaintext.nonsense",
        "listener.name.plaintext.num.network.threads",
        "listener.name.plaintext.gssapi.sasl.jaas.config",
        "listener.name.plaintext.",
        "listener.name.other.ssl.client.auth",
    ],
)
def test_a_listener_setting_that_cannot_be_set_is_a_warning(name: str) -> None:
    loaded = load(overrides=[f"{name}=horse"])
    (warning,) = loaded.warnings
    assert name in warning
    assert "horse" not in warning
    assert loaded.own == {}


def test_a_listener_without_what_its_protocol_needs_stops_the_start() -> None:
    assert "needs ssl.keystore.location" in refusal(f"listeners={TLS}")
    assert "GSSAPI" in refusal(f"listeners={SASL}")
    assert "is empty" in refusal(f"listeners={SASL}", "sasl.enabled.mechanisms=")
    key = "ssl.keystore.location=key.pem"
    assert "needs ssl.truststore" in refusal(f"listeners={TLS}", key, "ssl.client.auth=required")
    assert "TLSv1.1" in refusal(f"listeners={TLS}", key, "ssl.enabled.protocols=TLSv1.1,TLSv1.3")
    assert "keytool" in refusal(f"listeners={TLS}", key, "ssl.keystore.type=JKS")
    assert "must be set together" in refusal(f"listeners={TLS}", "ssl.keystore.key=k")
    both = "ssl.keystore.key=k", "ssl.keystore.certificate.chain=c"
    assert "cannot both" in refusal(f"listeners={TLS}", key, *both)
    both = "ssl.truststore.location=b", "ssl.truststore.certificates=c"
    assert "cannot both" in refusal(f"listeners={TLS}", key, *both)


@pytest.mark.parametrize(
    "name",
    [
        "listener.name.outside.plain.connections.max.reauth.ms",
        "listener.name.OUTSIDE.PLAIN.connections.max.reauth.ms",
        "listener.name.Outside.Plain.connections.max.reauth.ms",
    ],
)
def test_listeners_and_mechanisms_in_any_case_are_one_setting(name: str) -> None:
    config = loaded(
        "listeners=Outside://localhost:9094",
        "listener.security.protocol.map=OUTSIDE:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms=PLAIN",
        f"{name}=500",
    )
    assert config.of_listener("OUTSIDE", "PLAIN").connections_max_reauth_ms == 500
    assert config.own == {"listener.name.outside.plain.connections.max.reauth.ms": "500"}


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("ssl.keystore.locaton", "did you mean listener.name.plaintext.ssl.keystore.location"),
        ("plain.sasl.jaas.confg", "did you mean listener.name.plaintext.plain.sasl.jaas.config"),
        (
            "oauthbearer.sasl.oauthbearer.jwks.endpoint.url",
            "a setting of the listener: listener.name.plaintext.sasl.oauthbearer.jwks.endpoint.url",
        ),
        (
            "sasl.jaas.config",
            "a setting of a mechanism, as listener.name.plaintext.plain.sasl.jaas.config",
        ),
    ],
)
def test_a_setting_that_no_listener_has_is_told_what_it_may_be(name: str, hint: str) -> None:
    assert hint in refusal(f"listener.name.plaintext.{name}=7")


@pytest.mark.parametrize("mechanism", ["plain", "Plain", "scram-sha-512", "oauthbearer"])
def test_a_mechanism_has_one_spelling(mechanism: str) -> None:
    told = refusal(f"listeners={SASL}", f"sasl.enabled.mechanisms=PLAIN,{mechanism}")
    assert f"its sasl.enabled.mechanisms has {mechanism}; supported are PLAIN, SCRAM-SHA" in told
    assert "listener.name.sasl_plaintext.sasl.enabled.mechanisms" in told


HANDLER = "listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class"
TOKENS = (
    f"listeners={SASL}",
    "sasl.enabled.mechanisms=OAUTHBEARER",
    "sasl.oauthbearer.jwks.endpoint.url=https://issuer/keys",
    "sasl.oauthbearer.expected.audience=kohort",
    "sasl.oauthbearer.expected.issuer=https://issuer",
)


def test_kafkas_own_handler_of_tokens_is_taken_and_no_other() -> None:
    package = "org.apache.kafka.common.security.oauthbearer"
    loaded(*TOKENS, f"{HANDLER}={package}.OAuthBearerValidatorCallbackHandler")
    told = refusal(*TOKENS, f"{HANDLER}=com.acme.Handler")
    assert "Java classes are not supported" in told


@pytest.mark.parametrize("missing", range(2, len(TOKENS)))
def test_tokens_are_not_taken_without_keys_audience_and_issuer(missing: int) -> None:
    given = [one for place, one in enumerate(TOKENS) if place != missing]
    name = TOKENS[missing].partition("=")[0]
    assert f"listener SASL_PLAINTEXT: {name} has to be set" in refusal(*given)
    # Of the HTTP port likewise.
    told = refusal("kohort.http.authentication=bearer", *given[2:])
    assert f"listener HTTP: {name} has to be set" in told


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("PlainLoginModule required", "end with ;"),
        ("KafkaServer { PlainLoginModule required; };", "without KafkaServer { } around it"),
        ("com.sun.security.auth.module.JndiLoginModule required;", "must be one of PlainLogin"),
        ('PlainLoginModule required user_a="b", user_b="horse";', 'written name="value"'),
    ],
)
@pytest.mark.parametrize("name", ["sasl.jaas.config", "listener.name.out.scram-sha-256."])
def test_a_login_module_that_cannot_be_used_stops_the_start(name: str, text: str, why: str) -> None:
    if name.endswith("."):
        name += "sasl.jaas.config"
    told = refusal(
        "listeners=OUT://localhost:1",
        "listener.security.protocol.map=OUT:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms=SCRAM-SHA-256",
        f"{name}={text}",
    )
    assert why in told
    assert "horse" not in told


@pytest.mark.parametrize("store", ["keystore", "truststore"])
def test_a_password_of_pkcs12_is_none_of_pem(store: str) -> None:
    given = f"listeners={TLS}", "ssl.keystore.location=a", "ssl.truststore.location=b"
    told = refusal(*given, f"ssl.{store}.password=horse")
    assert f"listener SSL: ssl.{store}.password is for PKCS12" in told
    assert "horse" not in told
    loaded(*given, f"ssl.{store}.password=horse", f"ssl.{store}.type=PKCS12")


def test_a_secret_is_in_no_text_of_what_was_loaded() -> None:
    secret = "correct horse"
    config = loaded(
        f"ssl.key.password={secret}",
        f"listeners={SASL}",
        "sasl.enabled.mechanisms=PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config=PlainLoginModule required "
        f'user_a="{secret}";',
    )
    assert secret not in repr(config)
    assert secret not in repr(config.of_listener("SASL_PLAINTEXT", "PLAIN"))
    assert config.config.ssl_key_password == secret


def test_a_secret_that_cannot_be_used_is_not_repeated() -> None:
    assert "horse" not in refusal("sasl.jaas.config=horse" + "x" * 70_000)
