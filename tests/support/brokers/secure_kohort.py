"""Kohort with the listeners, settings and users of `SecureKafka`."""

from collections.abc import Mapping
from pathlib import Path

from kohort.admin.users import hashed
from kohort.cli.stopped_broker import stopped_broker
from tests.support.brokers.certificates import Authority
from tests.support.brokers.kohort_server import KohortServer
from tests.support.brokers.secure_kafka import LISTENERS, PASSWORD, USER, secure_properties
from tests.support.brokers.server_process import free_port


class SecureKohort(KohortServer):
    """`ports` has that of each listener, PLAINTEXT included."""

    def __init__(self, directory: Path, *, overrides: Mapping[str, str] | None = None) -> None:
        super().__init__(directory, overrides=overrides)
        self.authority = Authority(directory / "certificates")
        self.ports = {"PLAINTEXT": self.port, **{name: free_port() for name in LISTENERS}}
        self.overrides |= secure_properties(self.ports, self.authority) | dict(overrides or {})
        with stopped_broker(str(self.data)) as place:
            place.set_password(USER, hashed(PASSWORD, ["SCRAM-SHA-256", "SCRAM-SHA-512"], 4_096))
