"""Our declarations against the message definitions that ship inside Kafka 4.4.0's own jars.

Both sides are unfolded, version by version, into the same plain form, and must be equal: nothing
missing, nothing extra but the extensions listed here.
"""

import json
import re
from collections.abc import Iterable
from functools import cache
from typing import Any
from zipfile import ZipFile

import pytest

from kohort.broker.handlers import load_handlers
from kohort.protocol.message import REQUESTS, RESPONSES, Struct, schema_of
from kohort.protocol.messages.cluster_metadata import RECORD_TYPES
from kohort.protocol.schema import Field
from kohort.protocol.types import ZERO_UUID, WireType
from tests.property.kafka_names import (
    CLIENTS,
    DATA_RECORDS,
    EXTENSIONS,
    METADATA,
    RECORD_KEYS,
    RENAMED,
    SHARED,
)
from tests.property.message_values import Message, identify, top_level_messages, versions
from tests.support.processes.java_env import jar

every_api_message = pytest.mark.parametrize(
    "message",
    [m for m in top_level_messages() if schema_of(m).key is not None],
    ids=identify,
)


@cache
def definition(artifact: str, name: str) -> dict[str, Any]:
    folder = "metadata" if artifact == METADATA else "message"
    with ZipFile(jar(artifact)) as archive:
        text = archive.read(f"common/{folder}/{name}.json").decode()
    # Their comments stand on lines of their own, and JSON knows none.
    found: dict[str, Any] = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    return found


@every_api_message
def test_a_message_is_declared_as_kafka_defines_it(message: Message) -> None:
    schema = schema_of(message)
    kafka = definition(CLIENTS, schema.name)
    kind = "request" if schema.is_request else "response"

    assert (kafka["type"], kafka["apiKey"]) == (kind, schema.key)
    assert versions(message) == _released_versions(schema.name)
    _assert_same_layouts(message, kafka)


@pytest.mark.parametrize("message", DATA_RECORDS, ids=identify)
def test_a_header_or_record_is_declared_as_kafka_defines_it(message: Message) -> None:
    kafka = definition(DATA_RECORDS[message], schema_of(message).name)

    assert versions(message) == _versions(kafka["validVersions"])
    _assert_same_layouts(message, kafka)


@pytest.mark.parametrize(("number", "message"), RECORD_TYPES.items(), ids=identify)
def test_a_type_of_metadata_has_the_number_that_kafka_gives_it(
    number: int, message: Message
) -> None:
    assert definition(METADATA, schema_of(message).name)["apiKey"] == number


@pytest.mark.parametrize(("message", "version"), RECORD_KEYS, ids=identify)
def test_a_record_key_is_declared_as_kafka_defines_it(message: Message, version: int) -> None:
    kafka = definition(*RECORD_KEYS[message, version])

    assert kafka["apiKey"] == version
    assert kafka["validVersions"] == "0"
    assert not schema_of(message).is_flexible(version)
    assert kafka["flexibleVersions"] == "none"
    declared = _declared(message, version, range(version, version + 1))
    assert declared == _defined(kafka, kafka["fields"], 0, range(1))


def test_every_message_under_protocol_is_compared() -> None:
    compared = set(DATA_RECORDS) | {message for message, _ in RECORD_KEYS}
    for message in top_level_messages():
        assert schema_of(message).key is not None or message in compared
    assert {(m, v) for m, _ in RECORD_KEYS for v in versions(m)} == set(RECORD_KEYS)


def test_every_api_that_the_broker_advertises_is_compared() -> None:
    compared = set(top_level_messages())
    for key, api in load_handlers().items():
        assert REQUESTS[key] is api.request
        assert {REQUESTS[key], RESPONSES[key]} <= compared
        assert api.versions.low in versions(RESPONSES[key])
        assert api.versions.high in versions(RESPONSES[key])


def test_only_the_listed_extensions_are_ours_and_all_of_them_are_tags() -> None:
    declared = {
        (schema_of(message).name, field.name): (message, field)
        for message in top_level_messages()
        for field in schema_of(message).fields
    }
    for extension in EXTENSIONS:
        message, field = declared[extension]
        assert field.options.ignorable
        assert all(field.is_tagged(v) for v in versions(message) if v in field.versions)


def _assert_same_layouts(message: Message, kafka: dict[str, Any]) -> None:
    known = versions(message)
    flexible = _versions(kafka["flexibleVersions"], known)
    assert [v for v in known if schema_of(message).is_flexible(v)] == list(flexible)
    for version in known:
        ours = [
            field
            for field in _declared(message, version, known)
            if (schema_of(message).name, field["name"]) not in EXTENSIONS
        ]
        assert ours == _defined(kafka, kafka["fields"], version, known), f"version {version}"


def _released_versions(name: str) -> range:
    """Valid versions without an unreleased one; only the request says whether the last one is."""
    valid = _versions(definition(CLIENTS, name)["validVersions"])
    request = definition(CLIENTS, name.removesuffix("Response").removesuffix("Request") + "Request")
    return valid[:-1] if request.get("latestVersionUnstable", False) else valid


def _versions(text: str, within: range = range(32768)) -> range:
    """Kafka's notation, cut to ``within``."""
    if text == "none":
        return range(0)
    low, _, high = text.removesuffix("+").partition("-")
    stop = within.stop if text.endswith("+") else int(high or low) + 1
    return range(max(int(low), within.start), max(min(stop, within.stop), int(low)))


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


# The common form of a field in one version: {name, type, array, present, ...}.


def _defined(
    kafka: dict[str, Any], fields: Iterable[dict[str, Any]], version: int, alive: range
) -> list[dict[str, Any]]:
    """Kafka's fields; ``alive`` are the versions in which the structure around them occurs."""
    found = []
    for field in fields:
        own = _versions(field.get("versions") or field["taggedVersions"], alive)
        if not own:
            continue
        kind = field["type"].removeprefix("[]")
        nested = field.get("fields") or _common_struct(kafka, kind)
        present = version in own
        flexible = _versions(field.get("flexibleVersions", kafka["flexibleVersions"]))
        tagged = present and version in _versions(field.get("taggedVersions", "none"))
        found.append(
            {
                "name": _snake(field["name"]),
                "type": SHARED.get(kind, kind),
                "array": field["type"].startswith("[]"),
                "present": present,
                "compact": present and version in flexible,
                "nullable": present and version in _versions(field.get("nullableVersions", "none")),
                "tag": field["tag"] if tagged else None,
                # It means something only if some version lacks the field.
                "ignorable": field.get("ignorable", False) and own != alive,
                "default": _defined_default(field, nested is not None),
                "fields": _defined(kafka, nested, version, own) if nested and present else None,
            }
        )
    return found


def _common_struct(kafka: dict[str, Any], name: str) -> list[dict[str, Any]] | None:
    fields: dict[str, list[dict[str, Any]]] = {
        struct["name"]: struct["fields"] for struct in kafka.get("commonStructs", ())
    }
    return fields.get(name)


def _defined_default(field: dict[str, Any], is_struct: bool) -> object:
    """What Kafka's generated classes set in a field that was not set."""
    kind, default = field["type"], field.get("default", "")
    # A null that is not in quotes is the default of the type, as if there were none.
    if default == "null" or (kind == "records" and default == ""):
        return None
    if kind.startswith("[]"):
        return []
    if is_struct:
        return "a default struct"
    if default == "":
        return {"string": "", "bytes": b"", "uuid": ZERO_UUID, "bool": False}.get(kind, 0)
    if kind == "bool":
        return str(default).lower() == "true"
    return default if kind == "string" else int(str(default), 0)


def _declared(
    struct: Message, version: int, alive: Iterable[int], *, flexible: bool | None = None
) -> list[dict[str, Any]]:
    """Our fields; ``alive`` are the versions in which the structure around them occurs."""
    if flexible is None:
        flexible = schema_of(struct).is_flexible(version)
    found = []
    for field in schema_of(struct).fields:
        own = [one for one in alive if one in field.versions]
        if own:
            described = _declared_field(field, version, flexible, own)
            described["ignorable"] = field.options.ignorable and own != list(alive)
            found.append(described)
    return found


def _declared_field(field: Field, version: int, flexible: bool, own: list[int]) -> dict[str, Any]:
    present = version in field.versions
    is_struct = not isinstance(field.kind, WireType)
    nested = None
    if present and not isinstance(field.kind, WireType):
        nested = _declared(field.kind, version, own, flexible=flexible)
    return {
        "name": field.name,
        "type": _declared_type(field),
        "array": field.is_array,
        "present": present,
        "compact": present and flexible,
        "nullable": present and version in field.nullable,
        "tag": field.options.tag if present and field.is_tagged(version) else None,
        "default": _declared_default(field, is_struct),
        "fields": nested,
    }


def _declared_type(field: Field) -> str:
    if isinstance(field.kind, WireType):
        return field.kind.name
    return RENAMED.get(field.kind.__name__, field.kind.__name__)


def _declared_default(field: Field, is_struct: bool) -> object:
    if is_struct and not field.is_array and field.options.default is not None:
        assert isinstance(field.kind, type)
        assert issubclass(field.kind, Struct)
        assert field.make_default() == field.kind()
        return "a default struct"
    return field.make_default()
