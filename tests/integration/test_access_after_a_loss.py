"""Access rules after damage to the metadata: nothing is open that might have been closed."""

import logging
import re
from pathlib import Path

import pytest

from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.core.security.session import Principal, Session
from tests.integration.test_access import authorizer
from tests.integration.test_tls import set_at_broker
from tests.support.brokers.broker_thread import BrokerThread

SETTINGS = {
    "authorizer.class.name": "kohort",
    # Who comes without a name here is the administrator.
    "super.users": "User:ANONYMOUS",
    "allow.everyone.if.no.acl.found": "true",
}
ALICE = Session(Principal("User", "alice"), "127.0.0.1", "PLAINTEXT")


def may_read(broker: BrokerThread) -> bool:
    found = authorizer(broker)
    return broker.call(lambda: found.allows(ALICE, Operation.READ, ResourceType.TOPIC, "t"))


def damage(directory: Path) -> None:
    """Spoil both copies, so that rows may be gone without a trace."""
    for name in ("metadata.db", "metadata-mirror.db"):
        path = directory / name
        data = bytearray(path.read_bytes())
        data[4_096:] = b"\xff" * (len(data) - 4_096)
        path.write_bytes(data)


def test_only_super_users_may_do_anything_until_the_loss_is_confirmed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with BrokerThread(tmp_path, overrides=SETTINGS) as broker:
        assert may_read(broker)
    damage(tmp_path)
    caplog.set_level(logging.ERROR)
    with BrokerThread(tmp_path, overrides=SETTINGS) as broker:
        assert not may_read(broker)
    found = re.search(r"kohort\.access\.loss\.confirmed=([0-9a-f]+)", caplog.text)
    assert found is not None
    # It is remembered: a restart alone confirms nothing.
    with BrokerThread(tmp_path, overrides=SETTINGS) as broker:
        assert not may_read(broker)
        set_at_broker(broker, "kohort.access.loss.confirmed", "anything")
        assert not may_read(broker)
        set_at_broker(broker, "kohort.access.loss.confirmed", found[1])
        assert may_read(broker)
    with BrokerThread(tmp_path, overrides=SETTINGS) as broker:
        assert may_read(broker)
