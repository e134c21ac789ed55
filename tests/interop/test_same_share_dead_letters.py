"""Dead-letter queues of share groups (KIP-1191): both brokers append the same dead letters, and
store the same states of their records.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import pytest

from kohort.protocol.messages import incremental_alter_configs as altering
from kohort.protocol.records.batch import CompressionType, split_batches
from kohort.protocol.records.record import Record, decode_records
from tests.interop.same_answers import scenes
from tests.interop.same_answers.each import Value
from tests.interop.same_answers.pair import Pair
from tests.interop.same_answers.scenes import TIME_MS, Topic, fetch_request, fresh_name
from tests.interop.same_answers.share import (
    ACCEPT,
    APPLIED_S,
    GAP,
    GROUP_CONFIGS,
    REJECT,
    RELEASE,
    SHORT_MS,
    create_topic,
    produce,
)
from tests.interop.same_answers.share_differences import CHECKED_DEAD_LETTER_TOPIC
from tests.interop.same_answers.share_scenes import Scene
from tests.interop.same_answers.transactions import commit_and_abort
from tests.interop.test_same_share_records import state_of
from tests.support.waiting import wait_until

ENABLE: Final = "errors.deadletterqueue.group.enable"
TOPIC_NAME: Final = "errors.deadletterqueue.topic.name"
AUTO_CREATE: Final = "errors.deadletterqueue.auto.create.topics.enable"
BROKER_CONFIGS: Final = 4
AVAILABLE, ARCHIVING, ARCHIVED = 0, 3, 4
RECENT_MS: Final = 600_000

Letters = list[tuple[int, Record]]
"""With their partitions."""
Life = list[tuple[int, int]]
"""States that were stored of one record, with its delivery counts."""


class DeadLetterScene(Scene):
    """A share group with a dead-letter topic."""

    def __init__(
        self,
        pair: Pair,
        *sizes: int,
        topic: Mapping[str, str] | None = None,
        partitions: int = 1,
        name: str = "",
        **configs: str,
    ) -> None:
        """`topic` are configs of the dead-letter topic; there is none if it has a `name`."""
        self.letters_name = name or fresh_name("dlq.letters")
        if not name:
            create_topic(
                pair,
                partitions=partitions,
                name=self.letters_name,
                configs={ENABLE: "true", **(topic or {})},
            )
        super().__init__(pair, *sizes, **configs)
        self.count = partitions
        # Only now: the topic of the records is not a dead-letter topic.
        self.group.configure(**{TOPIC_NAME.replace(".", "_"): self.letters_name})
        self.log = state_of(pair)

    def letters(self, side: int) -> Letters:
        """Return what is in the dead-letter topic, without times, which are recent."""
        request = fetch_request(
            Topic(self.letters_name, bytes(16)), dict.fromkeys(range(self.count), 0)
        )
        answer = self.pair.line.ask_alone(self.pair.sides[side], request, 12)
        found: Letters = []
        for partition in sorted(
            answer.responses[0].partitions, key=lambda one: one.partition_index
        ):
            for header, batch in split_batches(bytes(partition.records or b"")):
                for record in decode_records(batch, header):
                    assert 0 <= time.time() * 1_000 - record.timestamp < RECENT_MS
                    found.append((partition.partition_index, record._replace(timestamp=-1)))
        return found

    def lives(self, side: int) -> dict[int, Life]:
        """Return the stored states of each record, in order and without repetitions."""
        lives: dict[int, Life] = {}
        for _, _, value in self.log.records(self.group.id)[side]:
            for batch in value["state_batches"]:
                stored = (batch["delivery_state"], batch["delivery_count"])
                for offset in range(batch["first_offset"], batch["last_offset"] + 1):
                    life = lives.setdefault(offset, [])
                    if stored not in life:
                        life.append(stored)
        return lives

    def compare(self, count: int = 0) -> tuple[Letters, dict[int, Life]]:
        """Wait until there are so many dead letters, and nothing is Archiving here.

        Returns the dead letters, and the states of the records.
        """
        seen: list[tuple[dict[int, Life], Letters]] = []

        def is_alike() -> bool:
            # Lives first: a record is Archived after its dead letter is appended.
            seen[:] = [(self.lives(side), self.letters(side)) for side in range(2)]
            (theirs, kafkas), (lives, letters) = seen
            is_over = all(life[-1][0] != ARCHIVING for life in lives.values())
            is_same = letters == kafkas and _without_end(lives) == _without_end(theirs)
            return is_over and is_same and len(letters) >= count

        wait_until(is_alike, lambda: f"{seen[0]}\n is \n{seen[1]}", timeout_s=10)
        lives, letters = seen[1]
        return letters, lives

    def offsets(self) -> list[int]:
        """Return the offsets of the records with dead letters."""
        letters, _ = self.compare()
        return [int(dict(letter.headers)["__dlq.errors.offset"] or b"") for _, letter in letters]


def _without_end(lives: dict[int, Life]) -> dict[int, Life]:
    """Leave out that Archiving records are Archived: Kafka sometimes does not store it."""
    return {
        offset: [
            state
            for before, state in zip([None, *life], life, strict=False)
            if not (state[0] == ARCHIVED and before is not None and before[0] == ARCHIVING)
        ]
        for offset, life in lives.items()
    }


def test_rejected_records(pair: Pair) -> None:
    scene = DeadLetterScene(pair, 10, 5, share_delivery_count_limit="2")
    assert scene.fetch(scene.one) == [0, 14, 1]
    for batches in (
        [(2, 2, [REJECT])],
        [(0, 0, [REJECT]), (1, 1, [ACCEPT]), (5, 6, [REJECT, GAP])],
        [(7, 8, [REJECT])],
        [(10, 14, [REJECT])],
        [(3, 4, [RELEASE]), (9, 9, [REJECT])],
    ):
        scene.acknowledge(scene.one, *batches)
    # Archiving records hold the start, but nobody gets them.
    assert scene.fetch(scene.two) == [3, 4, 2]
    scene.acknowledge(scene.two, (3, 4, [ACCEPT]))
    assert scene.offsets() == [2, 0, 5, 7, 8, 10, 11, 12, 13, 14, 9]
    _, lives = scene.compare()
    assert lives[0] == [(ARCHIVING, 1), (ARCHIVED, 1)]
    assert lives[6] == [(ARCHIVED, 1)]


def test_records_at_the_delivery_limit(pair: Pair) -> None:
    """Released, by the end of the session, and by the end of the lock."""
    scene = DeadLetterScene(
        pair, 1, 1, 1, share_delivery_count_limit="2", share_record_lock_duration_ms="1000"
    )
    assert scene.fetch(scene.one) == [0, 2, 1]
    scene.acknowledge(scene.one, (0, 2, [RELEASE]))
    assert scene.fetch(scene.one) == [0, 2, 2]
    scene.acknowledge(scene.one, (0, 0, [RELEASE]))
    scene.one.close()
    assert scene.offsets() == [0, 1, 2]
    produce(pair, scene.topic, 2)
    assert scene.fetch(scene.two) == [3, 4, 1]
    assert scene.fetch(scene.two) == [3, 4, 2]
    _, lives = scene.compare(5)
    assert lives[4] == [(AVAILABLE, 1), (ARCHIVING, 2), (ARCHIVED, 2)]


@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.GZIP])
def test_copied_records(pair: Pair, codec: CompressionType) -> None:
    """Key and value are copied, headers and timestamps are not."""
    scene = DeadLetterScene(pair, 1, errors_deadletterqueue_copy_record_enable="true")
    records = [
        Record(b"v1", b"k1", (("own", b"header"),), timestamp=TIME_MS),
        Record(None, b"k2", timestamp=TIME_MS),
        Record(b"v3", timestamp=TIME_MS),
        Record(b"", b"", timestamp=TIME_MS),
    ]
    scenes.produce(pair, scene.topic, scenes.batch(*records, codec=codec))
    assert scene.fetch(scene.one) == [0, 4, 1]
    scene.acknowledge(scene.one, (2, 4, [REJECT]))
    scene.acknowledge(scene.one, (0, 1, [REJECT]))
    letters, _ = scene.compare()
    assert [letter[:2] for _, letter in letters] == [
        (None, b"k2"),
        (b"v3", None),
        (b"", b""),
        (b"value", b"key"),
        (b"v1", b"k1"),
    ]


def test_a_record_that_is_too_large_to_be_copied(pair: Pair) -> None:
    scene = DeadLetterScene(
        pair,
        topic={"max.message.bytes": "1000"},
        errors_deadletterqueue_copy_record_enable="true",
    )
    records = [Record(b"v" * size, timestamp=TIME_MS) for size in (700, 2_000, 500)]
    scenes.produce(pair, scene.topic, scenes.batch(*records))
    scene.fetch(scene.one)
    scene.acknowledge(scene.one, (10, 12, [REJECT]))
    letters, _ = scene.compare()
    assert [len(letter.value or b"") for _, letter in letters] == [700, 0, 500]


def test_partitions(pair: Pair) -> None:
    """Also of records that a fetch rejects."""
    scene = DeadLetterScene(pair, partitions=2)
    topic = create_topic(pair, partitions=4)
    scene.group.initialize(topic, member_id="other")
    for number in (1, 2, 3):
        produce(pair, topic, 1, partition=number)
        session = scene.group.session(f"of {number}")
        session.fetch([(topic, number)])
        session.fetch(acks={(topic, number): [(0, 0, [REJECT])]}, max_wait_ms=SHORT_MS)
    letters, _ = scene.compare(3)
    assert [partition for partition, _ in letters] == [0, 1, 1]


def test_aborted_records_and_markers(pair: Pair) -> None:
    scene = DeadLetterScene(pair, 1, share_isolation_level="read_committed")
    commit_and_abort(pair, scene.topic)
    produce(pair, scene.topic, 1)
    assert scene.fetch(scene.one) == [0, 3, 1, 6, 7, 1]
    scene.acknowledge(scene.one, (0, 3, [REJECT]), (6, 7, [GAP, REJECT]))
    assert scene.offsets() == [0, 1, 2, 3, 7]


@contextmanager
def auto_created(pair: Pair) -> Iterator[None]:
    """Set the brokers to create dead-letter topics."""

    def change(value: str | None) -> None:
        config = altering.AlterableConfig(
            name=AUTO_CREATE, config_operation=int(value is None), value=value
        )
        resource = altering.AlterConfigsResource(
            resource_type=BROKER_CONFIGS, resource_name="", configs=[config]
        )
        pair.ask(
            altering.IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1
        )
        time.sleep(APPLIED_S)

    change("true")
    try:
        yield
    finally:
        change(None)


def test_a_missing_topic(pair: Pair) -> None:
    """Records are archived; or the topic is created."""
    name = fresh_name("dlq.missing")
    scene = DeadLetterScene(pair, name=name)
    assert scene.fetch(scene.one) == [0, 9, 1]
    scene.acknowledge(scene.one, (0, 1, [REJECT]))
    letters, lives = scene.compare()
    assert letters == []
    assert lives[0] == [(ARCHIVING, 1), (ARCHIVED, 1)]
    with auto_created(pair):
        scene.acknowledge(scene.one, (2, 2, [REJECT]))
        assert scene.offsets() == [2]


def test_a_topic_that_is_not_enabled(pair: Pair) -> None:
    scene = DeadLetterScene(pair, topic={ENABLE: "false"})
    assert scene.fetch(scene.one) == [0, 9, 1]
    scene.acknowledge(scene.one, (0, 1, [REJECT]))
    letters, lives = scene.compare()
    assert letters == []
    assert lives[0] == [(ARCHIVING, 1), (ARCHIVED, 1)]


def test_configs_that_change(pair: Pair) -> None:
    scene = DeadLetterScene(pair)
    assert scene.fetch(scene.one) == [0, 9, 1]
    scene.group.configure(errors_deadletterqueue_topic_name=None)
    scene.acknowledge(scene.one, (0, 0, [REJECT]))
    scene.group.configure(errors_deadletterqueue_topic_name=scene.letters_name)
    scene.acknowledge(scene.one, (1, 1, [REJECT]))
    scene.group.configure(errors_deadletterqueue_copy_record_enable="true")
    scene.acknowledge(scene.one, (2, 2, [REJECT]))
    letters, lives = scene.compare()
    assert [letter.value for _, letter in letters] == [None, b"value"]
    assert lives[0] == [(ARCHIVED, 1)]


@pytest.mark.parametrize("name", ["__dlq", "", "dlq.letters"])
def test_names_of_topics(pair: Pair, name: str) -> None:
    pair.ask(named(name), 1)


@pytest.mark.parametrize("name", ["letters", "dlq.a b", "dlq." + "x" * 250])
def test_names_that_no_dead_letter_topic_has(pair: Pair, name: str) -> None:
    pair.ask(named(name), 1, differs=CHECKED_DEAD_LETTER_TOPIC)


def named(name: str) -> Value:
    config = altering.AlterableConfig(name=TOPIC_NAME, config_operation=0, value=name)
    resource = altering.AlterConfigsResource(
        resource_type=GROUP_CONFIGS, resource_name=fresh_name("group"), configs=[config]
    )
    return altering.IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)
