"""Values by the schemas of a registry, and what is said of those that are none."""

import base64
import io
import json
import re
import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2

from kohort.pipeline.errors import RegistryError
from kohort.pipeline.landing.formats import AvroDecoder, JsonDecoder, ProtobufDecoder
from kohort.pipeline.landing.registry import UNKNOWN_S, Registry, UndecodableError
from tests.support.network.schemas import USER, Schemas, registered

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "number", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {"name": "customer", "type": ["null", "Customer"], "default": None},
    ],
}
CUSTOMER = {
    "type": "record",
    "name": "Customer",
    "fields": [{"name": "name", "type": "string"}, {"name": "mark", "type": "bytes"}],
}


@pytest.fixture
def schemas() -> Iterator[Schemas]:
    with registered() as found:
        yield found


def wire(number: int, body: bytes) -> bytes:
    return struct.pack(">bI", 0, number) + body


def protobuf(text: str) -> dict[str, str]:
    return {"schemaType": "PROTOBUF", "schema": text}


@pytest.mark.parametrize(
    "value",
    [
        b'{"a":1,"a":2}',
        b' \t\r\n[1.5e400, -0, true, null, ""] ',
        b"9" * 5_000,
        b'"\\ud800"',
        '"\ufeff\u2028Zo\u00eb"'.encode(),
        b"[" * 500 + b"]" * 500,
        b'{"a":' * 500 + b"0" + b"}" * 500,
        b"[" + b'[{"a":[]},"]["],' * 1_000 + b"0]",
    ],
)
def test_valid_json_is_text_as_it_is(value: bytes) -> None:
    assert JsonDecoder(None)(value).encode() == value


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b'{"a":1}{"b":2}', "not JSON: Extra data at character 7"),
        (b'{"a":1} // c', "not JSON: Extra data at character 8"),
        (b"", "not JSON: Expecting value at character 0"),
        (b'{"a":', "not JSON: Expecting value at character 5"),
        (b"[1,]", "not JSON: "),
        (b"01", "not JSON: Extra data"),
        (b"NaN", "not JSON: NaN"),
        (b"[-Infinity]", "not JSON: -Infinity"),
        (b'"\n"', "not JSON: Invalid control character at"),
        (b"\xef\xbb\xbf{}", "not JSON: byte order mark"),
        (b'{"a": "\xff"}', "not UTF-8: invalid start byte at byte 7"),
        (b"\xed\xa0\x80", "not UTF-8: "),
        (b"\0\0\0\0\x07{}", "not JSON: "),
        (b"[" * 501 + b"]" * 501, "nested deeper than 500 levels"),
        (b'{"a":' * 501 + b"0" + b"}" * 501, "nested deeper than 500 levels"),
        (b"[" * 100_000 + b"]" * 100_000, "nested deeper than 500 levels"),
    ],
)
def test_what_is_not_json_is_rejected_with_the_reason(value: bytes, reason: str) -> None:
    with pytest.raises(UndecodableError, match=re.escape(reason)):
        JsonDecoder(None)(value)


def test_json_may_begin_with_a_schema_id_if_there_is_a_registry(schemas: Schemas) -> None:
    decode = JsonDecoder(schemas.registry)
    assert decode(wire(7, b"{}")) == decode(b"{}") == "{}"


def test_avro_is_told_as_json_by_the_schema_that_it_names(schemas: Schemas) -> None:
    schemas.answers["/schemas/ids/7"] = {
        "schema": json.dumps(ORDER),
        "references": [{"name": "Customer", "subject": "a/customer", "version": 3}],
    }
    schemas.answers["/subjects/a%2Fcustomer/versions/3"] = {"schema": json.dumps(CUSTOMER)}
    named: dict[str, Any] = {}
    fastavro.parse_schema(CUSTOMER, named_schemas=named)
    schema = fastavro.parse_schema(ORDER, named_schemas=named)
    order = {
        "number": 5,
        "at": datetime(2026, 1, 2, 3, tzinfo=UTC),
        "price": Decimal("1.50"),
        "customer": {"name": "Zoë", "mark": b"\x00\xff"},
    }
    body = io.BytesIO()
    fastavro.schemaless_writer(body, schema, order)
    decode = AvroDecoder(schemas.registry)
    for _ in range(3):
        assert json.loads(decode(wire(7, body.getvalue()))) == {
            "number": 5,
            "at": "2026-01-02T03:00:00+00:00",
            "price": "1.50",
            "customer": {"name": "Zoë", "mark": "AP8="},
        }
    # A schema is what it is for ever.
    assert len(schemas.asked) == 2

    for value, reason in [
        (b"", "does not begin with a schema id"),
        (b"\x01\x00\x00\x00\x07x", "does not begin with a schema id"),
        (wire(8, b"x"), "the registry has no schema 8"),
        (wire(7, body.getvalue()[:3]), "does not match schema 7"),
        (wire(7, body.getvalue() + b"xx"), "2 bytes follow the data of schema 7"),
    ]:
        with pytest.raises(UndecodableError, match=reason):
            decode(value)


def test_protobuf_is_told_as_json_by_the_message_that_it_names(schemas: Schemas) -> None:
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    outer = file.message_type.add(name="Outer")
    outer.field.add(name="outer_name", number=1, type=9, label=1)
    inner = outer.nested_type.add(name="Inner")
    inner.field.add(name="at", number=1, type=11, label=1, type_name=".google.protobuf.Timestamp")
    serialized = base64.b64encode(file.SerializeToString()).decode()
    schemas.answers["/schemas/ids/9?format=serialized"] = protobuf(serialized)
    decode = ProtobufDecoder(schemas.registry)
    # The first message of the file is what a single zero stands for.
    assert json.loads(decode(wire(9, b"\x00" + b"\x0a\x02hi"))) == {"outer_name": "hi"}
    # Two levels: the first message, and the first in it; 60 seconds after 1970 began.
    found = decode(wire(9, b"\x04\x00\x00" + b"\x0a\x02\x08\x3c"))
    assert json.loads(found) == {"at": "1970-01-01T00:01:00Z"}
    for body, reason in [
        (b"\x02\x02", "schema 9 has no such message"),
        (b"\x01", "message index is invalid"),
        (b"", "message index is invalid"),
        (b"\xff\xff\xff\xff\x0f", "message index is invalid"),
        (b"\x00\x0a\x09hi", "does not match schema 9"),
    ]:
        with pytest.raises(UndecodableError, match=reason):
            decode(wire(9, body))


def test_protobuf_without_descriptors_is_no_fault_of_a_value(schemas: Schemas) -> None:
    text = 'syntax = "proto3"; message Order { int64 number = 1; }'
    schemas.answers["/schemas/ids/9?format=serialized"] = protobuf(text)
    with pytest.raises(RegistryError, match="only as text"):
        ProtobufDecoder(schemas.registry)(wire(9, b"\x00\x08\x05"))


def test_a_value_by_a_schema_of_another_format_says_so(schemas: Schemas) -> None:
    schemas.answers["/schemas/ids/3"] = protobuf("")
    schemas.answers["/schemas/ids/4?format=serialized"] = {"schema": json.dumps(ORDER)}
    with pytest.raises(UndecodableError, match="schema 3 is PROTOBUF, not AVRO"):
        AvroDecoder(schemas.registry)(wire(3, b""))
    with pytest.raises(UndecodableError, match="schema 4 is AVRO, not PROTOBUF"):
        ProtobufDecoder(schemas.registry)(wire(4, b""))


def test_a_schema_that_is_missing_is_asked_for_now_and_then(schemas: Schemas) -> None:
    times = [0.0, 1.0, UNKNOWN_S - 1]
    now_s = iter([0.0, *times[1:], UNKNOWN_S])
    registry = Registry(schemas.registry.url, USER, lambda: next(now_s))
    for _ in times:
        with pytest.raises(UndecodableError, match="the registry has no schema 6"):
            registry.schema(6)
    assert len(schemas.asked) == 1
    schemas.answers["/schemas/ids/6"] = {"schema": "{}"}
    assert registry.schema(6).text == "{}"


def test_a_registry_that_refuses_or_is_none_is_no_fault_of_a_value(schemas: Schemas) -> None:
    stranger = Registry(schemas.registry.url)
    with pytest.raises(RegistryError, match="rejected the request: HTTP Error 401"):
        stranger.schema(1)
    schemas.answers["/schemas/ids/1"] = {"error": 1}
    with pytest.raises(RegistryError, match="is not a schema registry"):
        schemas.registry.schema(1)
    # A web server at another address does not know any path, and does not say so as a registry.
    schemas.missing = {"status": 404}
    with pytest.raises(RegistryError, match="is not a schema registry; does the URL"):
        schemas.registry.schema(2)
    with pytest.raises(RegistryError, match="does not answer"):
        Registry("http://127.0.0.1:1").schema(1)
