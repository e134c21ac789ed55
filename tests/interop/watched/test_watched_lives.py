"""What ``kohort watch`` concludes about groups of a real Kafka, against the log of its broker."""

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition

from tests.interop.watched.lives import GroupLife, Life, Ways, ways_of
from tests.support.brokers.kafka_server import EarlierKafkaServer, KafkaServer, OldestKafkaServer
from tests.support.clients.confluent_client import admin_client
from tests.support.groups.kafka_log import Conclusion, Json, KafkaLog, causes, fates, score
from tests.support.waiting import wait_until

SETTINGS = {
    "offsets.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "500",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "10000",
    "group.consumer.heartbeat.interval.ms": "3000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
}
LOG_LEVEL = "-Dkohort.test.log.level=INFO"
DOWN_S = (2.0, 15.0)
"""How long a broker is down."""
FLUSHED_S = 4.0
"""After so long, a watcher has written what it has seen."""


@contextmanager
def watcher(bootstrap: str, history: Path) -> Iterator[None]:
    """Follow all groups."""
    command = [sys.executable, "-m", "kohort.cli", "watch", "--history", str(history)]
    with (
        history.with_suffix(".err").open("wb") as errors,
        subprocess.Popen(
            [*command, "--bootstrap-server", bootstrap], stdout=subprocess.DEVNULL, stderr=errors
        ) as process,
    ):
        try:
            yield
        finally:
            process.terminate()


def watch_once(bootstrap: str, history: Path) -> None:
    """Write the history of all groups, afterwards."""
    command = [sys.executable, "-m", "kohort.cli", "watch", "--once", "--history", str(history)]
    subprocess.run(
        [*command, "--bootstrap-server", bootstrap], check=True, stdout=subprocess.DEVNULL
    )


class Watched:
    """A life, and two histories of it: of a watcher that followed it, and of one afterwards."""

    def __init__(self, server: KafkaServer, seed: str, ways: Sequence[Ways]) -> None:
        self.server = server
        self._chance = random.Random(seed)
        self._directory = server.directory
        log = self._directory / "members.log"
        self.groups = [
            GroupLife(f"g{number}", one, seed, server.bootstrap, log)
            for number, one in enumerate(ways)
        ]
        self.histories: dict[str, list[Json]] = {}

    def run(self, seconds: float, restarts_s: float = 0.0) -> None:
        """Live, with a broker that is killed every `restarts_s`."""
        self._create_offsets_topic()
        life = Life(self.server.bootstrap, self.groups)
        if restarts_s:
            times = range(1, int(seconds / restarts_s))
            life.meanwhile = [(restarts_s * number, self._restart_broker) for number in times]
        live, afterwards = self._directory / "live", self._directory / "afterwards"
        try:
            for group in self.groups:
                group.create()
            with watcher(self.server.bootstrap, live):
                life.run(seconds)
                time.sleep(FLUSHED_S)
        finally:
            life.end()
            (self._directory / "acts.jsonl").write_text(life.acts())
        watch_once(self.server.bootstrap, afterwards)
        self.histories = {
            path.name: [
                json.loads(line) for line in (path / "history.jsonl").read_text().splitlines()
            ]
            for path in (live, afterwards)
        }

    def _create_offsets_topic(self) -> None:
        offset = ConsumerGroupTopicPartitions("first", [TopicPartition("none", 0, 1)])
        admin = admin_client(self.server.bootstrap)

        def is_there() -> bool:
            (done,) = admin.alter_consumer_group_offsets([offset]).values()
            try:
                done.result(10)
            except (KafkaException, TimeoutError):  # Its coordinator is just being created.
                return False
            return True

        wait_until(is_there, "a coordinator")

    def _restart_broker(self) -> None:
        self.server.kill()
        time.sleep(self._chance.uniform(*DOWN_S))
        self.server.start()

    @property
    def log(self) -> KafkaLog:
        with self.server.log_file.open(errors="replace") as file:
            return KafkaLog(file)


def rows(watched: Watched) -> dict[str, list[Conclusion]]:
    """Return the conclusions by what they are about."""
    found: dict[str, list[Conclusion]] = {}
    commits = {group.name for group in watched.groups if group.ways.commit_ms}
    log = watched.log
    for name, history in watched.histories.items():
        for group in watched.groups:
            records = [record for record in history if record["group"] == group.name]
            committing = "" if group.name in commits else ", no commits"
            for about, conclusions in (
                ("fates", fates(records, log)),
                ("causes", causes(records, log)),
            ):
                found.setdefault(f"{about} {name}{committing}", []).extend(conclusions)
    return found


LIKELY_WRONG = {"live": 0.03, "afterwards": 0.06}
"""Largest part of the likely conclusions that may be wrong."""


def check(found: dict[str, list[Conclusion]]) -> None:
    """Raise AssertionError if anything certain is wrong."""
    for about, conclusions in found.items():
        wrong = [one for one in conclusions if one.certainty == "certain" and not one.is_right]
        assert not wrong, about


def check_rates(found: dict[str, list[Conclusion]]) -> None:
    """Raise AssertionError if too much is wrong, or too little is known by who follows a group."""
    for name, allowed in LIKELY_WRONG.items():
        of_name = {about: ones for about, ones in found.items() if name in about}
        total = score(one for ones in of_name.values() for one in ones)
        assert total["likely", False] <= allowed * (total["likely", True] + total["likely", False])
    total = score(
        one
        for about, ones in found.items()
        if "live" in about and "no commits" not in about
        for one in ones
    )
    unclear = total["unclear", True] + total["unclear", False]
    assert unclear <= 0.25 * total.total()


def table(title: str, found: dict[str, list[Conclusion]]) -> str:
    """Return what was right and wrong."""
    lines = [f"{title:<34}{'certain':>14}{'likely':>14}{'unclear':>14}   (right/wrong)"]
    for about, conclusions in found.items():
        total = score(conclusions)
        cells = [
            f"{total[certainty, True]}/{total[certainty, False]}"
            for certainty in ("certain", "likely", "unclear")
        ]
        lines.append(f"  {about:<32}" + "".join(f"{cell:>14}" for cell in cells))
    return "\n".join(lines)


def ways_for(chance: random.Random, protocols: Sequence[str]) -> list[Ways]:
    ways = [
        ways_of(chance, ("librdkafka",), 4),
        ways_of(chance, ("librdkafka", "kohort"), 6),
        ways_of(chance, ("aiokafka",), 4),
        ways_of(chance, ("librdkafka", "aiokafka"), 12),
        ways_of(chance, ("java",), 3),
        ways_of(chance, ("java", "librdkafka"), 4),
        ways_of(chance, ("kohort",), 3, records_s=20.0),
        ways_of(chance, ("librdkafka",), 3, commit_ms=0),
    ]
    if "consumer" in protocols:
        ways += [
            ways_of(chance, ("librdkafka",), 4, protocol="consumer", poll_ms=15_000),
            ways_of(chance, ("java",), 3, protocol="consumer", poll_ms=30_000),
        ]
    return ways


KINDS = {"4.4.0": KafkaServer, "3.9.1": EarlierKafkaServer, "2.8.2": OldestKafkaServer}


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("version", KINDS)
def test_what_it_concludes_of_a_long_life_is_nearly_always_right(
    version: str,
    watched_minutes: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    seed = f"{random.SystemRandom().randrange(10**6)}.{version}"
    server = KINDS[version](tmp_path, overrides=SETTINGS)
    server.extra_java_options = [LOG_LEVEL]
    protocols = ("classic", "consumer") if version == "4.4.0" else ("classic",)
    ways = ways_for(random.Random(seed), protocols)
    with server:
        watched = Watched(server, seed, ways)
        # The early KRaft of 2.8 does not always start again after a kill.
        watched.run(60 * watched_minutes, restarts_s=0 if version == "2.8.2" else 240)
    found = rows(watched)
    with capsys.disabled():
        print(f"\n{table(f'Kafka {version}, {watched_minutes} min, {seed}', found)}")
        for about, conclusions in found.items():
            for one in conclusions:
                if not one.is_right and one.certainty != "unclear":
                    print(f"{about}: {one.certainty} {one.said}, in truth {one.truth}")
                    print(json.dumps(one.record))
    check(found)
    check_rates(found)
