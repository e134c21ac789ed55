"""The codecs against the message classes that Kafka's own build generates, in one JVM.

Both ways: of our bytes Kafka says what they mean and writes them again; of a value in Kafka's JSON
form Kafka writes the bytes, which we read.
"""

from base64 import b64decode, b64encode, urlsafe_b64encode
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.protocol.codec import codec
from kohort.protocol.message import schema_of
from kohort.protocol.schema import Field
from tests.property.kafka_names import (
    CLIENTS,
    COORDINATOR,
    DATA_RECORDS,
    EXTENSIONS,
    METADATA,
    RECORD_KEYS,
    SHARE_STATE,
    TRANSACTIONS,
    without_extensions,
)
from tests.property.message_values import (
    Message,
    codec_settings,
    identify,
    message_versions,
    values,
)
from tests.support.processes.java_process import JavaProcess

every_message_version = pytest.mark.parametrize(
    ("message", "version"), message_versions(), ids=identify
)


@pytest.fixture(scope="module")
def kafka() -> Iterator[JavaProcess]:
    with JavaProcess("MessageCodec", "broker") as process:
        yield process


@every_message_version
@codec_settings
@given(data=st.data())
def test_kafka_reads_what_we_write_and_we_read_what_kafka_writes(
    message: Message, version: int, kafka: JavaProcess, data: st.DataObject
) -> None:
    value = data.draw(values(message, version))
    encoded = codec(message, version).encode(value)
    target = _java_class(message, version)

    read = kafka.call(**target, bytes=b64encode(encoded).decode())

    assert read["left"] == 0
    assert read["json"] == _json(value, version, told_by_kafka=True)
    assert b64decode(read["bytes"]) == encoded

    written = b64decode(kafka.call(**target, json=_json(value, version))["bytes"])

    decoded, end = codec(message, version).decode(written)
    assert end == len(written)
    assert decoded == without_extensions(value)


def _java_class(message: Message, version: int) -> dict[str, object]:
    name = schema_of(message).name
    if (message, version) in RECORD_KEYS:
        artifact, name = RECORD_KEYS[message, version]
        package, version = _PACKAGES[artifact], 0
    else:
        package = _PACKAGES[DATA_RECORDS.get(message, CLIENTS)]
        if package == _PACKAGES[CLIENTS] and not name.startswith(("ConsumerProtocol", "Snapshot")):
            name += "Data"
    return {"class": f"{package}.{name}", "version": version}


_PACKAGES = {
    CLIENTS: "org.apache.kafka.common.message",
    COORDINATOR: "org.apache.kafka.coordinator.group.generated",
    TRANSACTIONS: "org.apache.kafka.coordinator.transaction.generated",
    METADATA: "org.apache.kafka.common.metadata",
    SHARE_STATE: "org.apache.kafka.coordinator.share.generated",
}


def _json(value: Any, version: int, *, told_by_kafka: bool = False) -> dict[str, object]:  # noqa: ANN401
    """A message in the form of Kafka's JsonConverter classes.

    Kafka tells no tagged field that has its default, and of records only their size.
    """
    schema = schema_of(type(value))
    found: dict[str, object] = {}
    for field in schema.fields:
        if version not in field.versions or (schema.name, field.name) in EXTENSIONS:
            continue
        inner = getattr(value, field.name)
        if told_by_kafka and field.is_tagged(version) and inner == field.make_default():
            continue
        name = _camel(field.name)
        if told_by_kafka and _type_name(field) == "records" and inner is not None:
            found[f"{name}SizeInBytes"] = len(inner)
        elif isinstance(inner, list):
            found[name] = [_json_value(field, e, version, told_by_kafka) for e in inner]
        else:
            found[name] = _json_value(field, inner, version, told_by_kafka)
    return found


def _json_value(field: Field, value: Any, version: int, told_by_kafka: bool) -> object:  # noqa: ANN401
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if not isinstance(value, bytes):
        return _json(value, version, told_by_kafka=told_by_kafka)
    if _type_name(field) == "uuid":
        return urlsafe_b64encode(value).decode().rstrip("=")
    return b64encode(value).decode()


def _type_name(field: Field) -> str | None:
    return None if isinstance(field.kind, type) else field.kind.name


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
