"""Decodes Avro and Protobuf values to JSON with a registry's schemas, and checks JSON values.
Imported by executors.
"""

import base64
import importlib
import io
import json
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from kohort.pipeline.errors import RegistryError
from kohort.pipeline.landing.registry import (
    HEADER_BYTES,
    Registered,
    Registry,
    UndecodableError,
    split_header,
)

JSON: Final = "json"
AVRO: Final = "avro"
PROTOBUF: Final = "protobuf"

NESTING_MAX: Final = 500
"""Levels of arrays and objects in a JSON value; common parsers accept a thousand at most."""

_INDEX_MAX: Final = 1_000
"""Maximum number of messages in a schema, and of nesting levels."""

_USUAL: Final = ("any", "duration", "empty", "field_mask", "struct", "timestamp", "wrappers")
"""Protobuf's own files, which schemas may import."""


class JsonDecoder:
    """Returns values that are exactly one JSON text (RFC 8259) in UTF-8, unchanged."""

    def __init__(self, registry: Registry | None) -> None:
        """With a registry, values may begin with a schema id; it is skipped, not looked up."""
        self._has_ids = registry is not None
        # Numbers stay text, since Python limits the digits of those that it converts.
        self._parse = json.JSONDecoder(
            parse_int=str, parse_float=str, parse_constant=_reject_constant
        ).decode

    def __call__(self, value: bytes) -> str:
        if self._has_ids and value[:1] == b"\0" and len(value) >= HEADER_BYTES:
            value = value[HEADER_BYTES:]
        try:
            text = value.decode()
            parsed = self._parse(text)
        except UnicodeDecodeError as error:
            raise UndecodableError(f"not UTF-8: {error.reason} at byte {error.start}") from error
        except json.JSONDecodeError as error:
            reason = "byte order mark" if error.doc[:1] == "\ufeff" else error.msg
            raise UndecodableError(f"not JSON: {reason} at character {error.pos}") from error
        except RecursionError as error:
            raise _nested_too_deep() from error
        # Count levels only if necessary: a text has at most as many levels as opening brackets.
        if text.count("[") + text.count("{") > NESTING_MAX:
            level = [parsed]
            for _ in range(NESTING_MAX):
                level = [
                    child
                    for parent in level
                    for child in (parent.values() if isinstance(parent, dict) else parent)
                    if isinstance(child, (dict, list))
                ]
            if level:
                raise _nested_too_deep()
        return text


def _reject_constant(name: str) -> None:
    raise UndecodableError(f"not JSON: {name}")


def _nested_too_deep() -> UndecodableError:
    return UndecodableError(f"JSON nested deeper than {NESTING_MAX} levels")


class AvroDecoder:
    """Decodes values written by Confluent's serializer or a compatible one."""

    def __init__(self, registry: Registry | None) -> None:
        assert registry is not None
        self._registry = registry
        self._parsed: dict[int, Any] = {}

    def __call__(self, value: bytes) -> str:
        from fastavro import schemaless_reader  # noqa: PLC0415 - an optional dependency.

        number, body = split_header(value)
        if number not in self._parsed:
            schema = _of_kind("AVRO", number, self._registry.schema(number))
            self._parsed[number] = _avro(schema)
        stream = io.BytesIO(body)
        try:
            decoded = schemaless_reader(stream, self._parsed[number])
            left = len(body) - stream.tell()
            if left:
                raise UndecodableError(f"{left} bytes follow the data of schema {number}")
            return json.dumps(decoded, default=_as_json, allow_nan=False, ensure_ascii=False)
        except UndecodableError:
            raise
        except Exception as error:
            # fastavro raises exceptions of any type for invalid bytes.
            raise UndecodableError(
                f"does not match schema {number}: {_error_text(error)}"
            ) from error


class ProtobufDecoder:
    """Decodes Protobuf values written by Confluent's serializer or a compatible one."""

    def __init__(self, registry: Registry | None) -> None:
        assert registry is not None
        self._registry = registry
        self._files: dict[int, Any] = {}

    def __call__(self, value: bytes) -> str:
        from google.protobuf.json_format import MessageToJson  # noqa: PLC0415 - an optional dependency.
        from google.protobuf.message_factory import GetMessageClass  # noqa: PLC0415

        number, body = split_header(value)
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
            decoded: str = MessageToJson(message, preserving_proto_field_name=True, indent=None)
        except Exception as error:
            raise UndecodableError(
                f"does not match schema {number}: {_error_text(error)}"
            ) from error
        return decoded


DECODERS: Final[dict[str, Callable[[Registry | None], Callable[[bytes], str]]]] = {
    JSON: JsonDecoder,
    AVRO: AvroDecoder,
    PROTOBUF: ProtobufDecoder,
}
"""Decoder classes by format. Decoders raise UndecodableError or, with a registry, RegistryError."""


def _of_kind(wanted: str, number: int, schema: Registered) -> Registered:
    """Return `schema` if its format is `wanted`. Raises UndecodableError if it is not."""
    if schema.kind != wanted:
        raise UndecodableError(f"schema {number} is {schema.kind}, not {wanted}")
    return schema


def _avro(schema: Registered) -> Any:  # noqa: ANN401 - fastavro's type.
    from fastavro import parse_schema  # noqa: PLC0415 - an optional dependency.

    named: dict[str, Any] = {}
    try:
        for reference in schema.references:
            parse_schema(json.loads(reference.text), named_schemas=named)
        return parse_schema(json.loads(schema.text), named_schemas=named)
    except Exception as error:
        raise UndecodableError(f"invalid Avro schema: {_error_text(error)}") from error


def _protobuf(schema: Registered) -> Any:  # noqa: ANN401 - protobuf's type.
    from google.protobuf.descriptor_pool import DescriptorPool  # noqa: PLC0415 - optional.

    pool = DescriptorPool()
    files = [_descriptor(schema_) for schema_ in (*schema.references, schema)]
    try:
        for name in _USUAL:
            module = importlib.import_module(f"google.protobuf.{name}_pb2")
            pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
        return [pool.AddSerializedFile(file) for file in files][-1]
    except Exception as error:
        raise UndecodableError(f"invalid Protobuf schema: {_error_text(error)}") from error


def _descriptor(schema: Registered) -> bytes:
    """Return the descriptor of a Protobuf schema. Raises RegistryError if the registry returned the
    text of a .proto file instead.
    """
    try:
        return base64.b64decode(schema.text, validate=True)
    except ValueError as error:
        raise RegistryError(
            "the schema registry returns Protobuf schemas only as text, but decoding needs their "
            "descriptors (format=serialized), as returned by Confluent's registry. Without "
            "--value, the topic is landed as bytes"
        ) from error


def _indexes(body: bytes) -> tuple[list[int], bytes]:
    """Return the indexes of the message type in the schema, outermost first, and the message."""
    count, at = _varint(body, 0)
    if not count:
        return [0], body[at:]
    indexes = []
    if count > _INDEX_MAX:
        raise UndecodableError("the message index is invalid")
    for _ in range(count):
        index, at = _varint(body, at)
        indexes.append(index)
    return indexes, body[at:]


def _varint(body: bytes, at: int) -> tuple[int, int]:
    """Return a zigzag number, and the position after it."""
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
    raise UndecodableError("the message index is invalid")


def _as_json(value: object) -> object:
    """Convert values without a JSON type, in the style of Protobuf's JSON."""
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, (Decimal, UUID)):
        return str(value)
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    raise TypeError(type(value).__name__)


def _error_text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:200]
