"""Kafka Streams through TLS and SCRAM, with the rules of docs/access.md and nothing else."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec

from tests.interop.least_rights.checks import check_needed, check_suffice, each_need
from tests.interop.least_rights.needs import is_denied
from tests.interop.least_rights.visitors import VALUES, Client, Guarded, Names, ProgramResult
from tests.support.clients.confluent_client import ConfluentClient, admin_client
from tests.support.clients.login import Login
from tests.support.processes.java_process import JavaProcess
from tests.support.waiting import wait_until

PURGE_MS: Final = 200
LEAST: Final = "Kafka Streams"
BESIDES: Final = "Kafka Streams with `exactly_once_v2`, besides"


class Application:
    """One that counts words by a repartition topic and a changelog."""

    def __init__(self, insider: str, names: Names) -> None:
        self._insider = insider
        """Where the tests ask what it has done."""
        self._names = names

    def has_counted(self) -> bool:
        """Each value is a word of its own."""
        found = ConfluentClient(self._insider).consume(self._names["OUTPUT"], 10_000, timeout_s=1)
        return {record.key for record in found} == set(VALUES)

    def has_purged(self) -> bool:
        """What has been repartitioned is deleted."""
        admin = admin_client(self._insider)
        place = TopicPartition(f"{self._names['APPLICATION']}-by-word-repartition", 0)
        (start,) = admin.list_offsets({place: OffsetSpec.earliest()}).values()
        return bool(start.result(30).offset >= len(VALUES))


def works(insider: str, guarantee: str) -> Callable[[Login, Names, Path], ProgramResult]:
    def work(login: Login, names: Names, directory: Path) -> ProgramResult:
        config = {
            "bootstrap.servers": login.bootstrap,
            "application.id": names["APPLICATION"],
            "processing.guarantee": guarantee,
            "commit.interval.ms": 100,
            "repartition.purge.interval.ms": PURGE_MS,
            "num.stream.threads": 1,
            "session.timeout.ms": 3_000,
            "heartbeat.interval.ms": 300,
            **login.java(),
        }
        log = directory / "streams.log"
        application = Application(insider, names)
        with JavaProcess("WordCount", "apps", log=log) as instance:
            try:
                instance.call(
                    op="start", input=names["INPUT"], output=names["OUTPUT"], config=config
                )
                return until_told(instance, application, log)
            finally:
                instance.kill()

    return work


def until_told(instance: JavaProcess, application: Application, log: Path) -> ProgramResult:
    """Denied, or at its work for long enough to have purged what it has worked on."""

    def said() -> str:
        return log.read_text(errors="replace")

    def is_dead() -> bool:
        return bool(instance.call(op="state")["state"] == "ERROR")

    wait_until(
        lambda: is_denied(said()) or is_dead() or application.has_counted(),
        lambda: f"neither done nor denied: {said()[-3_000:]}",
    )
    if not application.has_counted():
        return ProgramResult(is_done=False, said=said())
    try:
        wait_until(application.has_purged, "a purge", timeout_s=10)
    except AssertionError:
        return ProgramResult(is_done=False, said=said())
    return ProgramResult(is_done=True, said=said())


def once(insider: str) -> Client:
    return Client(LEAST, works(insider, "at_least_once"), filled=["INPUT"], empty=["OUTPUT"])


def exactly_once(insider: str) -> Client:
    work = works(insider, "exactly_once_v2")
    return Client(BESIDES, work, filled=["INPUT"], empty=["OUTPUT"], besides=LEAST)


pytestmark = pytest.mark.long


@pytest.mark.parametrize("kind", [once, exactly_once])
def test_streams_needs_no_more_than_the_document_says(
    guarded: Guarded, kind: Callable[[str], Client], tmp_path: Path
) -> None:
    check_suffice(guarded, kind(guarded.broker.bootstrap), "SCRAM-SHA-256", tmp_path)


@each_need({"streams": LEAST})
def test_streams_is_denied_without_any_of_its_rules(
    guarded: Guarded, name: str, number: int, tmp_path: Path
) -> None:
    del name
    check_needed(guarded, once(guarded.broker.bootstrap), number, tmp_path)


def test_streams_is_denied_exactly_once_without_its_transactional_ids(
    guarded: Guarded, tmp_path: Path
) -> None:
    check_needed(guarded, exactly_once(guarded.broker.bootstrap), 0, tmp_path)
