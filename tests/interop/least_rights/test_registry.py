"""A schema registry through TLS and SCRAM, with the rules of docs/access.md and nothing else."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.interop.foreign.schema_registry import SchemaRegistry
from tests.interop.least_rights.checks import check_needed, check_suffice, each_need, rows_of
from tests.interop.least_rights.visitors import (
    Client,
    Guarded,
    Names,
    ProgramResult,
    done_or_denied,
)
from tests.support.clients.login import Login

SCHEMA: Final = '{"type":"string"}'


def keeps_a_schema(login: Login, names: Names, directory: Path) -> ProgramResult:
    """Registers a schema, takes a snapshot, and finds the schema when it has started again."""
    settings = {f"apicurio.kafka.common.{name}": text for name, text in login.java().items()}
    settings |= {
        "apicurio.kafkasql.topic": names["JOURNAL"],
        "apicurio.kafkasql.snapshots.topic": names["SNAPSHOTS"],
        "apicurio.events.kafka.topic": names["EVENTS"],
        "apicurio.storage.snapshot.location": str(directory),
        "apicurio.kafkasql.consumer.group-prefix": f"{names['REGISTRY']}-",
    }
    registry = SchemaRegistry(directory, login.bootstrap, settings)

    def until(is_so: Callable[[], bool]) -> bool:
        return done_or_denied(is_so, registry.said, registry.has_ended)

    try:
        registry.start()
        is_done = until(lambda: registry.register("orders-value", SCHEMA))
        if is_done and (is_done := until(registry.take_snapshot)):
            registry.kill()
            registry.start()
            is_done = until(lambda: registry.schema("orders-value") == SCHEMA)
        return ProgramResult(is_done, registry.said())
    finally:
        registry.kill()


CLIENTS: Final = {
    "registry": Client("Apicurio Registry; `create` for its first start", keeps_a_schema)
}

pytestmark = pytest.mark.long


@pytest.mark.parametrize("name", CLIENTS)
def test_a_registry_needs_no_more_than_the_document_says(
    guarded: Guarded, name: str, tmp_path: Path
) -> None:
    check_suffice(guarded, CLIENTS[name], "SCRAM-SHA-512", tmp_path)


@each_need(rows_of(CLIENTS))
def test_a_registry_is_denied_without_any_of_its_rules(
    guarded: Guarded, name: str, number: int, tmp_path: Path
) -> None:
    check_needed(guarded, CLIENTS[name], number, tmp_path)
