"""The catalog of a lake, and its tables there."""

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

TABLE: Final = "kohort.table"
"""The property of a table that says which one of a lake it is."""

PROPERTIES: Final = {
    # A writer that has not seen the newest version begins again from it.
    "commit.retry.num-retries": "0",
    # A batch is a version; the file of all of them would grow without an end.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}

OWN: Final = Namespace("kohort_lake", ("lake",))
"""Where tables are in the catalog of a lake in a directory: a file beside the tables."""

_FILE: Final = "_catalog.db"


class Tables:
    """The tables of one lake, by its own names for them. Nothing is looked at yet."""

    def __init__(self, root: str, namespace: Namespace | None) -> None:
        self.place: Final = root if namespace is None else str(namespace)
        self._root, self._namespace = root, namespace
        self._catalog: Catalog | None = None

    def find(self, name: str) -> Table | None:
        """The table as it is now; None: there is none.

        Raises:
            ReportedError: what is called so is none of this lake's, or another one of it.
        """
        try:
            table = self._opened().load_table(self._identifier(name))
        except NoSuchTableError:
            return None
        owner = table.properties.get(TABLE)
        if owner != name:
            whose = "no table of this pipeline's" if owner is None else f"the lake's {owner}"
            raise ReportedError(f"the table {name} of {self.place} is called as {whose} is")
        return table

    def get(self, name: str) -> Table:
        """The table as it is now. Raises ReportedError: there is none."""
        table = self.find(name)
        if table is None:
            raise ReportedError(
                f"the lake {self.place} has no table {name}; has the job run that makes it?"
            )
        return table

    def names(self) -> list[str]:
        """The lake's own names for its tables, in the order of the alphabet."""
        catalog = self._opened()
        try:
            listed = catalog.list_tables(self._home.levels)
        except NoSuchNamespaceError:
            return []
        found = (catalog.load_table(one).properties.get(TABLE) for one in listed)
        return sorted(name for name in found if name is not None)

    def make(self, name: str, schema: pa.Schema, cut_by: Sequence[str]) -> Table:
        """An empty one, or that which another run has just made."""
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
                for column in cut_by:
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
                f"--lake {self._root}: Iceberg's tables need a catalog that is not on this machine "
                "either: --catalog"
            )
        Path(self._root).mkdir(parents=True, exist_ok=True)
        file = Path(self._root, _FILE)
        return load_catalog(
            OWN.catalog, type="sql", uri=f"sqlite:///{file}", warehouse=f"file://{self._root}"
        )


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Turns what PyIceberg raises about `what` into a ReportedError that names the cause."""
    try:
        yield
    except ReportedError:
        raise
    except CommitFailedException as error:
        raise ConflictError(
            f"{what}: another run changed it at the same time, and this one nothing of it"
        ) from error
    except OSError as error:
        raise UnavailableError(f"{what}: {error}") from error
    except Exception as error:
        # Catalogs have many clients, and these have no root in common.
        raise ReportedError(f"{what}: {type(error).__name__}: {error}") from error
