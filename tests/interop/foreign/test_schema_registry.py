"""A schema registry in two instances that share a topic: one is killed, and the broker, too. What
was told to be registered is there, in the instance that is left and in the one that comes back.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count, islice
from pathlib import Path

import pytest

from tests.interop.foreign.schema_registry import SchemaRegistry
from tests.support.brokers.server_process import ServerProcess
from tests.support.waiting import wait_until

ROUND = 10
TIMEOUT_S = 240
"""An instance starts in half a minute, on a busy machine in more."""


class Registries:
    def __init__(self, one: SchemaRegistry, other: SchemaRegistry) -> None:
        self.one, self.other = one, other
        self.kept: dict[str, str] = {}
        self._numbers = count()

    def register(self, *at: SchemaRegistry) -> None:
        """A round of new subjects, at whichever takes them first."""
        for number in islice(self._numbers, ROUND):
            subject = f"subject-{number}"
            schema = json.dumps({"type": "fixed", "name": f"n{number}", "size": number + 1})
            wait_until(
                lambda: any(one.register(subject, schema) for one in at),  # noqa: B023
                at[0].words,
                timeout_s=TIMEOUT_S,
            )
            self.kept[subject] = schema

    def wait_all(self, *at: SchemaRegistry) -> None:
        """Until each of them has everything."""
        for registry in at:
            for subject, schema in self.kept.items():
                wait_until(
                    lambda: registry.schema(subject) is not None,  # noqa: B023
                    registry.words,
                    timeout_s=TIMEOUT_S,
                )
                assert json.loads(registry.schema(subject) or "null") == json.loads(schema)


@pytest.fixture
def registries(tmp_path: Path, own_broker: ServerProcess) -> Iterator[Registries]:
    with ExitStack() as stack:
        instances = [
            SchemaRegistry(tmp_path / name, own_broker.bootstrap) for name in ("one", "other")
        ]
        for instance in instances:
            stack.callback(instance.kill)
            instance.start()
        yield Registries(*instances)


@pytest.mark.long
def test_what_was_registered_is_there_whichever_side_is_killed(
    registries: Registries, own_broker: ServerProcess
) -> None:
    one, other = registries.one, registries.other
    registries.register(one)
    registries.wait_all(one, other)

    one.kill()
    registries.register(one, other)
    own_broker.kill()
    own_broker.start()
    registries.register(other)
    registries.wait_all(other)

    one.start()
    registries.wait_all(one)
    registries.register(one)
    registries.wait_all(one, other)
