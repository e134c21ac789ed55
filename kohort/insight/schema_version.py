"""The version of the history's schema that this package reads."""

from typing import Final

SCHEMA_VERSION: Final = 1
