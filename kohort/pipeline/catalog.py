"""Names of a lake's tables in a catalog of Spark or PyIceberg."""

import re
from dataclasses import dataclass
from typing import Self

_UNUSUAL = re.compile(r"[^0-9A-Za-z_]")


@dataclass(frozen=True, slots=True)
class Namespace:
    """A catalog, and the namespace in it that contains the tables."""

    catalog: str
    levels: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `prod.kafka`, or `prod.kafka.eu` for a nested namespace.

        Raises:
            ValueError: a name is missing.
        """
        catalog, *levels = text.split(".")
        if not catalog or not levels or not all(levels):
            raise ValueError(f"{text!r} is not CATALOG.NAMESPACE")
        return cls(catalog, tuple(levels))

    @property
    def quoted(self) -> str:
        return quoted(self.catalog, *self.levels)

    def table_name(self, name: str) -> str:
        """Return a table's name in the catalog: only letters, digits and underscores."""
        return _UNUSUAL.sub("_", name)

    def table(self, name: str) -> str:
        return quoted(self.catalog, *self.levels, self.table_name(name))

    def __str__(self) -> str:
        return ".".join((self.catalog, *self.levels))


def quoted(*names: str) -> str:
    return ".".join("`" + name.replace("`", "``") + "`" for name in names)


def text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
