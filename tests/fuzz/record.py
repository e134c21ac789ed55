"""Records what client libraries send, as the beginning of what `test_captured` sends damaged.

    .venv/bin/python -m tests.fuzz.record

Each library writes in every codec, reads, and joins a group as an ordinary and as a static member,
through a relay that keeps a few frames of each api and version. Recorded again when a library or
the apis that are served have changed much; the frames are in `tests/fuzz/captured.jsonl.gz`.
"""

import asyncio
import gzip
import json
import socket
import struct
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from tests.support.brokers.broker_thread import BrokerThread
from tests.support.clients.aiokafka_client import AiokafkaClient
from tests.support.clients.confluent_client import ConfluentClient, admin_client
from tests.support.clients.java_client import JavaClient
from tests.support.clients.kafka_python_client import KafkaPythonClient
from tests.support.clients.kohort_client import KohortMember
from tests.support.clients.model import CODECS, Client, Record, Seat
from tests.support.network.relay import Relay
from tests.support.processes.java_process import JavaProcess
from tests.support.waiting import wait_until

CAPTURED: Final = Path(__file__).with_name("captured.jsonl.gz")
KEPT_MAX: Final = 8
"""Frames of one client, api and version."""

FRAME_BYTES_MAX: Final = 6_000
RECORDS: Final = [
    Record(b"value", key=b"key"),
    Record(None, key=b"key"),
    *(
        Record(b"%d" % number * 20, key=b"%d" % number, headers=(("h", b"1"),))
        for number in range(30)
    ),
]


class Recorder:
    """Keeps different frames of the client that is at work."""

    def __init__(self) -> None:
        self.client = ""
        self.frames: dict[bytes, str] = {}
        self._counts: Counter[tuple[str, int, int, int]] = Counter()

    def __call__(self, frame: bytes) -> None:
        key, version = struct.unpack_from(">hh", frame)
        size_class = len(frame).bit_length()
        kind = (self.client, key, version, size_class)
        if len(frame) <= FRAME_BYTES_MAX and self._counts[kind] < KEPT_MAX:
            self._counts[kind] += 1
            self.frames.setdefault(frame, self.client)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def any_of(found: Callable[[], Collection[object]]) -> bool:
    return bool(found())


def exercise(client: Client) -> None:
    topic = f"of-{client.name}"
    for codec in CODECS:
        client.produce(topic, RECORDS, codec=codec)
    with suppress(Exception):
        client.produce(topic, RECORDS, idempotent=True)
    client.consume(topic, 3 * len(RECORDS))
    client.offsets_for_time(topic, 1)
    for seat in (Seat(), Seat(instance_id="static", session_timeout_ms=6_000)):
        with client.join(f"group-{client.name}", topic, seat) as member:
            wait_until(partial(any_of, member.assigned), "a partition")
            client.produce(topic, RECORDS[:1])
            wait_until(partial(any_of, member.records), "a record")


def administrate(bootstrap: str) -> None:
    admin = admin_client(bootstrap)
    admin.list_topics(timeout=10)
    admin.list_consumer_groups().result(10)
    for future in admin.describe_consumer_groups(["group-java", "absent"]).values():
        with suppress(Exception):
            future.result(10)
    for future in admin.delete_consumer_groups(["absent"]).values():
        with suppress(Exception):
            future.result(10)


def record_all(bootstrap: str, recorder: Recorder, java: JavaProcess) -> None:
    clients = [
        AiokafkaClient(bootstrap),
        ConfluentClient(bootstrap),
        KafkaPythonClient(bootstrap),
        JavaClient(bootstrap, java),
    ]
    for client in clients:
        recorder.client = client.name
        exercise(client)
    recorder.client = "confluent"
    administrate(bootstrap)
    recorder.client = "kohort"
    for number, seat in enumerate((Seat(), Seat(instance_id="static"))):
        with KohortMember(bootstrap, f"group-kohort-{number}", "of-java", seat) as member:
            wait_until(partial(any_of, member.records), "a record")


def main() -> int:
    recorder = Recorder()
    port = free_port()
    overrides = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    with (
        tempfile.TemporaryDirectory() as directory,
        BrokerThread(Path(directory), overrides=overrides) as broker,
        JavaProcess("ClientDriver", "broker") as java,
    ):
        loop = asyncio.new_event_loop()
        relay = Relay(port, broker.port)
        relay.record = recorder
        threading.Thread(target=loop.run_forever, daemon=True).start()
        asyncio.run_coroutine_threadsafe(relay.__aenter__(), loop).result(10)
        record_all(relay.bootstrap, recorder, java)
        asyncio.run_coroutine_threadsafe(relay.__aexit__(None, None, None), loop).result(10)
    with gzip.GzipFile(CAPTURED, "wb", mtime=0) as file:
        for frame, client in recorder.frames.items():
            line = json.dumps({"client": client, "frame": frame.hex()})
            file.write(line.encode() + b"\n")
    print(f"{len(recorder.frames)} frames, {CAPTURED.stat().st_size} bytes", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
