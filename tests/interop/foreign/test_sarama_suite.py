"""sarama's own tests of brokers, as a user through TLS and SASL: what passes on a Kafka passes on
ours.
"""

import json
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

import pytest

from tests.interop.foreign.suites import sarama_tests
from tests.support.brokers.secure_kafka import PASSWORD, USER, SecureKafka
from tests.support.brokers.secure_kohort import SecureKohort

SETTINGS: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    # As sarama's own environment has them.
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "transaction.state.log.num.partitions": "5",
}


class NoTrouble(BaseHTTPRequestHandler):
    """Answers for Toxiproxy, before brokers that nothing is before: every proxy is there, and
    none makes trouble.
    """

    def do_GET(self) -> None:
        proxy = {"name": self.path.rpartition("/")[2], "enabled": True}
        self._answer(200, json.dumps(proxy).encode())

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self._answer(204 if self.path == "/reset" else 404, b"")

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        if body:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def toxiproxy() -> Iterator[str]:
    """The address of such a one."""
    with ThreadingHTTPServer(("127.0.0.1", 0), NoTrouble) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.mark.long
@pytest.mark.timeout(0)
def test_sarama(tmp_path: Path) -> None:
    program, names = sarama_tests()
    with SecureKafka(tmp_path / "kafka", overrides=SETTINGS) as kafka:
        theirs = passed(program, names, kafka)
    with SecureKohort(tmp_path / "kohort", overrides=SETTINGS) as kohort:
        ours = passed(program, names, kohort)
    print(len(theirs), "passed on Kafka,", len(ours), "on ours")
    assert theirs <= ours, sorted(theirs - ours)
    assert {"TestFuncAdminQuotas", "TestFuncTxnProduce", "TestFuncConsumerGroupFuzzy"} <= theirs


def passed(program: Path, names: list[str], broker: SecureKohort | SecureKafka) -> set[str]:
    """Names of sarama's tests that pass on that broker."""
    with toxiproxy() as address:
        own = {
            "TOXIPROXY_ADDR": address,
            "KAFKA_VERSION": "4.0.0",
            "SARAMA_BROKER": f"127.0.0.1:{broker.ports['SASL_SSL']}",
            "SARAMA_AUTHORITY": str(broker.authority.certificate),
            "SARAMA_USER": USER,
            "SARAMA_PASSWORD": PASSWORD,
        }
        found = subprocess.run(
            [program, "-test.v", "-test.timeout=20m", f"-test.run=^({'|'.join(names)})$"],
            cwd=program.parent,
            env=os.environ | own,
            check=False,
            capture_output=True,
            text=True,
        )
    print(found.stdout[-20_000:], found.stderr[-4_000:])
    return set(re.findall(r"^--- PASS: (\w+)", found.stdout, re.MULTILINE))
