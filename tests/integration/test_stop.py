"""How the daemon stops: what clients get that wait for it."""

import subprocess
import sys
import threading
from pathlib import Path

from kohort.broker.environment import Environment
from kohort.broker.storage.filesystem import OsFile, OsFileSystem
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record
from tests.support import messages as m
from tests.support.brokers.broker_thread import BrokerThread
from tests.support.network.requests import create_topics, produce_request
from tests.support.network.wire import RawClient


class HeldFiles(OsFileSystem):
    """Syncs of logs wait while `may_sync` is not set."""

    def __init__(self) -> None:
        super().__init__()
        self.is_syncing = threading.Event()
        self.may_sync = threading.Event()
        self.may_sync.set()

    def file(self, path: str) -> OsFile:
        return _HeldFile(path, self, None)

    def create(self, path: str) -> OsFile:
        super().create(path)
        return self.file(path)


class _HeldFile(OsFile):
    def sync(self) -> None:
        files = self._files
        assert isinstance(files, HeldFiles)
        if self.path.endswith(".log"):
            files.is_syncing.set()
            assert files.may_sync.wait(60)
        super().sync()


STOPPED_AT_ONCE = """
import asyncio, gc, os, signal, sys
from kohort.broker.app import Broker
from kohort.broker.config import load

class Watched(Broker):
    async def _stop_serving(self, *parts):
        print("while it stops:", gc.get_freeze_count() > 0)
        await super()._stop_serving(*parts)

async def live():
    asyncio.get_running_loop().call_later(0.5, os.kill, os.getpid(), signal.SIGTERM)
    settings = ["listeners=PLAINTEXT://127.0.0.1:0", "kohort.metrics.port=-1"]
    loaded = load(overrides=[*settings, f"log.dirs={sys.argv[1]}"], environment={})
    await Watched(loaded).run_until_signalled()

asyncio.run(live())
print("afterwards:", gc.get_freeze_count() > 0)
"""


def test_what_lives_is_not_collected_while_a_daemon_stops(tmp_path: Path) -> None:
    """A full collection of what a hundred thousand members are takes most of a second."""
    command = [sys.executable, "-c", STOPPED_AT_ONCE, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines() == ["while it stops: True", "afterwards: False"]


def test_a_produce_whose_fsync_is_under_way_is_answered_when_it_is_done(tmp_path: Path) -> None:
    files, environment = HeldFiles(), Environment()
    environment.files = files
    produce = produce_request("t", encode_batch([Record(b"v")]))
    answers: list[m.ProduceResponse] = []
    with (
        BrokerThread(tmp_path, environment=environment) as broker,
        RawClient(broker.port) as client,
    ):
        create_topics(client, "t", configs={"flush.messages": "1"})
        files.may_sync.clear()
        files.is_syncing.clear()
        asking = threading.Thread(
            target=lambda: answers.append(client.call(produce, 9, m.ProduceResponse))
        )
        asking.start()
        assert files.is_syncing.wait(30)
        stopping = threading.Thread(target=broker.stop)
        stopping.start()
        # Longer than the stop would need to answer without waiting.
        asking.join(0.3)
        files.may_sync.set()
        asking.join(30)
        stopping.join(60)
    ((partition,),) = [topic.partition_responses for topic in answers[0].responses]
    assert (partition.error_code, partition.base_offset) == (0, 0)
