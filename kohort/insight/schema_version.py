"""Which history is understood, for code that does without Spark."""

from typing import Final

SCHEMA_VERSION: Final = 1
