"""Own tests of other people's libraries, as a user through TLS and SCRAM, on a broker that asks
what he may do: what passes on a Kafka passes on ours.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.interop.foreign import librdkafka
from tests.interop.foreign.suites import franz_go_tests
from tests.support.brokers.secure_kafka import PASSWORD, USER, SecureKafka
from tests.support.brokers.secure_kohort import SecureKohort

LIBRDKAFKA: Final = [
    # They have kafka-acls.sh deny them what they then try, which they do without names only.
    *((name, "PLAINTEXT", "", "") for name in ("0109", "0115", "0119")),
    *(("0081", "SASL_SSL", "SCRAM-SHA-512", part) for part in ("Acls", "UserScramCredentials")),
    *((name, "SASL_SSL", "SCRAM-SHA-512", "") for name in ("0128", "0135")),
]
"""The numbers of librdkafka's tests, with the listener and the mechanism for them, and what is in
the name of their parts, if it is not all of them.
"""

PASSPHRASE: Final = "of-a-key"
SESSIONS: Final = {"connections.max.reauth.ms": "4000"}
RECORDS: Final = 100_000
SETTINGS: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # The suites' users have no rules, and Kafka's node talks to itself without a name.
    "allow.everyone.if.no.acl.found": "true",
    "transaction.state.log.num.partitions": "5",
    "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    ),
}


@pytest.fixture(scope="module", params=["kohort", "kafka"])
def secured(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecureKohort | SecureKafka]:
    """Each of the two in turn."""
    kind = SecureKohort if request.param == "kohort" else SecureKafka
    with kind(tmp_path_factory.mktemp("secured"), overrides=SETTINGS) as broker:
        yield broker


@pytest.fixture(scope="module")
def kgo() -> Path:
    return franz_go_tests()


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    "name",
    ["TestSCRAMAuth", "TestSCRAMAuthBadCredentials", "TestTxnEtl", "TestGroupETL"],
)
def test_franz_go(name: str, kgo: Path, secured: SecureKohort | SecureKafka) -> None:
    own = {
        "KGO_SEEDS": f"127.0.0.1:{secured.ports['SASL_SSL']}",
        "KGO_TEST_SCRAM_SEEDS": f"127.0.0.1:{secured.ports['SASL_PLAINTEXT']}",
        "KGO_TEST_SCRAM": f"{USER}:{PASSWORD}:256",
        "KGO_TEST_TLS": f"ca:{secured.authority.certificate}",
        "KGO_TEST_RF": "1",
        "KGO_TEST_RECORDS": f"{RECORDS}",
    }
    found = subprocess.run(
        [kgo, "-test.v", "-test.timeout=15m", f"-test.run=^{name}$"],
        env=os.environ | own,
        check=False,
        capture_output=True,
        text=True,
    )
    print(found.stdout[-4_000:])
    assert found.returncode == 0, found.stdout[-20_000:] + found.stderr[-4_000:]
    assert f"--- PASS: {name}" in found.stdout
    assert "--- SKIP: TestSCRAM" not in found.stdout


@pytest.fixture(scope="module")
def built() -> Path:
    return librdkafka.librdkafka_tests()


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize(("name", "listener", "mechanism", "part"), LIBRDKAFKA)
def test_librdkafka(
    name: str,
    listener: str,
    mechanism: str,
    part: str,
    built: Path,
    secured: SecureKohort | SecureKafka,
    tmp_path: Path,
) -> None:
    _run_librdkafka(built, secured, tmp_path, name, listener, mechanism, part)


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    ("kind", "settings", "name", "mechanisms", "part"),
    [
        (SecureKohort, SESSIONS, "0142", ["SCRAM-SHA-256", "PLAIN"], ""),
        (SecureKafka, SESSIONS, "0142", ["SCRAM-SHA-256", "PLAIN"], ""),
        # A Kafka passes at times only: that a rule is answered does not mean that it counts yet.
        (SecureKohort, {}, "0081", ["SCRAM-SHA-512"], "authorized operations"),
    ],
)
def test_librdkafka_with_other_settings(
    kind: type[SecureKohort | SecureKafka],
    settings: dict[str, str],
    name: str,
    mechanisms: list[str],
    part: str,
    built: Path,
    tmp_path: Path,
) -> None:
    with kind(tmp_path / "broker", overrides=SETTINGS | settings) as broker:
        for mechanism in mechanisms:
            directory = tmp_path / mechanism
            directory.mkdir()
            _run_librdkafka(built, broker, directory, name, "SASL_SSL", mechanism, part)


def _run_librdkafka(
    tests: Path,
    broker: SecureKohort | SecureKafka,
    directory: Path,
    name: str,
    listener: str,
    mechanism: str,
    part: str = "",
) -> None:
    settings = {
        "metadata.broker.list": f"127.0.0.1:{broker.ports[listener]}",
        "security.protocol": listener,
    }
    if mechanism:
        settings |= {
            "ssl.ca.location": str(broker.authority.certificate),
            "sasl.mechanisms": mechanism,
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }
    librdkafka.run(tests, name, directory, settings, part=part)


@pytest.mark.long
@pytest.mark.timeout(0)
def test_librdkafka_with_certificates(
    built: Path, secured: SecureKohort | SecureKafka, tmp_path: Path
) -> None:
    both = secured.authority.issue("client", "DNS:client")
    key, certificate = both.with_suffix(".key"), both.with_suffix(".crt")
    authority = str(secured.authority.certificate)
    forms = {
        "SSL_pkcs": f"pkcs12 -export -in {both} -certfile {authority} -passout pass:{PASSPHRASE}",
        "SSL_pub_der": f"x509 -in {certificate} -outform der",
        "SSL_ca_der": f"x509 -in {authority} -outform der",
        "SSL_priv_der": f"pkey -in {key} -outform der",
        "SSL_priv_pem": f"pkcs8 -topk8 -in {key} -passout pass:{PASSPHRASE}",
    }
    environment = {
        "SSL_pub_pem": str(certificate),
        "SSL_all_cas_pem": authority,
        "SSL_password": PASSPHRASE,
    }
    for name, words in forms.items():
        environment[name] = str(tmp_path / name)
        command = ["openssl", *words.split(), "-out", environment[name]]
        subprocess.run(command, check=True, capture_output=True)
    settings = {
        "metadata.broker.list": f"127.0.0.1:{secured.ports['MUTUAL']}",
        "security.protocol": "SSL",
        "ssl.ca.location": authority,
        "ssl.certificate.location": str(certificate),
        "ssl.key.location": environment["SSL_priv_pem"],
        "ssl.key.password": PASSPHRASE,
    }
    said = librdkafka.run(built, "0097", tmp_path, settings, environment=environment)
    assert said.count("[ PASSED: ") == 9, said[-20_000:]
