"""Where in a catalog the tables of a lake are: Iceberg REST, Hive, Unity, and others.

What is behind the name of a catalog is the business of Spark, or of PyIceberg.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

_UNUSUAL = re.compile(r"[^0-9A-Za-z_]")


@dataclass(frozen=True, slots=True)
class Namespace:
    """A catalog, and the namespace in it that has the tables."""

    catalog: str
    levels: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """`prod.kafka`, or `prod.kafka.eu` for a namespace in a namespace.

        Raises:
            ValueError: a name is missing.
        """
        catalog, *levels = text.split(".")
        if not catalog or not levels or not all(levels):
            raise ValueError(f"{text!r} is not CATALOG.NAMESPACE")
        return cls(catalog, tuple(levels))

    @property
    def quoted(self) -> str:
        """The namespace in SQL."""
        return quoted(self.catalog, *self.levels)

    def table_name(self, name: str) -> str:
        """A table of the lake by itself: catalogs take letters, digits and underscores alone."""
        return _UNUSUAL.sub("_", name)

    def table(self, name: str) -> str:
        """The same in SQL, with where it is."""
        return quoted(self.catalog, *self.levels, self.table_name(name))

    def __str__(self) -> str:
        return ".".join((self.catalog, *self.levels))


def quoted(*names: str) -> str:
    """The parts of a name as SQL takes them, whatever is in them."""
    return ".".join("`" + name.replace("`", "``") + "`" for name in names)


def text(value: str) -> str:
    """A text as SQL takes it."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
