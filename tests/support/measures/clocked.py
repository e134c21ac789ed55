"""Another client of a broker, in a process of its own, and what it waits by the clock.

`python -m tests.support.measures.clocked PORT` asks something small every two milliseconds until
its input ends, and prints then how many seconds each answer took.

A thread of the test would also wait for the other threads of the test. A stall makes one answer
late instead of the many that would have been asked for meanwhile, so each wait also counts for
those (`with_omitted`).
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from tests.support.measures.weights import HIGHEST, weigh
from tests.support.network.wire import RawClient

PAUSE_S: Final = 0.002
STUCK_S: Final = 60


def main(port: int) -> list[float]:
    """What each answer took."""
    is_over = threading.Event()

    def wait_end() -> None:
        sys.stdin.read()
        is_over.set()

    threading.Thread(target=wait_end, daemon=True).start()
    waits_s = []
    with RawClient(port, timeout_s=STUCK_S) as client:
        client.is_answered()
        while not is_over.wait(PAUSE_S):
            began_s = time.perf_counter()
            assert client.is_answered()
            waits_s.append(time.perf_counter() - began_s)
    return waits_s


@contextmanager
def clocked(port: int) -> Iterator[list[float]]:
    """Such a process, before all others on the machine where that is permitted; the list has the
    waits afterwards, in seconds.
    """
    waits_s: list[float] = []
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.measures.clocked", str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        text=True,
    ) as process:
        try:
            weigh(process.pid, HIGHEST)
            yield waits_s
            said, _ = process.communicate(timeout=2 * STUCK_S)
            waits_s += json.loads(said)
        finally:
            process.kill()


def with_omitted(waits_s: Iterable[float], every_s: float = PAUSE_S) -> list[float]:
    """The waits, and those of the questions that would have come while one was not answered."""
    found = []
    for wait_s in waits_s:
        while wait_s > 0:
            found.append(wait_s)
            wait_s -= every_s  # noqa: PLW2901 - the next one would have come so much later.
    return found


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]))))
