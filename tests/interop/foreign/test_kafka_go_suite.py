"""kafka-go's own tests of SASL, of rules and of users, on ours and on a Kafka."""

import os
import re
import subprocess
import time
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka.admin import (
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.interop.foreign.suites import kafka_go_tests
from tests.support.brokers.secure_kafka import SecureKafka
from tests.support.brokers.secure_kohort import SecureKohort
from tests.support.clients.confluent_client import admin_client, create_topics

_SECURITY: Final = "org.apache.kafka.common.security"
_LISTENER: Final = "listener.name.sasl_plaintext"
SETTINGS: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    f"{_LISTENER}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    f"{_LISTENER}.scram-sha-512.sasl.jaas.config": f"{_SECURITY}.scram.ScramLoginModule required;",
    f"{_LISTENER}.plain.sasl.jaas.config": (
        f'{_SECURITY}.plain.PlainLoginModule required user_adminplain="admin-secret";'
    ),
}
TESTS: Final = {
    "TestClientCreateACLs",
    "TestClientDeleteACLs",
    "TestClientDescribeACLs",
    "TestAlterUserScramCredentials",
    "TestDescribeUserScramCredentials",
    "TestUnsupportedSASLMechanism",
    "TestSASL",
    *(
        f"TestSASL/{mechanism}_{what}"
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
        for what in ("success", "failure", "is_reusable")
    ),
}


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize("kind", [SecureKohort, SecureKafka])
def test_kafka_go(kind: type[SecureKohort | SecureKafka], tmp_path: Path) -> None:
    with kind(tmp_path, overrides=SETTINGS) as broker:
        programs = kafka_go_tests(broker.port, broker.ports["SASL_PLAINTEXT"])
        prepare(broker)
        names = "|".join(name for name in TESTS if "/" not in name)
        said = ""
        for program in programs:
            found = subprocess.run(
                [program, "-test.v", "-test.timeout=5m", f"-test.run=^({names})$"],
                cwd=program.parent,
                env=os.environ | {"KAFKA_VERSION": "4.0.0"},
                check=False,
                capture_output=True,
                text=True,
            )
            said += found.stdout + found.stderr
    assert set(re.findall(r"--- PASS: (\S+)", said)) == TESTS, said


def prepare(broker: SecureKohort | SecureKafka) -> None:
    """Makes what they expect to be there."""
    admin = admin_client(broker.bootstrap)
    create_topics(admin, NewTopic("test-writer-0", 1, 1))
    for mechanism, bits in (
        (ScramMechanism.SCRAM_SHA_256, 256),
        (ScramMechanism.SCRAM_SHA_512, 512),
    ):
        credential = ScramCredentialInfo(mechanism, 4_096)
        change = UserScramCredentialUpsertion(
            f"adminscram{bits}", credential, f"admin-secret-{bits}".encode()
        )
        for changed in admin.alter_user_scram_credentials([change]).values():
            changed.result()
    # A Kafka answers before they count.
    time.sleep(1)
