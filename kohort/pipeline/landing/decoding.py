"""Adds columns with the decoded values of landed rows, and with the errors."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructField, StructType

from kohort.pipeline.landing.formats import AVRO, DECODERS, PROTOBUF
from kohort.pipeline.landing.registry import HEADER_BYTES, Registry, UndecodableError

STRING: Final = "string"
JSON: Final = "json"
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
        both = _by_schema(self)(f.col("value")) if self.format in DECODERS else self._by_spark()
        rows = frame.withColumn("both", both)
        for column in COLUMNS:
            rows = rows.withColumn(column.name, f.col("both")[column.name])
        return rows.drop("both")

    def _by_spark(self) -> Column:
        value = f.col("value")
        if self.format == JSON and self.registry is not None:
            # The schema is not needed to parse JSON.
            has_id = (f.length(value) >= HEADER_BYTES) & (f.hex(f.substring(value, 1, 1)) == "00")
            value = f.when(has_id, f.expr(f"substring(value, {HEADER_BYTES + 1})")).otherwise(value)
        is_text = f.is_valid_utf8(value)
        text = value.cast("string")
        is_good = is_text
        if self.format == JSON:
            is_good = is_text & f.try_parse_json(f.when(is_text, text)).isNotNull()
        wrong = f.when(~is_text, "not UTF-8").otherwise("not JSON")
        return f.when(
            value.isNotNull(),
            f.struct(
                f.when(is_good, text).alias(DECODED), f.when(~is_good, wrong).alias(UNDECODABLE)
            ),
        )


def _by_schema(decoding: Decoding) -> Callable[[Column], Column]:
    """Return a Python UDF; executors need the package of the format."""

    def decode(value: bytes | None) -> tuple[str | None, str | None]:
        return decode_one(_decoder(decoding), value)

    return f.udf(decode, StructType(list(COLUMNS)), useArrow=True)


def decode_one(
    decoder: Callable[[bytes], str], value: bytes | None
) -> tuple[str | None, str | None]:
    """Return the text, or the error. Raises RegistryError, which the value did not cause."""
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
        assert decoding.registry is not None
        registry = Registry(decoding.registry, decoding.user)
        _DECODERS[decoding] = DECODERS[decoding.format](registry)
    return _DECODERS[decoding]
