"""How a user gets in through TLS and SCRAM, in the words of each client library."""

import json
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


@dataclass(frozen=True, slots=True)
class Login:
    """Where a listener with SASL_SSL is, and who comes."""

    bootstrap: str
    authority: Path
    """The certificate of the authority that has signed the broker's, as PEM."""
    user: str
    password: str
    mechanism: str = "SCRAM-SHA-512"

    def java(self) -> dict[str, str]:
        """Properties of Kafka's own clients, which `--command-config` of `kohort` takes, too."""
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": self.mechanism,
            "sasl.jaas.config": (
                f'{_MODULE} required username="{self.user}" password="{self.password}";'
            ),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority),
        }

    def java_file(self, path: Path) -> Path:
        """The same, written there."""
        path.write_text("".join(f"{name}={value}\n" for name, value in self.java().items()))
        return path

    def librdkafka(self) -> dict[str, Any]:
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": self.mechanism,
            "sasl.username": self.user,
            "sasl.password": self.password,
            "ssl.ca.location": str(self.authority),
        }

    def librdkafka_json(self) -> str:
        return json.dumps(self.librdkafka())

    def python(self) -> dict[str, Any]:
        """For aiokafka, kafka-python and our own consumer."""
        return self._python() | {"ssl_context": ssl.create_default_context(cafile=self.authority)}

    def python_json(self) -> str:
        """The same for another process, with a file's name in the place of the TLS context."""
        return json.dumps(self._python() | {"ssl_cafile": str(self.authority)})

    def _python(self) -> dict[str, str]:
        return {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": self.mechanism,
            "sasl_plain_username": self.user,
            "sasl_plain_password": self.password,
        }

    def kafkajs_json(self) -> str:
        return json.dumps(
            {
                "ssl": {"ca": [self.authority.read_text()]},
                "sasl": {
                    "mechanism": self.mechanism.lower(),
                    "username": self.user,
                    "password": self.password,
                },
            }
        )

    def go_json(self) -> str:
        """What tests/interop/foreign/go/login reads."""
        return json.dumps(
            {
                "user": self.user,
                "password": self.password,
                "mechanism": self.mechanism,
                "authority": str(self.authority),
            }
        )
