"""Which history is understood, for those who do without Spark."""

from typing import Final

SCHEMA_VERSION: Final = 1
