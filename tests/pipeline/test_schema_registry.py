"""Values by the schemas of a registry that is somebody else's: Apicurio's."""

import io
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest

from kohort.pipeline.errors import RegistryError
from kohort.pipeline.landing.formats import AvroDecoder
from kohort.pipeline.landing.registry import Registry, UndecodableError
from tests.interop.foreign.schema_registry import SchemaRegistry
from tests.pipeline.conftest import Pipeline
from tests.pipeline.driver import table_rows
from tests.pipeline.test_land_shape import produce
from tests.pipeline.topics import Topics
from tests.support.brokers.kohort_server import KohortServer
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

CUSTOMER = {
    "type": "record",
    "name": "Customer",
    "namespace": "shop",
    "fields": [{"name": "name", "type": "string"}],
}
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [{"name": "number", "type": "long"}, {"name": "customer", "type": "shop.Customer"}],
}


@pytest.fixture(scope="module")
def registry(
    kohort: KohortServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SchemaRegistry]:
    found = SchemaRegistry(tmp_path_factory.mktemp("registry"), kohort.bootstrap)
    found.start()
    try:
        schema = json.dumps({"type": "string"})
        wait_until(lambda: found.register("first", schema), found.words, timeout_s=300, pause_s=0.5)
        yield found
    finally:
        found.kill()


def registered(registry: SchemaRegistry, subject: str, body: dict[str, Any]) -> int:
    """The id that the schema got."""
    request = urllib.request.Request(
        f"{registry.url}/subjects/{subject}/versions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return int(json.load(answer)["id"])


def wire(number: int, body: bytes) -> bytes:
    return b"\0" + number.to_bytes(4) + body


def test_avro_is_read_by_schemas_that_refer_to_others(registry: SchemaRegistry) -> None:
    registered(registry, "customer", {"schema": json.dumps(CUSTOMER)})
    reference = {"name": "shop.Customer", "subject": "customer", "version": 1}
    number = registered(registry, "order", {"schema": json.dumps(ORDER), "references": [reference]})
    named: dict[str, Any] = {}
    fastavro.parse_schema(CUSTOMER, named_schemas=named)
    schema = fastavro.parse_schema(ORDER, named_schemas=named)
    order = {"number": 7, "customer": {"name": "Zoë"}}
    body = io.BytesIO()
    fastavro.schemaless_writer(body, schema, order)
    decode = AvroDecoder(Registry(registry.url))
    assert json.loads(decode(wire(number, body.getvalue()))) == order
    with pytest.raises(UndecodableError, match="the registry has no schema 4000"):
        decode(wire(4_000, body.getvalue()))


def test_protobuf_without_descriptors_ends_the_run_and_nothing_goes_aside(
    registry: SchemaRegistry,
    pipeline: Pipeline,
    topics: Topics,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    text = 'syntax = "proto3"; message Order { int64 number = 1; }'
    number = registered(registry, "proto", {"schema": text, "schemaType": "PROTOBUF"})
    topic = topics.create()
    produce(topics, topic, wire(number, b"\x00\x08\x05"))
    where = ("--bootstrap-server", topics.bootstrap, "--lake", str(tmp_path / "lake"))
    job = ("land", topic, "--available-now", *where)
    assert pipeline(*job, "--value", "protobuf", "--registry", registry.url) == 1
    told = capfd.readouterr().err
    assert "the schema registry returns Protobuf schemas only as text" in told
    assert "Traceback" not in told
    assert not table_rows(tmp_path / "lake", f"quarantined/{topic}")
    # Nor is anything lost: as bytes, the same run can be done.
    assert pipeline(*job) == 0
    assert [row[4] for row in table_rows(tmp_path / "lake", f"land/{topic}")] == [
        wire(number, b"\x00\x08\x05")
    ]


def test_an_address_without_the_path_of_the_api_ends_the_run(registry: SchemaRegistry) -> None:
    with pytest.raises(RegistryError, match="does the URL include the path of its API"):
        Registry(registry.url.removesuffix("/apis/ccompat/v7")).schema(1)
