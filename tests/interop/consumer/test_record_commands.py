"""`kohort produce` and `kohort consume` as users run them, beside either broker and kcat."""

import gc
import json
import os
import random
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kohort.admin.producing import BATCH_BYTES
from tests.interop.consumer.members import Topics
from tests.support.brokers.server_process import ServerProcess
from tests.support.processes.commands import Said, said_here
from tests.support.waiting import wait_until


class Scene:
    """The two commands, and a broker."""

    def __init__(
        self, bootstrap: str, directory: Path, printed: pytest.CaptureFixture[bytes]
    ) -> None:
        self.bootstrap = bootstrap
        self._given = directory / "given"
        self._printed = printed

    def command(self, *arguments: str) -> list[str]:
        """One that runs in a process of its own."""
        return [sys.executable, "-m", "kohort.cli", *self._placed(*arguments)]

    def run(self, *arguments: str) -> Said[bytes]:
        """Run a command here."""
        return said_here(self._printed, *self._placed(*arguments))

    def produce(self, *arguments: str, given: bytes) -> Said[bytes]:
        self._given.write_bytes(given)
        return self.run("produce", *arguments, "--file", str(self._given))

    def consume(self, *arguments: str) -> list[bytes]:
        return self.run("consume", *arguments).lines

    def kcat(self, *arguments: str) -> list[bytes]:
        ran = subprocess.run(
            ["kcat", "-b", self.bootstrap, *arguments], check=True, capture_output=True, timeout=120
        )
        return ran.stdout.splitlines()

    def _placed(self, *arguments: str) -> list[str]:
        return [*arguments, "--bootstrap-server", self.bootstrap, "--timeout", "60"]


@pytest.fixture
def scene(
    any_broker: ServerProcess, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> Scene:
    return Scene(any_broker.bootstrap, tmp_path, capfdbinary)


def test_lines_are_records_for_kcat_and_back(scene: Scene, topics: Topics) -> None:
    topic = topics.create(3)
    lines = [b"line %d " % number + b"x" * (number % 300) for number in range(20_000)]
    given = b"\n".join(lines)  # The last one without an end.
    assert scene.produce(topic, given=given).code == 0
    assert sorted(scene.kcat("-C", "-t", topic, "-e", "-q")) == sorted(lines)
    assert sorted(scene.consume(topic, "--from-beginning", "--exit")) == sorted(lines)


def test_a_file_of_lines_is_the_same_in_a_topic_as_by_kcat(
    scene: Scene, topics: Topics, tmp_path: Path
) -> None:
    source = random.Random(1)
    # Of many batches, with the lengths at which those of records and their parts grow.
    lengths = [
        *range(1, 200),
        8_180,
        8_191,
        8_192,
        20_000,
        *(source.choices(range(1, 900), k=9_000)),
    ]
    lines = tmp_path / "lines"
    lines.write_bytes(
        b"".join(source.randbytes(one).replace(b"\n", b".") + b"\n" for one in lengths)
    )
    seen: list[bytes] = []
    for place in ("ours", "kcat's"):
        topic = topics.create(1)
        if place == "ours":
            assert scene.run("produce", topic, "--file", str(lines)).code == 0
        else:
            scene.kcat("-P", "-t", topic, "-l", str(lines))
        form = ("-f", "%o|%p|%K|%h|%S|%s\\n")
        seen.append(b"\n".join(scene.kcat("-C", "-t", topic, "-e", "-q", *form)))
    assert seen[0] == seen[1]
    assert len(seen[0]) > lines.stat().st_size > 3 * BATCH_BYTES


def test_keys_headers_and_nulls_arrive(scene: Scene, topics: Topics) -> None:
    topic = topics.create(6)
    said = scene.produce(
        *(topic, "--key-separator", ":", "--null-marker", "-", "--header", "from=here"),
        *("--compression", "zstd", "--json"),
        given=b"",
    )
    assert said.code == 0, said.err
    assert json.loads(said.out) == {"topic": topic, "records": 0, "bytes": 0}
    keys = [b"key-%d" % number for number in range(40)]
    given = b"".join(key + b":a:b\n" for key in keys) + b"gone:-\n"
    arguments = ("--key-separator", ":", "--null-marker", "-", "--header", "from=here")
    assert scene.produce(topic, *arguments, "--compression", "zstd", given=given).code == 0

    seen = scene.kcat("-C", "-t", topic, "-e", "-q", "-f", "%k|%s|%S|%h|%p\n")
    found = {line.split(b"|")[0]: line.split(b"|")[1:] for line in seen}
    assert found[b"gone"][:3] == [b"", b"-1", b"from=here"]
    assert all(found[key][:3] == [b"a:b", b"3", b"from=here"] for key in keys)
    assert scene.produce(topic, "--key", "all", given=b"k1\nk2\n").code == 0
    last = scene.kcat("-C", "-t", topic, "-e", "-q", "-f", "%k|%s\n")
    assert {b"all|k1", b"all|k2"} <= set(last)
    # A key goes where Java's partitioner has it, which kcat knows under another name.
    other = topics.create(6)
    kcat = ["kcat", "-b", scene.bootstrap, "-P", "-t", other, "-K:", "-X",
            "partitioner=murmur2_random"]  # fmt: skip
    subprocess.run(kcat, input=given, check=True, timeout=120)
    theirs = scene.kcat("-C", "-t", other, "-e", "-q", "-f", "%k|%p\n")
    assert {line.split(b"|")[0]: line.split(b"|")[1] for line in theirs} == {
        key: rest[-1] for key, rest in found.items()
    }


def test_what_consume_prints_as_json_produce_takes(scene: Scene, topics: Topics) -> None:
    first, second = topics.create(2), topics.create(2)
    producer = Producer({"bootstrap.servers": scene.bootstrap})
    wanted: list[tuple[Any, ...]] = [
        (b"k", b"v", [("h", b"1"), ("h", None)], 0, 1_000),
        (None, None, [], 1, 2_000),
        (b"\xff\x00", "käse\n".encode(), [("bytes", b"\xfe")], 1, 3_000),
        (b"", b"", [], 0, 4_000),
    ]
    for key, value, headers, partition, timestamp in wanted:
        producer.produce(
            first, value, key, headers=headers, partition=partition, timestamp=timestamp
        )
    producer.flush(60)
    thresholds = gc.get_threshold()
    dumped = scene.run("consume", first, "--from-beginning", "-e", "--json")
    # The command may run in the process of a caller.
    assert gc.get_threshold() == thresholds
    assert len(dumped.lines) == len(wanted)
    assert scene.produce(second, "--json", given=dumped.out).code == 0

    consumer = Consumer({"bootstrap.servers": scene.bootstrap, "group.id": "unused"})
    consumer.assign([TopicPartition(second, index, 0) for index in (0, 1)])
    found: list[Any] = []
    while len(found) < len(wanted):
        message = consumer.poll(1)
        if message is not None and not message.error():
            found.append(message)
    consumer.close()
    found.sort(key=lambda one: one.timestamp())
    assert [
        (one.key(), one.value(), one.headers() or [], one.partition(), one.timestamp()[1])
        for one in found
    ] == wanted


def test_a_read_begins_and_ends_where_it_is_told(scene: Scene, topics: Topics) -> None:
    topic = topics.create(1)
    producer = Producer({"bootstrap.servers": scene.bootstrap})
    for number in range(10):
        producer.produce(topic, b"%d" % number, timestamp=1_000_000 + number)
    producer.flush(60)

    def seen(*how: str) -> bytes:
        return b"".join(scene.consume(topic, *how))

    assert seen("--offset", "7", "-e") == b"789"
    assert seen("--offset", "-2", "-e") == b"89"
    assert seen("--offset", "-99", "-e") == b"0123456789"
    assert seen("--from-time", "1970-01-01T00:16:40.006+00:00", "-e") == b"6789"
    assert seen("--last", "1h", "-e") == b""
    assert seen("-e") == b""
    assert seen("--offset", "2", "--to-offset", "5") == b"234"
    assert seen("--from-beginning", "--to-offset", "99") == b"0123456789"
    assert seen("--offset", "5", "--to-offset", "5") == b""
    assert seen("--offset", "7", "--to-time", "1970-01-01T00:16:40.009Z") == b"78"
    assert seen("--from-beginning", "--max-messages", "3") == b"012"
    assert seen("--from-beginning", "-c", "1", "-f", "%t %p %o %T %d %k %S%%") == (
        topic.encode() + b" 0 0 1000000 1970-01-01T00:16:40.000Z null 1%"
    )


def test_several_topics_are_read_together(scene: Scene, topics: Topics, group: str) -> None:
    first, second = topics.create(1), topics.create(1)
    topics.fill(first, [b"a"])
    topics.fill(second, [b"b"])
    assert sorted(scene.consume(first, second, "--from-beginning", "-e")) == [b"a", b"b"]
    # The pattern matches the first topic only.
    pattern = first[:-1] + f"[{first[-1]}]"
    assert scene.consume(pattern, "--from-beginning", "-e") == [b"a"]
    assert sorted(scene.consume(first, second, "--group", group, "-c", "2")) == [b"a", b"b"]
    assert scene.run("consume", f"no-{first}*", "-e").code == 1


def test_what_was_aborted_is_left_out_when_that_is_wanted(scene: Scene, topics: Topics) -> None:
    topic = topics.create(1)
    producer = Producer({"bootstrap.servers": scene.bootstrap, "transactional.id": f"id-{topic}"})
    producer.init_transactions(60)
    for value, ends in ((b"aborted", False), (b"committed", True)):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush(60)
        (producer.commit_transaction if ends else producer.abort_transaction)(60)
    assert scene.consume(topic, "--from-beginning", "-e") == [b"aborted", b"committed"]
    committed = ("--from-beginning", "-e", "--isolation-level", "read_committed")
    # A Kafka writes its markers after it has answered.
    wait_until(lambda: bool(scene.consume(topic, *committed)), "the markers are written")
    assert scene.consume(topic, *committed) == [b"committed"]


def test_a_group_shares_and_remembers(scene: Scene, topics: Topics, group: str) -> None:
    topic = topics.create(1)
    topics.fill(topic, [b"%d" % number for number in range(6)])
    first_four = ("--group", group, "--from-beginning", "-c", "4")
    assert scene.consume(topic, *first_four) == [b"0", b"1", b"2", b"3"]
    assert scene.consume(topic, "--group", group, "-c", "2") == [b"4", b"5"]


def test_a_typed_line_goes_out_at_once(scene: Scene, topics: Topics) -> None:
    topic = topics.create(1)
    with subprocess.Popen(scene.command("produce", topic), stdin=subprocess.PIPE) as producing:
        assert producing.stdin is not None
        producing.stdin.write(b"typed\n")
        producing.stdin.flush()
        assert scene.consume(topic, "--from-beginning", "-c", "1") == [b"typed"]
        producing.stdin.close()
    assert producing.returncode == 0


def test_a_read_that_goes_on_prints_what_comes_and_ends_well(
    scene: Scene, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create(1)
    out = tmp_path / "out"

    def is_printed(count: int) -> bool:
        return out.read_bytes() == b"new\n" * count

    with out.open("wb") as file:
        reading = subprocess.Popen(
            scene.command("consume", topic, "--from-beginning"), stdout=file, stderr=file
        )
    try:
        for count in (1, 2):
            topics.fill(topic, [b"new"])
            wait_until(partial(is_printed, count), "it is printed")
    finally:
        reading.send_signal(2)
        reading.wait(60)
    assert reading.returncode == 130
    assert out.read_bytes() == b"new\nnew\n"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_member_that_is_ended_leaves_its_group(
    scene: Scene, topics: Topics, number: signal.Signals, code: int
) -> None:
    topic = topics.create(1)
    group = f"group-of-{topic}"
    topics.fill(topic, [b"one"])
    with subprocess.Popen(
        scene.command("consume", topic, "--group", group), stdout=subprocess.PIPE
    ) as reading:
        assert reading.stdout is not None
        assert reading.stdout.readline() == b"one\n"
        reading.send_signal(number)
        assert reading.wait(60) == code
    assert "1 member" not in scene.run("groups", "describe", group).out.decode()


def test_records_that_fill_batches_alone_and_together_all_arrive(
    scene: Scene, topics: Topics
) -> None:
    topic = topics.create(1)
    sizes = [BATCH_BYTES // 2, BATCH_BYTES // 2, 1, BATCH_BYTES - 100, 0, *[1] * 3_000]
    given = b"".join(b"x" * size + b"\n" for size in sizes)
    assert scene.produce(topic, given=given).code == 0
    assert [len(line) for line in scene.consume(topic, "--from-beginning", "-e")] == sizes


def test_what_cannot_be_done_is_told(scene: Scene, topics: Topics) -> None:
    topic = topics.create(1)
    refused = scene.produce(topic, given=b"fine\n" + b"x" * 3_000_000)
    assert refused.code == 4
    assert "MESSAGE_TOO_LARGE" in refused.err
    assert "max.message.bytes" in refused.err
    broken = scene.produce(topic, "--json", given=b'{"value": "a"}\nnonsense\n')
    assert broken.code == 2
    assert "line 2: invalid JSON" in broken.err
    assert scene.produce(topic, "--partition", "9", given=b"a\n").code == 1
    assert scene.run("consume", topic, "-f", "%q").code == 2
    assert scene.run("consume", f"none-{time.time_ns()}", "-e").code == 1
    assert scene.run("consume", topic, "--group", "g", "-e").code == 2
    assert scene.run("consume", topic, "--group", "g", "--offset", "1").code == 2


def test_a_reader_that_has_seen_enough_ends_it_quietly(scene: Scene, topics: Topics) -> None:
    topic = topics.create(1)
    topics.fill(topic, [b"x" * 1000] * 5_000)  # More than any pipe holds.
    reading, writing = os.pipe()
    with subprocess.Popen(
        scene.command("consume", topic, "--from-beginning"),
        stdout=writing,
        stderr=subprocess.PIPE,
    ) as consuming:
        os.close(writing)
        os.read(reading, 10)
        os.close(reading)
        assert consuming.stderr is not None
        assert consuming.stderr.read() == b""
    assert consuming.returncode == 0
