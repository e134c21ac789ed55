"""A real Kafka with a listener for every way to be secure, and the users that may use them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.support.brokers.certificates import Authority
from tests.support.brokers.kafka_server import KafkaServer
from tests.support.brokers.server_process import free_port

USER: Final = "alice"
PASSWORD: Final = "alice's secret = 100%"

SESSION_MS: Final = 2_500
"""How long a session of the listener SHORT may last (connections.max.reauth.ms)."""

LISTENERS: Final = {
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "SASL_SSL": "SASL_SSL",
    "SSL": "SSL",
    "MUTUAL": "SSL",
    "SHORT": "SASL_PLAINTEXT",
}
"""Besides PLAINTEXT, by name; MUTUAL wants a certificate from the client, too."""

_MECHANISMS: Final = {
    # Not all, so that there is one to ask for in vain.
    "SASL_PLAINTEXT": ("PLAIN", "SCRAM-SHA-256"),
    "SASL_SSL": ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
    "SHORT": ("SCRAM-SHA-256",),
}
_MODULES: Final = "org.apache.kafka.common.security"


class SecureKafka(KafkaServer):
    """`ports` has that of each listener, PLAINTEXT included."""

    def __init__(self, directory: Path, *, overrides: Mapping[str, str] | None = None) -> None:
        super().__init__(directory, overrides=overrides)
        self.authority = Authority(directory / "certificates")
        self.ports = {"PLAINTEXT": self.port, **{name: free_port() for name in LISTENERS}}
        controller = self.properties["controller.quorum.voters"].partition("@")[2]
        secure = secure_properties(self.ports, self.authority)
        secure["listeners"] += f",CONTROLLER://{controller}"
        secure["listener.security.protocol.map"] += ",CONTROLLER:PLAINTEXT"
        self.properties |= secure | dict(overrides or {})
        self.format_arguments = [
            word
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
            for word in ("--add-scram", f"{mechanism}=[name={USER},password={PASSWORD}]")
        ]


def secure_properties(ports: Mapping[str, int], authority: Authority) -> dict[str, str]:
    # The certificate is for 127.0.0.1; 127.0.0.2 reaches the same listeners.
    listeners = [f"{name}://0.0.0.0:{port}" for name, port in ports.items()]
    advertised = [f"{name}://127.0.0.1:{port}" for name, port in ports.items()]
    protocols = {"PLAINTEXT": "PLAINTEXT", **LISTENERS}
    found = {
        "listeners": ",".join(listeners),
        "advertised.listeners": ",".join(advertised),
        "listener.security.protocol.map": ",".join(
            f"{name}:{protocol}" for name, protocol in protocols.items()
        ),
        # Who asks first waits until all are made.
        "offsets.topic.num.partitions": "5",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.issue("broker", "IP:127.0.0.1")),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.certificate),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.short.scram-sha-256.connections.max.reauth.ms": str(SESSION_MS),
    }
    for listener, mechanisms in _MECHANISMS.items():
        prefix = f"listener.name.{listener.lower()}"
        found[f"{prefix}.sasl.enabled.mechanisms"] = ",".join(mechanisms)
        for mechanism in mechanisms:
            module = f"{_MODULES}.scram.ScramLoginModule required"
            if mechanism == "PLAIN":
                module = f'{_MODULES}.plain.PlainLoginModule required user_{USER}="{PASSWORD}"'
            found[f"{prefix}.{mechanism.lower()}.sasl.jaas.config"] = f"{module};"
    return found
