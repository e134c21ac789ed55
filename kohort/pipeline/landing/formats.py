"""Values in Avro and Protobuf as JSON, by the schemas of a registry. Imported by executors."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from kohort.pipeline.errors import RegistryError
from kohort.pipeline.landing.registry import (
    Registered,
    Registry,
    UndecodableError,
    parted,
)

AVRO: Final = "avro"
PROTOBUF: Final = "protobuf"

_INDEX_MAX: Final = 1_000
"""Messages in a message, and levels of them, that are believed."""


class AvroDecoder:
    """Values that Confluent's serializer, or another that does as it does, has written."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._parsed: dict[int, Any] = {}

    def __call__(self, value: bytes) -> str:
        """Raises UndecodableError, RegistryError."""
        from fastavro import schemaless_reader  # noqa: PLC0415 - of an extra.

        number, body = parted(value)
        if number not in self._parsed:
            schema = _of_kind("AVRO", number, self._registry.schema(number))
            self._parsed[number] = _avro(schema)
        stream = io.BytesIO(body)
        try:
            found = schemaless_reader(stream, self._parsed[number])
            left = len(body) - stream.tell()
            if left:
                raise UndecodableError(f"{left} bytes follow what schema {number} describes")
            return json.dumps(found, default=_plain, allow_nan=False, ensure_ascii=False)
        except UndecodableError:
            raise
        except Exception as error:
            # fastavro raises whatever its reading of the bytes comes upon.
            raise UndecodableError(f"not of schema {number}: {_said(error)}") from error


class ProtobufDecoder:
    """The same for Protobuf."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._files: dict[int, Any] = {}

    def __call__(self, value: bytes) -> str:
        """Raises UndecodableError, RegistryError."""
        from google.protobuf.json_format import MessageToJson  # noqa: PLC0415 - of an extra.
        from google.protobuf.message_factory import GetMessageClass  # noqa: PLC0415

        number, body = parted(value)
        if number not in self._files:
            schema = _of_kind("PROTOBUF", number, self._registry.schema(number, "serialized"))
            self._files[number] = _protobuf(schema)
        indexes, body = _indexes(body)
        messages = list(self._files[number].message_types_by_name.values())
        kind = None
        for index in indexes:
            if index >= len(messages):
                raise UndecodableError(f"schema {number} has no such message")
            kind = messages[index]
            messages = list(kind.nested_types)
        assert kind is not None
        try:
            message = GetMessageClass(kind).FromString(body)
            found: str = MessageToJson(message, preserving_proto_field_name=True, indent=None)
        except Exception as error:
            raise UndecodableError(f"not of schema {number}: {_said(error)}") from error
        return found


DECODERS: Final[dict[str, Callable[[Registry], Callable[[bytes], str]]]] = {
    AVRO: AvroDecoder,
    PROTOBUF: ProtobufDecoder,
}


def _of_kind(wanted: str, number: int, schema: Registered) -> Registered:
    """The schema. Raises UndecodableError: it is one of another format."""
    if schema.kind != wanted:
        raise UndecodableError(f"schema {number} is one of {schema.kind}, not of {wanted}")
    return schema


def _avro(schema: Registered) -> Any:  # noqa: ANN401 - as fastavro has it.
    from fastavro import parse_schema  # noqa: PLC0415 - of an extra.

    named: dict[str, Any] = {}
    try:
        for one in schema.references:
            parse_schema(json.loads(one.text), named_schemas=named)
        return parse_schema(json.loads(schema.text), named_schemas=named)
    except Exception as error:
        raise UndecodableError(f"its schema is none of Avro: {_said(error)}") from error


def _protobuf(schema: Registered) -> Any:  # noqa: ANN401 - as protobuf has it.
    from google.protobuf import (  # noqa: PLC0415 - of an extra.
        any_pb2,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        struct_pb2,
        timestamp_pb2,
        wrappers_pb2,
    )
    from google.protobuf.descriptor_pool import DescriptorPool  # noqa: PLC0415

    usual = (
        any_pb2,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        struct_pb2,
        timestamp_pb2,
        wrappers_pb2,
    )
    pool = DescriptorPool()
    files = [_descriptor(one) for one in (*schema.references, schema)]
    try:
        for module in usual:
            pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
        return [pool.AddSerializedFile(file) for file in files][-1]
    except Exception as error:
        raise UndecodableError(f"its schema is none of Protobuf: {_said(error)}") from error


def _descriptor(schema: Registered) -> bytes:
    """Raises RegistryError: it is the text of a .proto file, as it would be of any other schema."""
    try:
        return base64.b64decode(schema.text, validate=True)
    except ValueError as error:
        raise RegistryError(
            "the schema registry gives Protobuf schemas as text only, and to read values takes "
            "their descriptors (format=serialized), which Confluent's registry gives. Without "
            "--value, the topic is landed as bytes"
        ) from error


def _indexes(body: bytes) -> tuple[list[int], bytes]:
    """Which message of the schema it is, from the outside in, and the message."""
    count, at = _varint(body, 0)
    if not count:
        return [0], body[at:]
    indexes = []
    if count > _INDEX_MAX:
        raise UndecodableError("it does not say which message it is")
    for _ in range(count):
        index, at = _varint(body, at)
        indexes.append(index)
    return indexes, body[at:]


def _varint(body: bytes, at: int) -> tuple[int, int]:
    """A number in zigzag form, and where the next one begins."""
    value = shift = 0
    while at < len(body) and shift < 64:
        value |= (body[at] & 0x7F) << shift
        shift += 7
        at += 1
        if not body[at - 1] & 0x80:
            number = (value >> 1) ^ -(value & 1)
            if number >= 0:
                return number, at
            break
    raise UndecodableError("it does not say which message it is")


def _plain(value: object) -> object:
    """What JSON has no form for, in that of Protobuf's JSON."""
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, (Decimal, UUID)):
        return str(value)
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    raise TypeError(type(value).__name__)


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:200]
