"""Brokers that run while something is measured, and names that nothing else has."""

import itertools
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Final

from benchmarks.brokers import Contender, RunningBroker
from benchmarks.generator import generate
from benchmarks.harness import Bench, Measured, progress

_numbers: Final = itertools.count()


@contextmanager
def live(
    bench: Bench, name: str, overrides: Mapping[str, str] | None = None
) -> Iterator[dict[str, RunningBroker]]:
    """One broker of each kind, by the name of its kind, all running at the same time.

    They take turns in being loaded; the one that waits is idle. A JVM keeps what it has learned.
    """
    with ExitStack() as stack:
        brokers = {}
        for contender in bench.contenders:
            progress(f"  {name}: starting {contender.name}")
            broker = start(bench, contender, name, overrides)
            brokers[contender.name] = stack.enter_context(broker)
            broker.wait_serving()
        yield brokers


def start(
    bench: Bench, contender: Contender, name: str, overrides: Mapping[str, str] | None = None
) -> RunningBroker:
    """A broker with a directory of its own for `name`."""
    return contender.start(bench.directory / f"{name}-{contender.name}", overrides)


def load(broker: RunningBroker, kind: str, **arguments: object) -> Measured:
    """Have a generator load the broker, which is measured meanwhile."""
    return generate(kind, port=broker.port, pid=broker.pid, **arguments)


def fresh_name(kind: str) -> str:
    """For a topic or a group: one that no earlier run has used."""
    return f"bench-{kind}-{os.getpid()}-{next(_numbers)}"
