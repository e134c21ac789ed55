"""The codecs against kio, which was generated from Kafka's definitions by other people.

kio has a class per version and its own ideas about times and error codes; fields are paired in the
order of the definitions. Both ways: what kio writes we read, and what we write kio reads.
"""

import dataclasses
import re
import typing
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from io import BytesIO
from typing import Any, Final
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import UnknownEntity, load_entity_module
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.schema.index import LoadableEntityType
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from kohort.protocol.codec import codec
from kohort.protocol.errors import ErrorCode
from kohort.protocol.message import schema_of
from kohort.protocol.messages.cluster_metadata import RECORD_TYPES
from kohort.protocol.schema import Field
from kohort.protocol.types import ZERO_UUID, WireType
from tests.property.kafka_names import (
    DATA_RECORDS,
    EXTENSIONS,
    RECORD_KEYS,
    without_extensions,
)
from tests.property.message_values import (
    Message,
    codec_settings,
    identify,
    message_versions,
    values,
)

NOT_IN_KIO: Final = {
    # Kafka 4.4 is newer than kio 0.6.5.
    ("ApiVersionsRequest", 5),
    ("ApiVersionsResponse", 5),
    ("DeleteGroupsRequest", 3),
    ("DeleteGroupsResponse", 3),
    ("TxnOffsetCommitRequest", 6),
    ("TxnOffsetCommitResponse", 6),
} | {
    # Records of the broker's own topics are none of a client's business.
    (name, version)
    for name in (
        "OffsetCommitKey",
        "OffsetCommitValue",
        "GroupMetadataKey",
        "GroupMetadataValue",
        *(message.__name__ for message, _ in RECORD_KEYS),
        *(message.__name__ for message in DATA_RECORDS if "ConsumerGroup" in message.__name__),
        "TransactionLogKey",
        "TransactionLogValue",
        "SnapshotFooterRecord",
        "SnapshotHeaderRecord",
        *(message.__name__ for message in RECORD_TYPES.values()),
    )
    for version in range(17)
}


def kio_class(message: Message, version: int) -> Any:  # noqa: ANN401 - kio's own classes
    """kio's class for one version of a message, None if it has none."""
    name = schema_of(message).name
    kind: LoadableEntityType
    if schema_of(message).key is None:
        kind = EntityType.header if name.endswith("Header") else EntityType.data
        folder = name
    else:
        kind = EntityType.request if schema_of(message).is_request else EntityType.response
        folder = name.removesuffix("Request").removesuffix("Response")
    snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", folder).lower()
    try:
        return getattr(load_entity_module(snake, version, kind), name)
    except UnknownEntity:
        return None


SHARED: Final = [
    (message, version)
    for message, version in message_versions()
    if kio_class(message, version) is not None
]


def test_kio_has_all_but_the_newest_versions_and_the_internal_records() -> None:
    absent = {
        (schema_of(message).name, version)
        for message, version in message_versions()
        if (message, version) not in SHARED
    }
    assert absent <= NOT_IN_KIO


@pytest.mark.parametrize(("message", "version"), SHARED, ids=identify)
@codec_settings
@given(data=st.data())
def test_kio_and_we_write_the_same_bytes_and_read_each_other(
    message: Message, version: int, data: st.DataObject
) -> None:
    ours = without_extensions(data.draw(values(message, version, _leaf)))
    theirs_class = kio_class(message, version)
    theirs = _to_kio(ours, theirs_class, version)

    with BytesIO() as stream:
        entity_writer(theirs_class)(stream, theirs)
        written = stream.getvalue()

    assert codec(message, version).decode(written) == (ours, len(written))
    encoded = codec(message, version).encode(ours)
    assert encoded == written
    read = entity_reader(theirs_class)(encoded, 0)
    assert read == (theirs, len(encoded))


# Values that kio can hold, too.

_ERROR_CODES = st.sampled_from([code.value for code in KioErrorCode])
# kio computes dates with floats, which are exact to the microsecond for this century; -1 is None.
_DATES = st.integers(-1, 4_102_444_800_000)
# Here kio has no None for -1.
_TRUE_DATES = _DATES.filter(lambda time_ms: time_ms != -1)
_LONG_TIMES = st.integers(-(2**46), 2**46)  # timedelta ends at a billion days.


def _leaf(field: Field) -> st.SearchStrategy[int] | None:
    return {
        "error_code": _ERROR_CODES,
        "partition_error_code": _ERROR_CODES,
        "transaction_start_time_ms": _TRUE_DATES,
        "issue_timestamp_ms": _TRUE_DATES,
        "expiry_timestamp_ms": _TRUE_DATES,
        "max_timestamp_ms": _TRUE_DATES,
        "issue_timestamp": _TRUE_DATES,
        "expiry_timestamp": _TRUE_DATES,
        "max_timestamp": _TRUE_DATES,
        "max_lifetime_ms": _LONG_TIMES,
        "renew_period_ms": _LONG_TIMES,
        "expiry_time_period_ms": _LONG_TIMES,
        "log_append_time_ms": _DATES,
        "retention_time_ms": _LONG_TIMES,
        "session_lifetime_ms": _LONG_TIMES,
        "join_reason": st.just(0),
    }.get(field.name)


_CONVERTERS: Final[dict[str, Callable[[Any], Any]]] = {
    "error_code": KioErrorCode,
    "timedelta_i32": lambda value: timedelta(milliseconds=value),
    "timedelta_i64": lambda value: timedelta(milliseconds=value),
    "datetime_i64": lambda value: (
        None if value == -1 else datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=value)
    ),
    "uuid": lambda value: None if value == ZERO_UUID else UUID(bytes=value),
}


def _to_kio(value: Any, theirs: Any, version: int) -> Any:  # noqa: ANN401 - kio's own classes
    fields = [
        field
        for field in schema_of(type(value)).fields
        if version in field.versions and (schema_of(type(value)).name, field.name) not in EXTENSIONS
    ]
    hints = _type_hints(theirs)
    converted = {}
    for field, their_field in zip(fields, dataclasses.fields(theirs), strict=True):
        if isinstance(field.kind, WireType):
            convert = _CONVERTERS.get(their_field.metadata["kafka_type"], lambda same: same)
        else:
            nested = _dataclass_in(hints[their_field.name])

            def convert(inner: Any, nested: Any = nested) -> Any:  # noqa: ANN401
                return _to_kio(inner, nested, version)

        converted[their_field.name] = _convert(getattr(value, field.name), field, convert)
    return theirs(**converted)


@cache
def _type_hints(theirs: type) -> dict[str, Any]:
    return typing.get_type_hints(theirs)


def _convert(value: Any, field: Field, convert: Callable[[Any], Any]) -> Any:  # noqa: ANN401
    if value is None:
        return None
    return tuple(map(convert, value)) if field.is_array else convert(value)


def _dataclass_in(hint: Any) -> Any:  # noqa: ANN401
    """The class inside ``tuple[X, ...]`` or ``X | None``."""
    if dataclasses.is_dataclass(hint):
        return hint
    return next(filter(None, map(_dataclass_in, typing.get_args(hint))), None)


def test_kio_knows_the_error_codes_by_the_same_numbers() -> None:
    assert {code.name.upper(): code.value for code in KioErrorCode}.items() <= {
        code.name: code.value for code in ErrorCode
    }.items()
