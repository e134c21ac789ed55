"""The test kit: a broker for each test, a hundred tests of a service, a session on virtual time."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from aiokafka import AIOKafkaConsumer

from benchmarks.harness import Bench, Measured, Row
from kohort.testing import Kafka, VirtualKafka

TITLE: Final = "Test kit"

_BROKERS: Final = 100

_SERVICE: Final = """
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

@pytest.mark.parametrize("number", range({count}))
async def test_what_is_written_is_read(kafka, number):
    where = {{"bootstrap_servers": kafka.bootstrap_servers}}
    async with AIOKafkaProducer(**where) as producer:
        await producer.send_and_wait("orders", b"%d" % number)
    async with AIOKafkaConsumer(
        "orders", group_id="billing", auto_offset_reset="earliest", **where
    ) as consumer:
        assert (await consumer.getone()).value == b"%d" % number
"""

_PLUGIN: Final = """
import pytest, time
began = time.process_time()
import kohort.testing.plugin
print(time.process_time() - began)
"""


def measure(bench: Bench) -> Iterable[Row]:
    count = max(1, int(bench.scaled(_BROKERS)))
    figures = bench.measure_ours(lambda: _measure_all(bench.directory, count))
    yield Row("a broker, from its start to its end", "CPU ms", figures["cpu"], limit=5)
    yield Row("a broker, from its start to its end", "ms", figures["wall"])
    tests = f"{count} tests of a service with aiokafka, a broker each"
    yield Row(tests, "s", figures["tests"], limit=10)
    yield Row(tests, "CPU s", figures["tests cpu"])
    yield Row("a session of 45 s ends, on virtual time", "s", figures["session"], limit=0.5)
    yield Row("import of the pytest plugin", "CPU ms", figures["plugin"], limit=5)


def _measure_all(directory: Path, count: int) -> Measured:
    with Kafka():
        pass
    began_cpu_s, began_s = time.process_time(), time.perf_counter()
    for _ in range(count):
        with Kafka():
            pass
    cpu_s, wall_s = time.process_time() - began_cpu_s, time.perf_counter() - began_s
    tests_s, tests_cpu_s = _run_tests(directory, count)
    _end_session()
    began_s = time.perf_counter()
    _end_session()
    session_s = time.perf_counter() - began_s
    plugin = subprocess.run(
        [sys.executable, "-c", _PLUGIN], check=True, capture_output=True, text=True
    )
    return {
        "cpu": cpu_s / count * 1e3,
        "wall": wall_s / count * 1e3,
        "tests": tests_s,
        "tests cpu": tests_cpu_s,
        "session": session_s,
        "plugin": float(plugin.stdout) * 1e3,
    }


def _run_tests(directory: Path, count: int) -> tuple[float, float]:
    """Wall and processor time of pytest, with its start."""
    file = directory / "test_service.py"
    file.write_text(_SERVICE.format(count=count))
    (directory / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider"]
    before, began_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [*command, str(file)], check=False, capture_output=True, text=True, cwd=directory
    )
    lasted_s = time.perf_counter() - began_s
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if f"{count} passed" not in done.stdout:
        raise RuntimeError(done.stdout + done.stderr)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return lasted_s, cpu_s


def _end_session() -> None:
    kafka = VirtualKafka()
    kafka.run(_wait_expiry(kafka))
    kafka.close()


async def _wait_expiry(kafka: VirtualKafka) -> None:
    await kafka.create_topic("orders", partitions=4)
    group = kafka.group("billing")
    consumer = AIOKafkaConsumer(
        "orders",
        bootstrap_servers=kafka.bootstrap_servers,
        group_id="billing",
        client_id="w1",
        session_timeout_ms=45_000,
    )
    async with consumer:
        await group.wait(state="Stable", members=1)
        with kafka.fault("*", client_id="w1", drop=True):
            await group.wait(members=0)
        await group.wait(state="Stable", members=1)
    if not 45_000 <= kafka.now_ms < 200_000:
        raise RuntimeError(f"the session lasted {kafka.now_ms} ms")
