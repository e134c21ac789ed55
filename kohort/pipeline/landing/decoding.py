"""Adds columns with the decoded values of landed rows, and with the errors."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructField, StructType

from kohort.pipeline.landing.formats import AVRO, DECODERS, JSON, PROTOBUF
from kohort.pipeline.landing.registry import Registry, UndecodableError

STRING: Final = "string"
FORMATS: Final = (STRING, JSON, AVRO, PROTOBUF)
BY_REGISTRY: Final = (AVRO, PROTOBUF)
"""Formats whose values cannot be decoded without their schemas."""

DECODED: Final = "decoded"
UNDECODABLE: Final = "undecodable"

COLUMNS: Final = (StructField(DECODED, StringType()), StructField(UNDECODABLE, StringType()))
"""The value as text, or the decoding error; both are null if the value is null."""


@dataclass(frozen=True, slots=True)
class Decoding:
    format: str
    registry: str | None = None
    user: str | None = None
    """The name:password for the registry."""

    def decoded(self, frame: DataFrame) -> DataFrame:
        value = f.col("value")
        both = _as_text(value) if self.format == STRING else _by_python(self)(value)
        rows = frame.withColumn("both", both)
        for column in COLUMNS:
            rows = rows.withColumn(column.name, f.col("both")[column.name])
        return rows.drop("both")


def _as_text(value: Column) -> Column:
    is_text = f.is_valid_utf8(value)
    text = f.when(is_text, value.cast("string")).alias(DECODED)
    return f.when(
        value.isNotNull(), f.struct(text, f.when(~is_text, "not UTF-8").alias(UNDECODABLE))
    )


def _by_python(decoding: Decoding) -> Callable[[Column], Column]:
    """Return a function that applies a Python UDF; executors need the format's Python package.

    JSON is decoded in Python too: Spark's own functions ignore what follows the first value, reject
    some valid values, give no reason, and take more processor time.
    """

    def decode(value: bytes | None) -> tuple[str | None, str | None]:
        return decode_one(_decoder(decoding), value)

    return f.udf(decode, StructType(list(COLUMNS)), useArrow=True)


def decode_one(
    decoder: Callable[[bytes], str], value: bytes | None
) -> tuple[str | None, str | None]:
    """Return the value's text, or the error. Raises RegistryError if the schema registry fails."""
    if value is None:
        return None, None
    try:
        return decoder(bytes(value)), None
    except UndecodableError as error:
        return None, str(error)


_DECODERS: Final[dict[Decoding, Callable[[bytes], str]]] = {}
"""This process's decoders; reused by all batches, so that each schema is requested once."""


def _decoder(decoding: Decoding) -> Callable[[bytes], str]:
    if decoding not in _DECODERS:
        url = decoding.registry
        registry = None if url is None else Registry(url, decoding.user)
        _DECODERS[decoding] = DECODERS[decoding.format](registry)
    return _DECODERS[decoding]
