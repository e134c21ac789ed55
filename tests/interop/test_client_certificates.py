"""The clients that a bare `ssl.client.auth` wants certificates of, in Kafka and in Kohort."""

import socket
import ssl
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from kohort.protocol.messages.api_versions import ApiVersionsRequest
from tests.support.brokers.on_both import on_both
from tests.support.brokers.secure_kafka import SecureKafka
from tests.support.brokers.secure_kohort import SecureKohort
from tests.support.network.wire import framed, request_body

ASKS = {"ssl.client.auth": "required"}


class AskingKafka(SecureKafka):
    """A Kafka whose bare setting asks for certificates."""

    def __init__(self, directory: Path, *, overrides: Mapping[str, str] | None = None) -> None:
        super().__init__(directory, overrides=ASKS | dict(overrides or {}))


class AskingKohort(SecureKohort):
    """Kohort likewise."""

    def __init__(self, directory: Path, *, overrides: Mapping[str, str] | None = None) -> None:
        super().__init__(directory, overrides=ASKS | dict(overrides or {}))


broker = on_both(AskingKafka, AskingKohort, long=AskingKafka)


def is_served(broker: AskingKafka | AskingKohort, listener: str) -> bool:
    """Whether a client without a certificate is."""
    context = ssl.create_default_context(cafile=str(broker.authority.certificate))
    request = ApiVersionsRequest(client_software_name="", client_software_version="")
    address = ("127.0.0.1", broker.ports[listener])
    try:
        with (
            closing(socket.create_connection(address, timeout=30)) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as client,
        ):
            client.sendall(framed(request_body(request, 0)))
            return len(client.recv(4)) == 4
    except OSError:
        return False


def test_a_listener_with_sasl_asks_for_certificates_only_by_a_setting_of_its_own(
    broker: AskingKafka | AskingKohort,
) -> None:
    assert not is_served(broker, "SSL")
    assert not is_served(broker, "MUTUAL")
    assert is_served(broker, "SASL_SSL")
