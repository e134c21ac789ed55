"""kill -9 while topics are created, filled, emptied, enlarged and deleted: what was acknowledged
counts afterwards, and nothing that was deleted comes back.
"""

import random
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from kohort.protocol.message import RESPONSES, schema_of
from tests.support.brokers.forked_kohort import ForkedKohort
from tests.support.clients.topic_owner import Asking, NoAnswerError, TopicOwner
from tests.support.network.wire import RawClient
from tests.support.waiting import wait_until

TOPICS: Final = 3
ROLL_MS: Final = 50
"""Segments are rolled, and deleted by DeleteRecords."""


def drive(asking: Asking, client: RawClient) -> None:
    """Send the requests of an owner. Raises NoAnswerError if the broker dies."""
    with suppress(StopIteration):
        request, version = next(asking)
        while True:
            key = schema_of(type(request)).key
            assert key is not None
            try:
                answer: object = client.call(request, version, RESPONSES[key])
            except OSError as error:
                lost = NoAnswerError()
                with suppress(NoAnswerError):
                    asking.throw(lost)
                raise lost from error
            request, version = asking.send(answer)


class Life(threading.Thread):
    """Run the owner of a topic until its broker dies."""

    def __init__(self, owner: TopicOwner, port: int) -> None:
        super().__init__(name=owner.name)
        self._owner, self._port = owner, port
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with RawClient(self._port) as client:
                # First what is left after the last kill.
                drive(self._owner.look(), client)
                while True:
                    drive(self._owner.act(), client)
        except (NoAnswerError, OSError):
            pass
        except BaseException as error:  # noqa: BLE001 - raised where it is seen.
            self.error = error


def done(owners: Sequence[TopicOwner]) -> int:
    """The number of acknowledged changes."""
    return sum(sum(owner.acknowledged.values()) for owner in owners)


def wait_done(owners: Sequence[TopicOwner], lives: Sequence[Life], *, more: int) -> None:
    """Wait for this number of further acknowledged changes, or until a check has failed."""
    enough = done(owners) + more
    wait_until(
        lambda: done(owners) >= enough or not all(life.is_alive() for life in lives),
        "changes are acknowledged",
        pause_s=0.002,
    )


def test_no_change_of_a_topic_is_lost_or_undone_by_kill_9(tmp_path: Path, crash_runs: int) -> None:
    seed, kills = random.randrange(1 << 32), crash_runs // 2
    print(f"seed {seed}, {kills} kills")
    chance = random.Random(seed)
    failures: list[str] = []
    owners = [
        TopicOwner(f"topic{number}", random.Random(chance.getrandbits(64)), failures.append)
        for number in range(TOPICS)
    ]
    with ForkedKohort(tmp_path, overrides={"log.roll.ms": str(ROLL_MS)}) as broker:
        for _ in range(kills):
            lives = [Life(owner, broker.port) for owner in owners]
            for life in lives:
                life.start()
            wait_done(owners, lives, more=chance.randint(1, 60))
            broker.kill()
            for life in lives:
                life.join()
            assert not failures
            assert [life.error for life in lives] == [None] * TOPICS
            broker.start()
        with RawClient(broker.port) as client:
            for owner in owners:
                drive(owner.look(), client)
    assert not failures
    total: Counter[str] = Counter()
    for owner in owners:
        total.update(owner.acknowledged)
    print(f"acknowledged: {dict(total)}")
    assert total["produce"] > 0
