"""What a broker for each test costs, and that it leaves nothing behind.

Time is the processor's, by what a loop takes on the same machine meanwhile; docs/benchmarks.md has
the figures.
"""

import gc
import threading
import time
from collections import Counter
from pathlib import Path

from kohort.testing import Kafka

LOOPS_MAX = 3.0
"""Three times what is aimed at, in loops of 200,000 iterations, which is 5 ms where that was."""


def loop_s() -> float:
    """Processor time of 200,000 iterations."""
    began_s, total = time.process_time(), 0
    for number in range(200_000):
        total += number
    return time.process_time() - began_s


def use_one() -> None:
    with Kafka() as kafka:
        kafka.produce("orders", b"x")
        assert len(kafka.records("orders")) == 1


def what_there_is() -> tuple[int, int, int]:
    """Objects, files and threads."""
    gc.collect()
    return (
        len(gc.get_objects()),
        len(list(Path("/proc/self/fd").iterdir())),
        threading.active_count(),
    )


def test_a_broker_takes_little_of_the_processor() -> None:
    use_one()
    count = 30
    took_s = loops_s = 0.0
    for _ in range(count):
        began_s = time.process_time()
        with Kafka():
            pass
        took_s += time.process_time() - began_s
        loops_s += loop_s()
    assert took_s / loops_s < LOOPS_MAX


def test_brokers_leave_nothing_behind(long_form: bool) -> None:
    for _ in range(3):
        use_one()
    count = 1_000 if long_form else 20
    objects, files, threads = what_there_is()
    kinds = Counter(type(one).__name__ for one in gc.get_objects())
    for _ in range(count):
        use_one()
    objects_after, files_after, threads_after = what_there_is()
    more = Counter(type(one).__name__ for one in gc.get_objects())
    more.subtract(kinds)
    # Fewer if something of an earlier test has come to its end meanwhile.
    assert files_after <= files
    assert threads_after <= threads
    # Caches of the interpreter and of libraries fill up a little.
    assert objects_after - objects < 500 + count, more.most_common(12)
