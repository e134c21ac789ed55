"""A broker for each test leaves nothing behind; docs/benchmarks.md has what it costs."""

import gc
import threading
from collections import Counter
from pathlib import Path

from kohort.testing import Kafka


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
