"""Two instances of a schema registry elect the one that writes by a group, and keep what they know
in a compacted topic: whichever is killed, one of them writes, and nothing is lost.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from tests.interop.electing_registry import TOPIC, RegistryProcess
from tests.interop.trouble import Scene, scene
from tests.support.brokers.kafka_server import KafkaServer
from tests.support.brokers.kohort_server import KohortServer
from tests.support.clients.confluent_client import ConfluentClient, admin_client, create_topics
from tests.support.waiting import wait_until

SUBJECTS = 3
VERSIONS = 5
"""Versions of each subject in a round: the earlier ones are for compaction to remove."""
COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.ms": "500",
    "max.compaction.lag.ms": "500",
}


class Registries:
    def __init__(self, stage: Scene, stack: ExitStack) -> None:
        self.stage = stage
        self.instances = [RegistryProcess(stage.bootstrap, name) for name in ("a", "b")]
        for one in self.instances:
            stack.callback(one.close)
        self.alive = list(self.instances)
        self.kept: dict[str, str] = {}
        self.ids: list[int] = []
        self._versions = count()

    def wait_writer(self) -> RegistryProcess:
        """Until those that live agree, and on one of themselves."""

        def agreed() -> bool:
            told = {one.writer() for one in self.alive}
            return len(told) == 1 and told <= {one.name for one in self.alive}

        wait_until(agreed, lambda: f"{[one.writer() for one in self.alive]}", timeout_s=60)
        (name,) = {one.writer() for one in self.alive}
        return next(one for one in self.alive if one.name == name)

    def register(self) -> None:
        """A round of new versions, at the writer; the other one refuses."""
        for _ in range(VERSIONS):
            version = next(self._versions)
            for subject in range(SUBJECTS):
                name, schema = f"subject-{subject}", f"version {version}"
                number = self.wait_writer().register(name, schema)
                assert number is not None
                self.ids.append(number)
                self.kept[name] = schema
        for one in self.alive:
            assert one.writer() == one.name or one.register("none", "none") is None

    def kill_writer(self) -> RegistryProcess:
        killed = self.wait_writer()
        killed.kill()
        self.alive.remove(killed)
        return killed

    def is_compacted(self) -> bool:
        """Whether most versions are gone, a round later: it may begin a segment, which lets those
        before it be compacted.
        """
        self.register()
        left = ConfluentClient(self.stage.bootstrap).read_to_end(TOPIC, "read_uncommitted")
        return len(left) < len(self.ids) // 2

    def check(self) -> None:
        for one in self.alive:
            assert one.schemas() == self.kept
        assert self.ids == list(range(1, len(self.ids) + 1)), "an id was given twice"


@pytest.fixture
def registries(
    tmp_path: Path, own_broker_kind: type[KafkaServer | KohortServer]
) -> Iterator[Registries]:
    more = {"log.cleaner.backoff.ms": "200", "log.retention.check.interval.ms": "200"}
    with scene(tmp_path, own_broker_kind, more=more) as stage, ExitStack() as stack:
        admin = admin_client(stage.bootstrap)
        create_topics(admin, NewTopic(TOPIC, 1, 1, config=COMPACTED))
        yield Registries(stage, stack)


@pytest.mark.long
def test_one_instance_writes_whichever_is_killed_and_every_schema_is_there(
    registries: Registries,
) -> None:
    registries.register()
    killed = registries.kill_writer()
    registries.register()
    registries.check()

    registries.stage.server.kill()
    registries.stage.server.start()
    registries.register()
    killed.restart()
    registries.alive.append(killed)
    registries.register()
    registries.check()

    wait_until(registries.is_compacted, "the earlier versions to be removed", timeout_s=60)
    for one in registries.alive:
        one.restart()
    registries.stage.server.stop()
    registries.stage.server.start()
    registries.wait_writer()
    registries.check()
