"""The programs in examples/, as a reader would start them."""

import json
import os
import random
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue
from threading import Thread

import pytest
from confluent_kafka import Consumer as ConfluentConsumer

from tests.interop.consumer.conftest import OVERRIDES
from tests.interop.consumer.members import Topics
from tests.support.brokers.kohort_server import KohortServer
from tests.support.brokers.server_process import ServerProcess

EXAMPLES = Path(__file__).parents[3] / "examples"
TIMEOUT_S = 60


class Program:
    """One of them, running."""

    def __init__(self, name: str, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(EXAMPLES / name), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._lines: Queue[str] = Queue()
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.rstrip("\n"))

    def lines_until(self, text: str) -> list[str]:
        """The next lines, up to the one that has `text` in it."""
        seen: list[str] = []
        while not seen or text not in seen[-1]:
            try:
                seen.append(self._lines.get(timeout=TIMEOUT_S))
            except Empty:
                raise AssertionError(f"no {text!r} after {seen}") from None
        return seen

    def line_with(self, text: str) -> str:
        """The next line that has `text` in it."""
        return self.lines_until(text)[-1]

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def stop(self) -> int:
        """Stop it as Ctrl-C does; returns its exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(TIMEOUT_S)

    def end(self) -> None:
        """Whatever it is at."""
        self.process.kill()
        self.process.wait()
        # It reads to the end of what was written, and of a file that only it has open.
        self._reader.join()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


@contextmanager
def running(name: str, *arguments: str) -> Iterator[Program]:
    program = Program(name, *arguments)
    try:
        yield program
    finally:
        program.end()


def test_process_orders_goes_on_where_it_stopped(
    bootstrap: str, topics: Topics, group: str
) -> None:
    topic = topics.create(2)
    topics.fill(topic, ["tea", "milk"])
    with running("process_orders.py", bootstrap, topic, group) as first:
        first.line_with(f"{topic}-0@1: b'milk'")
        assert first.stop() == 0
        first.line_with("giving up")
    topics.fill(topic, ["honey"])
    with running("process_orders.py", bootstrap, topic, group) as second:
        second.line_with("reading")
        assert second.line_with("@") == f"{topic}-0@2: b'honey'"


@pytest.mark.long
def test_process_orders_shares_the_work(bootstrap: str, topics: Topics, group: str) -> None:
    topic = topics.create(2)
    with running("process_orders.py", bootstrap, topic, group) as first:
        first.line_with("reading")
        with running("process_orders.py", bootstrap, topic, group) as second:
            second.line_with("reading")
            first.line_with("giving up")
            first.line_with("reading")


def test_handle_orders_puts_aside_what_it_cannot_handle(
    bootstrap: str, topics: Topics, group: str
) -> None:
    topic, dead_topic = topics.create(), topics.create()
    topics.fill(topic, ['{"amount": 5}', '{"amount": -1}', "nonsense", '{"amount": 7}'])
    with running("handle_orders.py", bootstrap, topic, group, dead_topic) as program:
        assert program.line_with("@") == f"{topic}-0@0: 5"
        program.line_with(f"{topic}-0@3: 7")
        assert program.stop() == 0
        assert program.line_with("handled") == "handled 2, put aside 2"


@pytest.mark.long
def test_exactly_once_copies_each_payment_once(
    any_broker: ServerProcess, topics: Topics, group: str
) -> None:
    bootstrap = any_broker.bootstrap
    source, out = topics.create(), topics.create()
    topics.fill(source, range(20))
    for expected in ("20 receipts", "7 receipts"):
        with running("exactly_once.py", bootstrap, source, out, group) as program:
            assert program.line_with("receipts") == expected
            assert program.process.wait(TIMEOUT_S) == 0
        if expected == "20 receipts":
            topics.fill(source, range(20, 27))
    receipts = read_committed(bootstrap, out, 27)
    assert receipts == [f"received: {number}" for number in range(27)]


def test_read_process_write_is_exact_over_kills(
    any_broker: ServerProcess, topics: Topics, group: str, *, long_form: bool
) -> None:
    bootstrap = any_broker.bootstrap
    source, out = topics.create(2), topics.create()
    arguments = ("read_process_write.py", bootstrap, source, out, group, "0")
    kills = 20 if long_form else 2
    count = 0
    for _ in range(kills):
        for partition in (0, 1):
            topics.fill(source, range(count, count + 250), partition)
            count += 250
        with running(*arguments) as service:
            # The next transaction has probably begun.
            service.line_with("up to")
            service.line_with("up to")
    with running(*arguments) as service:
        receipts = read_committed(bootstrap, out, count)
        assert service.stop() == 0
    assert sorted(receipts) == sorted(f"received: {number}" for number in range(count))


@pytest.mark.long
@pytest.mark.parametrize("flush_messages", [1, 10_000])
def test_read_process_write_is_exact_over_kills_of_the_broker(
    tmp_path: Path, group: str, flush_messages: int
) -> None:
    """With each kill of the broker goes one of the service, a moment later."""
    settings = {**OVERRIDES, "log.flush.interval.messages": str(flush_messages)}
    draw = random.Random(flush_messages)
    with KohortServer(tmp_path, overrides=settings) as broker:
        topics = Topics(broker.bootstrap)
        source, out = topics.create(2), topics.create()
        arguments = ("read_process_write.py", broker.bootstrap, source, out, group, "0")
        count = 0
        for _ in range(6):
            for partition in (0, 1):
                topics.fill(source, range(count, count + 500), partition)
                count += 500
            with running(*arguments) as service:
                for _ in range(draw.randint(1, 6)):
                    service.line_with("up to")
                broker.kill()
                broker.start()
        with running(*arguments) as service:
            receipts = read_committed(broker.bootstrap, out, count)
            assert service.stop() == 0
        topics.delete_all()
    assert sorted(receipts) == sorted(f"received: {number}" for number in range(count))


def read_committed(bootstrap: str, topic: str, count: int) -> list[str]:
    """All that is there, and nothing behind it."""
    consumer = ConfluentConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "check",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": False,
        }
    )
    consumer.subscribe([topic])
    found: list[str] = []
    while len(found) < count:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        assert message.error() is None
        found.append((message.value() or b"").decode())
    assert consumer.poll(1) is None
    consumer.close()
    return found


@pytest.mark.long
def test_rolling_restart_keeps_what_it_had(bootstrap: str, topics: Topics, group: str) -> None:
    topic = topics.create(4)
    arguments = ("rolling_restart.py", bootstrap, topic, group)
    with running(*arguments, "one") as other:
        other.line_with("got [TopicPartition")
        with running(*arguments, "two") as restarted:
            other.line_with("gave up")
            restarted.line_with("got [TopicPartition")
            assert restarted.stop() == 0
        with running(*arguments, "two") as again:
            assert again.line_with("got [TopicPartition").count(topic) == 2
            for partition in range(4):
                topics.fill(topic, range(5), partition)
            again.line_with("records up to")
            heard = other.lines_until("records up to")
            assert not [line for line in heard if "TopicPartition" in line]


def test_weighted_workers_share_by_weight(bootstrap: str, topics: Topics, group: str) -> None:
    topic = topics.create(8)
    with running("weighted_workers.py", bootstrap, topic, group, "1") as light:
        light.line_with("8 partitions")
        with running("weighted_workers.py", bootstrap, topic, group, "3") as heavy:
            heavy.line_with("6 partitions")
            light.line_with("2 partitions")
            light.say("3")
            heavy.line_with("4 partitions")
            light.line_with("4 partitions")


def test_health_page_says_how_it_is(bootstrap: str, topics: Topics, group: str) -> None:
    topic = topics.create()
    topics.fill(topic, ["hello"])
    with running("health_page.py", bootstrap, topic, group, "0") as program:
        url = program.line_with("http").strip()
        program.line_with("b'hello'")
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as page:
            health = json.load(page)
        assert health["is_healthy"]
        (partition,) = health["partitions"]
        assert (partition["topic"], partition["partition"], partition["lag"]) == (topic, 0, 0)
        for probe in ("/live", "/ready"):
            with urllib.request.urlopen(url.replace("/health", probe), timeout=TIMEOUT_S) as page:
                assert page.status == 200
        metrics_url = url.replace("/health", "/metrics")
        with urllib.request.urlopen(metrics_url, timeout=TIMEOUT_S) as page:
            metrics = page.read().decode()
        assert "kafka_consumer_consumer_coordinator_metrics_assigned_partitions" in metrics
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(url.replace("health", "else"), timeout=TIMEOUT_S)


def test_every_example_is_run_here() -> None:
    programs = {one.name for one in EXAMPLES.glob("*.py")}
    source = Path(__file__).read_text()
    assert programs
    assert {name for name in programs if f'"{name}"' not in source} == set()
    assert all(os.access(EXAMPLES / name, os.R_OK) for name in programs)
