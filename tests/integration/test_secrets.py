"""Secrets are in no log, description, metric or debugging text, whichever client fails at what."""

import logging
import secrets
import urllib.request
from pathlib import Path

import pytest

from kohort.admin.users import hashed
from kohort.broker.core.security.sasl import Credential
from kohort.broker.security.users_file import credential_line
from kohort.protocol.scram import keys_of
from tests.support import messages as m
from tests.support.brokers.broker_thread import BrokerThread
from tests.support.brokers.certificates import Authority
from tests.support.brokers.server_process import free_port
from tests.support.network.sasl import log_in
from tests.support.network.wire import RawClient
from tests.support.waiting import wait_until

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def line_of(password: str) -> str:
    """The line of a user of that password in a file of users."""
    one = hashed(password, ["SCRAM-SHA-256"], 4_096)[0]
    credential = Credential(one.salt, keys_of("sha256", one.salted), one.iterations)
    return credential_line(f"user-{password[::-1]}", one.mechanism, credential)


def told_at(port: int, user: str, password: str) -> str:
    with RawClient(port) as client:
        return repr(log_in(client, user, password))


def test_no_planted_secret_is_ever_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    planted = [secrets.token_hex(12) for _ in range(120)]
    given, tried, stored = planted[:30], planted[30:60], planted[60:100]
    in_file, lines = planted[100:110], [line_of(one) for one in planted[100:]]
    file = tmp_path / "users"
    file.write_text("\n".join(lines[:10]))
    ports = {name: free_port() for name in ("plain", "sasl", "http")}
    authority = Authority(tmp_path / "certificates")
    key = (authority.issue("broker", "IP:127.0.0.1")).read_text()
    users = " ".join(f'user_u{number}="{one}"' for number, one in enumerate(given))
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{ports['plain']},"
        f"SASL_PLAINTEXT://127.0.0.1:{ports['sasl']}",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "sasl.jaas.config": f"{PLAIN} required {users};",
        "connection.failed.authentication.delay.ms": "1",
        "ssl.keystore.location": str(authority.directory / "broker.pem"),
        "kohort.metrics.port": str(ports["http"]),
        "kohort.users.file": str(file),
    }
    told = []
    with BrokerThread(tmp_path / "data", overrides=settings) as broker:
        # Ten failures in ten seconds make the next ones wait.
        told += [told_at(ports["sasl"], "u0", one) for one in tried[:4]]
        told += [told_at(ports["sasl"], one, "x") for one in ("u1", "nobody")]
        told += [told_at(ports["sasl"], f"u{number}", one) for number, one in enumerate(given)]
        told += [told_at(ports["sasl"], f"user-{one[::-1]}", one) for one in in_file]
        # A password is written where a line should be.
        file.write_text("\n".join([*lines, f"mallory:{planted[110]}", planted[111]]))
        broker.call(broker.broker.listeners.reload_soon)
        wait_until(lambda: "line 21" in caplog.text, "the file to be read")
        with RawClient(ports["plain"]) as admin:
            made = [
                m.ScramCredentialUpsertion(
                    name=f"s{number}",
                    mechanism=1,
                    iterations=4_096,
                    salt=one[:16].encode(),
                    salted_password=(one + one)[:32].encode(),
                )
                for number, one in enumerate(stored)
            ]
            change = m.AlterUserScramCredentialsRequest(deletions=[], upsertions=made)
            told.append(repr(admin.call(change, 0, m.AlterUserScramCredentialsResponse)))
            everybody = m.DescribeUserScramCredentialsRequest(users=None)
            told.append(repr(admin.call(everybody, 0, m.DescribeUserScramCredentialsResponse)))
            resource = m.DescribeConfigsResource(
                resource_type=4, resource_name="1", configuration_keys=None
            )
            asked = m.DescribeConfigsRequest(
                resources=[resource], include_synonyms=True, include_documentation=True
            )
            told.append(repr(admin.call(asked, 4, m.DescribeConfigsResponse)))
        with urllib.request.urlopen(f"http://127.0.0.1:{ports['http']}/metrics") as page:
            told.append(page.read().decode())
        told += [repr(broker.broker.config), repr(broker.broker.services)]
        told += [repr(one) for one in broker.broker.network._connections]
    everything = "\n".join([*told, caplog.text])
    assert "line 21: it is not name:mechanism" in everything
    salts = [one[:16] for one in stored]
    keys = [part for line in lines for part in line.split("$")[2:]]
    assert [one for one in (*planted, *salts, *keys) if one in everything] == []
    assert key.splitlines()[1] not in everything
    assert (tmp_path / "data" / "metadata.db").stat().st_mode & 0o077 == 0
