"""The Iceberg catalog of a lake, and the lake's tables in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)

from kohort.insight.errors import ReportedError, UsageError
from kohort.pipeline.catalog import Namespace
from kohort.pipeline.errors import ConflictError, UnavailableError

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from kohort.pipeline.iceberg.change import IcebergChange

TABLE: Final = "kohort.table"
"""Table property with the table's name in the lake."""

PROPERTIES: Final = {
    # PyIceberg must not retry by itself: after a conflict, a change starts again from the newest
    # version.
    "commit.retry.num-retries": "0",
    # Each batch is a version, and the metadata file of all versions would grow without limit.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}

OWN: Final = Namespace("kohort_lake", ("lake",))
"""The tables' namespace without --catalog: the catalog is then a file in the lake's directory."""

_FILE: Final = "_catalog.db"


class Tables:
    """Finds and creates tables of a lake by name. Opens the lake's catalog on first use."""

    def __init__(self, root: str, namespace: Namespace | None) -> None:
        self.place: Final = root if namespace is None else str(namespace)
        self._root, self._namespace = root, namespace
        self._catalog: Catalog | None = None

    def __reduce__(self) -> tuple[type[Tables], tuple[str, Namespace | None]]:
        """Pickle without the open catalog: another process opens its own."""
        return Tables, (self._root, self._namespace)

    @property
    def writers_max(self) -> int:
        """Maximum number of tasks that may append at a time: few, because a commit fails if another
        task has committed meanwhile, even if their rows belong to different groups.
        """
        return 2

    def begin(self, name: str, version: int | None = None) -> IcebergChange:
        """Begin a change of the table. With `version`, the table must still have this version.

        Raises:
            ConflictError: the table has another version.
        """
        from kohort.pipeline.iceberg.change import IcebergChange  # noqa: PLC0415 - a cycle.

        with explained(self.label(name)):
            change = IcebergChange(self.find(name), self.label(name))
        if version is not None and change.version != version:
            raise ConflictError(
                f"{self.label(name)}: another run changed it at the same time; nothing was written"
            )
        return change

    def label(self, name: str) -> str:
        return f"the table {name} of {self.place}"

    def find(self, name: str) -> Table | None:
        """Load the table from the catalog; None if it does not exist.

        Raises:
            ReportedError: another table has this name in the catalog.
        """
        try:
            table = self._opened().load_table(self._identifier(name))
        except NoSuchTableError:
            return None
        owner = table.properties.get(TABLE)
        if owner != name:
            whose = "another table" if owner is None else f"the lake's table {owner}"
            raise ReportedError(f"the name of the table {name} of {self.place} is used by {whose}")
        return table

    def get(self, name: str) -> Table:
        """Load the table from the catalog. Raises ReportedError if it does not exist."""
        table = self.find(name)
        if table is None:
            raise ReportedError(
                f"the lake {self.place} has no table {name}; run the job that creates it first"
            )
        return table

    def names(self) -> list[str]:
        catalog = self._opened()
        try:
            listed = catalog.list_tables(self._home.levels)
        except NoSuchNamespaceError:
            return []
        names = (catalog.load_table(identifier).properties.get(TABLE) for identifier in listed)
        return sorted(name for name in names if name is not None)

    def make(self, name: str, schema: pa.Schema, partition_by: Sequence[str]) -> Table:
        """Return a new empty table, or the one that another run has just created."""
        catalog = self._opened()
        catalog.create_namespace_if_not_exists(self._home.levels)
        try:
            with (
                catalog.create_table_transaction(
                    self._identifier(name),
                    schema=schema,
                    location=None if self._namespace is not None else f"file://{self._root}/{name}",
                    properties={**PROPERTIES, TABLE: name},
                ) as making,
                making.update_spec() as spec,
            ):
                for column in partition_by:
                    spec.add_identity(column)
        except TableAlreadyExistsError:
            pass
        return self.get(name)

    @property
    def _home(self) -> Namespace:
        return self._namespace or OWN

    def _identifier(self, name: str) -> tuple[str, ...]:
        return (*self._home.levels, self._home.table_name(name))

    def _opened(self) -> Catalog:
        if self._catalog is None:
            self._catalog = self._load()
        return self._catalog

    def _load(self) -> Catalog:
        if self._namespace is not None:
            return load_catalog(self._namespace.catalog)
        if "://" in self._root:
            raise UsageError(
                f"--lake {self._root}: remote Iceberg tables need a catalog: --catalog"
            )
        Path(self._root).mkdir(parents=True, exist_ok=True)
        file = Path(self._root, _FILE)
        return load_catalog(
            OWN.catalog, type="sql", uri=f"sqlite:///{file}", warehouse=f"file://{self._root}"
        )


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Convert PyIceberg's exceptions about `what` to a ReportedError with the cause."""
    try:
        yield
    except ReportedError:
        raise
    except CommitFailedException as error:
        raise ConflictError(
            f"{what}: another run changed it at the same time; nothing was written"
        ) from error
    except OSError as error:
        raise UnavailableError(f"{what}: {error}") from error
    except Exception as error:
        # The clients of catalogs have no common base class of exceptions.
        raise ReportedError(f"{what}: {type(error).__name__}: {error}") from error
