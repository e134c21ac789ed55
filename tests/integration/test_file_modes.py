"""Files of a broker are readable for the account that it runs as, and no other."""

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record
from tests.support import messages as m
from tests.support.brokers.broker_thread import BrokerThread
from tests.support.network.requests import create_topics, produce_request
from tests.support.network.wire import RawClient


@pytest.fixture(autouse=True)
def _a_umask_that_forbids_nothing() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def write_a_record(port: int, topic: str) -> None:
    with RawClient(port) as client:
        create_topics(client, topic)
        produce = produce_request(topic, encode_batch([Record(None, b"secret")]))
        answer = client.call(produce, 9, m.ProduceResponse)
        assert answer.responses[0].partition_responses[0].error_code == 0


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def open_to_others(directory: Path) -> list[tuple[str, str]]:
    """Paths that another than the owner may read, write or enter, `directory` itself left out."""
    found = [one for one in directory.rglob("*") if mode(one) & 0o077]
    return [(str(one.relative_to(directory)), oct(mode(one))) for one in found]


def test_a_new_installation_is_its_owners_alone(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with BrokerThread(data) as broker:
        write_a_record(broker.port, "orders")
        assert open_to_others(data) == []
    assert mode(data) == 0o700
    assert open_to_others(data) == []
    assert mode(data / "orders-0") == 0o700
    assert {mode(one) for one in (data / "orders-0").iterdir()} == {0o600}


def test_what_an_operator_made_stays_as_he_made_it(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with BrokerThread(data) as broker:
        write_a_record(broker.port, "orders")
    log = data / "orders-0" / f"{0:020}.log"
    for path in (data, log.parent):
        path.chmod(0o750)
    log.chmod(0o640)
    with BrokerThread(data) as broker:
        write_a_record(broker.port, "payments")
    assert [mode(one) for one in (data, log.parent, log)] == [0o750, 0o750, 0o640]
    assert mode(data / "payments-0") == 0o700


@pytest.mark.parametrize("left", ["metadata.db", "metadata.db-wal"])
def test_files_with_credentials_are_closed_even_if_they_were_opened(
    tmp_path: Path, left: str
) -> None:
    after_a_crash = tmp_path / "after a crash"
    with BrokerThread(tmp_path / "data") as broker:
        write_a_record(broker.port, "orders")
        shutil.copytree(tmp_path / "data", after_a_crash)
    assert (after_a_crash / left).stat().st_size
    (after_a_crash / left).chmod(0o644)
    with BrokerThread(after_a_crash):
        databases = list(after_a_crash.glob("*.db*"))
        assert after_a_crash / left in databases
        assert {mode(one) for one in databases} == {0o600}
